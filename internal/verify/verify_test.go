package verify

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// shop is a topology with two tiers, of which the first one is for two attempts.
func shop(t *testing.T) topology.Compiled {
	t.Helper()
	return spectest.Compile(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [{delay: 10s, attempts: 2}, 1m]}}
queues: [{name: billing}, {name: mail}]
`)
}

// flock returns the canaries of shop, those without a processor first.
func flock(t *testing.T, now time.Time) (alone, processed []*canary) {
	t.Helper()
	return canariesOf(shop(t), now)
}

// canariesOf returns the canaries of the first backoff of a topology.
func canariesOf(c topology.Compiled, now time.Time) (alone, processed []*canary) {
	home, _ := homeObjects(c, "r1", time.Minute)
	m := maker{topology: c, backoff: c.Backoffs[0], home: home.Name, work: "billing", run: "r1"}
	return m.make(now)
}

// On what the file compiles to, each canary comes back. Where the objects of the broker differ, it
// is not sent, and the report names the difference.
func TestACanaryIsSentOnlyWhereItComesBack(t *testing.T) {
	t.Parallel()
	policyOn := func(pattern string, definition topology.Arguments) func(*topology.State) {
		return func(s *topology.State) {
			s.Have.Policies = []topology.Policy{{
				Name: "everything", Pattern: pattern, ApplyTo: "queues", Definition: definition,
			}}
		}
	}
	bind := func(source, key string, args topology.Arguments) func(*topology.State) {
		return func(s *topology.State) {
			s.Have.Queues = append(s.Have.Queues, topology.Queue{
				Name: "nosy", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
			})
			s.Have.Bindings = append(s.Have.Bindings, topology.Binding{
				Source: source, Destination: "nosy", DestinationType: topology.ToQueue, Key: key, Arguments: args,
			})
		}
	}
	without := func(destination string) func(*topology.State) {
		return func(s *topology.State) {
			var kept []topology.Binding
			for _, b := range s.Have.Bindings {
				if b.Destination != destination {
					kept = append(kept, b)
				}
			}
			s.Have.Bindings = kept
		}
	}
	for name, tc := range map[string]struct {
		change           func(*topology.State)
		alone, processed bool   // the canary of the first attempt is sent
		problem          string // of the report; empty: none
	}{
		"what the file says": {func(*topology.State) {}, true, true, ""},
		"a TTL that is too short": {
			policyOn("retry", topology.Arguments{"message-ttl": int64(5000)}), true, true,
			"harmful-policy: the policy everything (pattern retry) would end the wait in shop.standard.retry.10s after 5s; ",
		},
		"a TTL of the failed queue": {
			policyOn("failed", topology.Arguments{"message-ttl": int64(5000)}), true, false,
			"harmful-policy: the policy everything (pattern failed) would move the messages in shop.standard.failed to the exchange shop.dead after 5s; ",
		},
		"another dead-letter routing key": {
			policyOn(".*", topology.Arguments{"dead-letter-routing-key": "x"}), false, true,
			"route: a retry that leaves shop.standard.retry.10s goes to shop.unroutable, and not to its work queue; ",
		},
		"a tier without a binding": {
			without("shop.standard.retry.10s"), false, true,
			"route: a retry of attempt 1 goes to the dead-letter queue, and not to shop.standard.retry.10s; ",
		},
		"a failed queue without a binding": {
			without("shop.standard.failed"), true, false,
			"route: a failed message of attempt 1 goes to shop.unroutable, and not to shop.standard.failed; ",
		},
		"a listener for failures": {
			bind("shop.failed", "@billing", nil), true, false, "copies: a failed message of attempt 1 also goes to nosy, ",
		},
		"a listener for retries": {
			bind("shop.standard.dlx", "", topology.Arguments{"x-match": "any", "count": int64(1)}), false, true,
			"copies: a retry of attempt 1 also goes to nosy, ",
		},
		"a listener for all that fits nowhere": {bind("shop.unroutable", "", nil), true, true, ""},
		"a listener for another work queue":    {bind("shop.return", "@mail", nil), true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := shop(t)
			home, bindings := homeObjects(c, "r1", time.Minute)
			state := topology.State{Version: "4.3.6", Have: c.Topology}
			tc.change(&state)
			var r Report
			s := newSurveyor(c, state, home, bindings, &r)
			s.settings(c.Backoffs[0], c.Backoffs[0].Tiers[0])
			alone, processed := flock(t, time.Now())
			if got := s.comesBack(alone[0]); got != tc.alone {
				t.Errorf("the canary for the tier alone is sent: %t", got)
			}
			if got := s.comesBack(processed[0]); got != tc.processed {
				t.Errorf("the canary for a processor is sent: %t", got)
			}
			var got string
			for _, p := range r.Problems {
				got += p.Name + ": " + p.Text + "\n"
			}
			if !strings.Contains(got, tc.problem) || tc.problem == "" && got != "" {
				t.Errorf("the report has the problems\n%swant\n%s", got, tc.problem)
			}
		})
	}
}

// chosen returns the report on what a broker has, and the canaries that are sent, for a processor
// that is running.
func chosen(t *testing.T, maxWait time.Duration, change func(*topology.State)) (Report, []*canary) {
	t.Helper()
	c := shop(t)
	home, bindings := homeObjects(c, "r1", time.Minute)
	state := topology.State{Version: "4.3.6", Have: c.Topology}
	change(&state)
	var r Report
	s := newSurveyor(c, state, home, bindings, &r)
	v := Verifier{Topology: c, MaxWait: maxWait}
	alone, processed := flock(t, time.Now())
	sent := v.choose(s, alone, processed, v.rows(&r, c.Backoffs[0]), true)
	return r, sent
}

// unbound takes away the bindings to a queue that match.
func unbound(destination string, matches func(topology.Binding) bool) func(*topology.State) {
	return func(s *topology.State) {
		s.Have.Bindings = slices.DeleteFunc(slices.Clone(s.Have.Bindings), func(b topology.Binding) bool {
			return b.Destination == destination && matches(b)
		})
	}
}

// Canaries wait in each tier, also where the file says what becomes of messages whose time is over.
func TestCanariesOfABackoffWithAfterExpiry(t *testing.T) {
	t.Parallel()
	for _, after := range []topology.AfterExpiry{topology.ExpiryDead, topology.ExpiryDropped} {
		c := spectest.Compile(t, `
