package verify

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// steady returns a flight for a backoff of which RabbitMQ does the retries.
func steady(t *testing.T, maxWait time.Duration) (*nativeFlight, topology.State) {
	t.Helper()
	c := spectest.Compile(t, `
version: 1
name: shop
backoff: {steady: {engine: native, linear: {first: 10s, attempts: 4, max: 30s}}}
queues: [{name: billing, backoff: steady}, {name: mail, backoff: steady}]
`)
	v := &Verifier{Topology: c, MaxWait: maxWait, Late: 5 * time.Second, Patience: 30 * time.Second}
	return v.newNativeFlight(c.Native[0], "r1", 0), topology.State{Version: "4.3.6", Have: c.Topology}
}

// texts returns the problems of a report, a line each.
func texts(r Report) string {
	out := ""
	for _, p := range r.Problems {
		out += p.Name + ": " + p.Text + "\n"
	}
	return out
}

// Canaries are sent where the objects of the broker lead them back, and the queue in which they
// fail has what is in effect on a work queue. What differs from the file is named.
func TestNativeCanariesAreSentOnlyWhereTheyComeBack(t *testing.T) {
	t.Parallel()
	policyOn := func(definition topology.Arguments) func(*topology.State) {
		return func(s *topology.State) {
			s.OperatorPolicies = []topology.Policy{{Name: "op", Pattern: "^billing$", ApplyTo: "queues", Definition: definition}}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*topology.State)
		sent    bool
		problem string // empty: none
	}{
		"what the file says": {func(*topology.State) {}, true, ""},
		"an older broker": {
			func(s *topology.State) { s.Version = "4.2.1" }, false,
			"settings: engine: native is for RabbitMQ 4.3.1 and later, and this broker is 4.2.1; ",
		},
		"an alarm": {func(s *topology.State) { s.Alarm = "memory" }, false, ""},
		"fewer retries": {
			policyOn(topology.Arguments{topology.KeyDeliveryLimit: int64(2)}), true,
			"settings: billing has delivery-limit 2, and not 4; ",
		},
		"retries that outlast the messages": {
			policyOn(topology.Arguments{"message-ttl": int64(90_000)}), true, // 10s, 20s, 30s, 30s
			"settings: messages of billing expire after 1m30s (message-ttl), and their retries take 1m30s; ",
		},
		"a policy on the queue of verify alone": {
			func(s *topology.State) {
				s.Have.Policies = append(slices.Clone(s.Have.Policies), topology.Policy{
					Name: "low", Pattern: ".*", ApplyTo: "queues",
					Definition: topology.Arguments{topology.KeyDelayedRetryType: "disabled"},
				})
			}, false,
			"harmful-policy: the policy low (pattern .*) sets delayed-retry-type on the queues of verify, and not on billing",
		},
		"a queue is missing": {
			func(s *topology.State) { s.Have.Queues = without(s.Have.Queues, "billing") }, true,
			"missing-object: the queue billing does not exist; ",
		},
		"no queue": {
			func(s *topology.State) { s.Have.Queues = nil }, false, "missing-object: the queue mail does not exist; ",
		},
		"failures of all go elsewhere": {
			func(s *topology.State) {
				s.Have.Policies = []topology.Policy{{
					Name: "x", Pattern: ".*", ApplyTo: "queues", Definition: topology.Arguments{topology.KeyDeadLetterExchange: "x"},
				}}
			}, false, "settings: mail has dead-letter-exchange \"x\", and not \"shop.failed\"; ",
		},
		"the exchange of failures is missing": {
			func(s *topology.State) { s.Have.Exchanges = nil }, false, "route: a failed message of verify does not reach ",
		},
		"a listener": {
			func(s *topology.State) {
				s.Have.Queues = append(s.Have.Queues, topology.Queue{
					Name: "nosy", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
				})
				s.Have.Bindings = append(s.Have.Bindings, topology.Binding{
					Source: "shop.failed.next", Destination: "nosy", DestinationType: topology.ToQueue, Key: "@shop.verify.r10",
				})
			}, false, "copies: a failed message also goes to nosy, ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, state := steady(t, 2*time.Minute)
			state.Have.Queues, state.Have.Bindings = slices.Clone(state.Have.Queues), slices.Clone(state.Have.Bindings)
			tc.change(&state)
			if got := f.prepare(state); got != tc.sent {
				t.Errorf("canaries are sent: %t", got)
			}
			got := texts(f.report)
			if !strings.Contains(got, tc.problem) || tc.problem == "" && got != "" {
				t.Errorf("the report has the problems\n%swant\n%s", got, tc.problem)
			}
			for _, tier := range f.report.Tiers {
				if (tier.Result == NotSent) == tc.sent {
					t.Errorf("the row of %s says %q", tier.Delay, tier.Result)
				}
			}
		})
	}
}