version: 1
name: shop
backoff: {standard: {tiers: [10s, 10m], afterExpiry: `+string(after)+`}}
queues: [{name: billing, backoff: standard}]
`)
		home, bindings := homeObjects(c, "r1", time.Minute)
		var r Report
		s := newSurveyor(c, topology.State{Version: "4.3.6", Have: c.Topology}, home, bindings, &r)
		alone, processed := canariesOf(c, time.Now())
		for _, canary := range slices.Concat(alone, processed) {
			if !s.comesBack(canary) {
				t.Errorf("afterExpiry %s: the canary %s is not sent: %+v", after, canary.id, r.Problems)
			}
		}
	}
}

// A backoff without tiers has no canaries. Its objects are looked at.
func TestABackoffWithoutTiers(t *testing.T) {
	t.Parallel()
	c := spectest.Compile(t, `
version: 1
name: shop
backoff: {direct: {tiers: []}}
queues: [{name: billing, backoff: direct}]
`)
	home, bindings := homeObjects(c, "r1", time.Minute)
	v := Verifier{Topology: c, TiersOnly: true}
	for _, tc := range []struct {
		have topology.Topology
		want string
	}{
		{c.Topology, "\n\nno tiers to verify\n"},
		{topology.Topology{}, "queue shop.direct.failed; run 'dlxctl apply'\nno tiers to verify; 1 problem\n"},
	} {
		var r Report
		s := newSurveyor(c, topology.State{Version: "4.3.6", Have: tc.have}, home, bindings, &r)
		if sent, err := v.prepare(t.Context(), nil, s, "r1"); err != nil || len(sent) > 0 {
			t.Errorf("%d canaries are sent: %v", len(sent), err)
		}
		var b strings.Builder
		if err := WriteText(&b, r, 0); err != nil || !strings.HasSuffix(b.String(), tc.want) {
			t.Errorf("the report is\n%s: %v", &b, err)
		}
	}
}

// A failed queue that no failed message reaches is found also where all tiers are longer than
// --max-wait.
func TestTheWayToAProcessorIsReadAlsoForLongTiers(t *testing.T) {
	t.Parallel()
	all := func(topology.Binding) bool { return true }
	r, sent := chosen(t, time.Second, unbound("shop.standard.failed", all))
	if len(sent) > 0 || len(r.Problems) == 0 || r.Problems[0].Name != "route" {
		t.Errorf("%d canaries are sent, and the problems are %+v; want none, and a problem route", len(sent), r.Problems)
	}
}

// A row says what is worst in its tier: here no canary of its second attempt is sent, and then none
// that a failed queue would take.
func TestARowShowsTheCanariesThatAreNotSent(t *testing.T) {
	t.Parallel()
	second := func(b topology.Binding) bool { return b.Arguments["count"] == int64(2) }
	r, sent := chosen(t, time.Hour, unbound("shop.standard.retry.10s", second))
	if len(sent) != 4 {
		t.Fatalf("%d canaries are sent, not those of the attempts 1 and 3", len(sent))
	}
	f := flight{report: &r}
	for _, c := range sent {
		f.note(c, OK, c.tier.Delay, Problem{})
	}
	if got := r.Tiers[0]; got.Result != NotSent || got.Processor != OK || got.Waited != 0 {
		t.Errorf("the row of the tier is %+v", got)
	}

	all := func(topology.Binding) bool { return true }
	r, _ = chosen(t, time.Hour, unbound("shop.standard.failed", all))
	if got := r.Tiers[0].Processor; got != NotSent {
		t.Errorf("with a processor that nothing reaches the row says %q", got)
	}
}

// came returns a canary as it comes back from its tier.
func came(c *canary) amqp091.Delivery {
	headers := amqp091.Table(maps.Clone(c.want))
	headers["x-death"] = []any{amqp091.Table{"queue": c.tier.Queue, "reason": "expired", "count": int64(1)}}
	return amqp091.Delivery{
		Exchange: "shop.return", RoutingKey: canaryKey, Headers: headers, MessageId: c.id, AppId: c.message.AppId,
		ContentType: c.message.ContentType, Body: c.message.Body,
	}
}

// What is wrong with a canary that came back is named.
func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	set := func(header string, value any) func(*amqp091.Delivery) {
		return func(d *amqp091.Delivery) { d.Headers[header] = value }
	}
	in := 10 * time.Second
	for name, tc := range map[string]struct {
		processed bool
		attempt   int
		change    func(*amqp091.Delivery)
		after     time.Duration
		result    Result
		text      string
	}{
		"in time":                      {false, 1, nil, in, OK, ""},
		"in time, through a processor": {true, 2, nil, in, OK, ""},
		"a clock that rounds":          {false, 1, nil, in - time.Millisecond, OK, ""},
		"a little late":                {false, 1, nil, in + 5*time.Second, OK, ""},
		"late":                         {false, 1, nil, in + 6*time.Second, Late, "after 16s, and not after 10s"},
		"early":                        {false, 1, nil, in - time.Second, Early, "after 9s, and not after 10s"},
		"other wide integers":          {true, 2, set("count", int64(2)), in, OK, ""},
		"the processor has its own clock": {
			true, 1, set("retry-first-failed-at", "2026-01-02T03:04:05.678Z"), in, OK, "",
		},
		"a first failure that changes": {
			true, 2, set("retry-first-failed-at", "2026-01-02T03:04:05.678Z"), in, Headers,
			"the header retry-first-failed-at 2026-01-02T03:04:05.678Z in place of ",
		},
		"no time": {true, 2, set("retry-last-failed-at", "yesterday"), in, Headers, "yesterday, which is not a time"},
		"miscounted": {
			true, 2, set("retry-attempts", int64(1)), in, Headers, "the header retry-attempts 1 in place of 2",
		},
		"another reason": {false, 1, set("retry-reason", "expired"), in, Headers, "the header retry-reason expired"},
		"another key": {
			false, 1, func(d *amqp091.Delivery) { d.RoutingKey = "@x" }, in, Headers,
			`the routing key "@x" in place of "dlxctl.verify"`,
		},
		"another body": {false, 1, func(d *amqp091.Delivery) { d.Body = nil }, in, Headers, "another body"},
		"another tier": {
			true, 2, set("x-death", []any{amqp091.Table{"queue": "shop.standard.retry.5m"}}), in, Astray,
			"waited in shop.standard.retry.5m and not in shop.standard.retry.10s",
		},
		"a dead letter": {
			true, 2, func(d *amqp091.Delivery) { delete(d.Headers, "x-death"); d.Headers["count"] = int32(-1) }, 0, Astray,
			"the canary of attempt 2, which a processor put into its tier, became a dead letter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone, processed := flock(t, now)
			c := alone[tc.attempt-1]
			if tc.processed {
				c = processed[tc.attempt-1]
			}
			c.start(now, time.Second)
			d := came(c)
			if tc.change != nil {
				tc.change(&d)
			}
			result, problem := c.judge(d, now.Add(tc.after), 5*time.Second)
			if result != tc.result || !strings.Contains(problem.Text, tc.text) || (result == OK) != (problem == Problem{}) {
				t.Errorf("the canary is judged %s, not %s: %s", result, tc.result, problem.Text)
			}
		})
	}
}

// Canaries have the headers of docs/headers.md, as if a work queue had rejected them so many times.
func TestTheHeadersOfCanaries(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	alone, processed := flock(t, now)
	want := map[string]any{
		"count": int32(2), "CC": []any{"@shop.verify.r1"}, "retry-queue": "shop.verify.r1", "retry-exchange": "shop.return",
		"retry-routing-key": canaryKey, "retry-first-failed-at": "2026-01-02T03:04:05.000Z",
		"retry-last-failed-at": "2026-01-02T03:04:05.000Z", "retry-reason": "rejected", "retry-attempts": int64(2),
		"retry-cc": []any{"@billing"},
		"retry-history": []any{
			amqp091.Table{"at": "2026-01-02T03:04:05.000Z", "attempt": int64(1), "reason": "rejected", "tier": "10s"},
			amqp091.Table{"at": "2026-01-02T03:04:05.000Z", "attempt": int64(2), "reason": "rejected", "tier": "10s"},
		},
	}
	if d := cmp.Diff(want, alone[1].want); d != "" {
		t.Errorf("headers of the second attempt (-want +got):\n%s", d)
	}
	if p := processed[1]; p.exchange != "shop.failed" || p.key != "@shop.verify.r1" || p.message.Expiration != "" ||
		p.message.Headers["count"] != int32(1) {
		t.Errorf("the canary for a processor is %+v", p.message)
	}
}

// The report has a row for each tier, and all that is wrong.
func TestWriteText(t *testing.T) {
	t.Parallel()
	r := Report{Topology: "shop", VHost: "/", Tiers: []Tier{
		{
			Backoff: "standard", Delay: 10 * time.Second, Attempts: []int{1, 2, 3, 5}, Result: OK,
			Waited: 10_020 * time.Millisecond, Processor: Missing,
		},
		{Backoff: "standard", Delay: time.Hour, Attempts: []int{4}, Result: NotWaitedFor},
	}}
	r.add(Problem{Name: "processor", Queue: "q", Text: "it is silent"})
	r.add(Problem{Name: "processor", Queue: "q", Text: "it is silent again"})
	var b bytes.Buffer
	if err := WriteText(&b, r, 0); err != nil {
		t.Fatal(err)
	}
	want := `topology shop, vhost /

BACKOFF   TIER  ATTEMPTS  TIER ALONE      WITH PROCESSOR
standard  10s   1-3, 5    ok, 10.02s      missing
standard  1h    4         not waited for

problem processor: it is silent
0 tiers of 2 verified; of 1 tier beyond --max-wait only the settings were read; 1 problem
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}