// without returns the queues that are not of this name.
func without(list []topology.Queue, name string) []topology.Queue {
	return slices.DeleteFunc(slices.Clone(list), func(q topology.Queue) bool { return q.Name == name })
}

// Retries follow one another, and those are waited for that come within MaxWait.
func TestNativeRetriesWithinMaxWait(t *testing.T) {
	t.Parallel()
	for maxWait, want := range map[time.Duration]struct {
		waits, canaries int
		results         string
	}{
		5 * time.Second:  {0, 1, "not waited for, not waited for, not waited for"},
		30 * time.Second: {2, 4, ", , not waited for"},
		time.Minute:      {3, 4, ", , , not waited for"}, // 30s is the delay of two attempts
		90 * time.Second: {4, 4, ", , "},
	} {
		f, _ := steady(t, maxWait)
		var results []string
		for _, tier := range f.report.Tiers {
			results = append(results, string(tier.Result))
		}
		got := strings.Join(results, ", ")
		if f.waits != want.waits || len(f.canaries) != want.canaries || got != want.results {
			t.Errorf("with --max-wait %s, %d retries and %d canaries, and %q", maxWait, f.waits, len(f.canaries), got)
		}
	}
}

// What RabbitMQ does with a canary is compared with the file.
func TestWhatNativeCanariesSay(t *testing.T) {
	t.Parallel()
	counted := func(n int64) amqp091.Table { return amqp091.Table{topology.HeaderDeliveryCount: n} }
	for name, tc := range map[string]struct {
		way     amqp.Answer
		came    int // before
		waited  time.Duration
		headers amqp091.Table // nil: it is a dead letter
		again   bool          // the consumer fails it once more
		result  Result        // of the failure, or of the row of the retry
		problem string        // empty: none
	}{
		"the second retry":        {amqp.Requeue, 2, 20 * time.Second, counted(2), true, "", ""},
		"too early":               {amqp.Requeue, 2, 10 * time.Second, counted(2), true, "", "early: "},
		"too late":                {amqp.Requeue, 2, 40 * time.Second, counted(2), true, "", "late: "},
		"not counted":             {amqp.Requeue, 2, 20 * time.Second, counted(1), true, "", "headers: "},
		"a retry too many":        {amqp.Requeue, 5, 30 * time.Second, counted(5), false, Astray, "more-retries: "},
		"a dead letter":           {amqp.Requeue, 5, 0, nil, false, OK, ""},
		"dead too soon":           {amqp.Requeue, 3, 0, nil, false, Astray, "dead-letter: a canary of the backoff steady (basic.reject, requeue=true) became a dead letter after 2 of 4 retries; "},
		"dead too late":           {amqp.Requeue, 5, time.Minute, nil, false, Late, "late: "},
		"rejected":                {amqp.Reject, 1, 0, nil, false, OK, ""},
		"rejected, and came back": {amqp.Reject, 1, 10 * time.Second, counted(1), false, Astray, "more-retries: "},
		"nack":                    {amqp.Nack, 1, 10 * time.Second, amqp091.Table{}, false, OK, ""},
		"nack, counted":           {amqp.Nack, 1, 10 * time.Second, counted(1), false, Headers, "headers: "},
		"nack, a dead letter":     {amqp.Nack, 1, 0, nil, false, Astray, "dead-letter: "},
		"crash":                   {amqp.Crash, 1, 10 * time.Second, counted(1), false, OK, ""},
		"crash, at once":          {amqp.Crash, 1, 0, counted(1), false, Early, "early: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := steady(t, 2*time.Minute)
			i := slices.IndexFunc(f.canaries, func(c *nativeCanary) bool { return c.failing.answer == tc.way })
			c := f.canaries[i]
			c.came, c.answered = tc.came, time.Now().Add(-tc.waited)
			d := amqp091.Delivery{MessageId: c.id, Headers: tc.headers}
			if tc.headers == nil {
				f.died(d)
			} else if got := f.deliver(d); (got == tc.way) != tc.again {
				t.Errorf("the consumer says %s", got)
			}
			if got := f.report.Failures[c.row].Result; got != tc.result {
				t.Errorf("the failure is %q", got)
			}
			if got := texts(f.report); !strings.HasPrefix(got, tc.problem) || tc.problem == "" && got != "" {
				t.Errorf("the report has the problems\n%s", got)
			}
			if c.ended == tc.again {
				t.Errorf("it has ended: %t", c.ended)
			}
		})
	}
}
