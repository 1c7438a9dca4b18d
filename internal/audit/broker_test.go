package audit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// imported creates what definitions say in a virtual host of the test's own, and returns what an
// audit of them finds for that broker.
func imported(t *testing.T, definitions string) (brokertest.Target, *amqp091.Channel, audit.Report) {
	t.Helper()
	target := brokertest.VHost(t)
	var body map[string]any
	if err := json.Unmarshal([]byte(definitions), &body); err != nil {
		t.Fatalf("%v\n%s", err, definitions)
	}
	target.Call(t, http.MethodPost, "definitions/"+url.PathEscape(target.VHost), body)
	in := read(t, "broker.json", definitions)
	in.State.Version = target.Version
	return target, target.Confirming(t), audit.Run(in)
}

// finds reports whether a rule has a finding.
func finds(r audit.Report, rule string) bool {
	return slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Rule == rule })
}

// counts returns how many messages are ready, by queue.
func counts(t *testing.T, ch *amqp091.Channel, r audit.Input) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, q := range r.State.Have.Queues {
		state, err := ch.QueueDeclarePassive(q.Name, q.Durable, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if state.Messages > 0 {
			out[q.Name] = state.Messages
		}
	}
	return out
}

// dies makes the only message of the queue billing die: it is rejected, or returned so many times,
// or waits for its TTL.
func dies(t *testing.T, ch *amqp091.Channel, returns int) {
	t.Helper()
	for n := 0; ; n++ {
		var d amqp091.Delivery
		var ok bool
		brokertest.Eventually(t, "a message in billing", func() bool {
			var err error
			if d, ok, err = ch.Get("billing", false); err != nil {
				t.Fatal(err)
			}
			return ok
		})
		if err := d.Reject(n < returns); err != nil {
			t.Fatal(err)
		}
		if n >= returns-1 {
			return
		}
	}
}

// What a rule calls lost is lost on a broker, and what it does not mind is kept.
func TestConsequencesOnABroker(t *testing.T) {
	t.Parallel()
	const flags = `"durable": true, "auto_delete": false`
	direct := func(key string) string {
		return `{"exchanges": [{"name": "dlx", "type": "direct", "internal": false, "arguments": {}, ` + flags + `}],
 "queues": [{"name": "billing", ` + flags + `, "arguments": {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "billing"}},
  {"name": "dead", ` + flags + `, "arguments": {}}],
 "bindings": [{"source": "dlx", "destination": "dead", "destination_type": "queue", "routing_key": "` + key + `", "arguments": {}}]}`
	}
	loop := func(more string) string {
		return `{"queues": [{"name": "billing", ` + flags + `, "arguments": {` +
			`"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"` + more + `}},
  {"name": "wait", ` + flags + `, "arguments": {"x-message-ttl": 50,
   "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing"}}]}`
	}
	itself := func(more string) string {
		return `{"queues": [{"name": "billing", ` + flags + `, "arguments": {"x-dead-letter-exchange": ""` + more + `}}]}`
	}
	quorum := func(more string) string {
		return `{"queues": [{"name": "billing", ` + flags + `, "arguments": {"x-queue-type": "quorum"` + more + `}},
  {"name": "dead", ` + flags + `, "arguments": {}}]}`
	}
	policy := func(pattern, more string) string {
		return `{"queues": [{"name": "billing", ` + flags + `, "arguments": {}},
  {"name": "billing.dead", ` + flags + `, "arguments": {}}],
 "policies": [{"name": "p", "pattern": "` + pattern + `", "apply-to": "queues", "priority": 0,
  "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "billing.dead"` + more + `}}]}`
	}
	const toDead = `, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"`
	const expires = -1
	const intoNothing, catches = "delivery-limit-into-nothing", "policy-catches-dead-letter-queue"
	for name, tc := range map[string]struct {
		rule        string
		definitions string
		returns     int // 0 is rejected at once, expires waits for the TTL
		lost        bool
	}{
		"a # on a direct exchange": {"dead-letter-unrouted", direct("#"), 0, true},
		"the key itself":           {"dead-letter-unrouted", direct("billing"), 0, false},

		"a loop of TTLs":                 {"cycle-cut", loop(`, "x-message-ttl": 50`), expires, true},
		"a loop that a consumer rejects": {"cycle-cut", loop(""), 0, false},

		"expires into itself": {"dead-letters-to-itself", itself(`, "x-message-ttl": 50`), expires, true},

		"a limit and no dead-lettering": {intoNothing, quorum(`, "x-delivery-limit": 1`), 2, true},
		"a limit and dead-lettering":    {intoNothing, quorum(`, "x-delivery-limit": 1` + toDead), 2, false},
		"no limit":                      {intoNothing, quorum(`, "x-delivery-limit": 2147483647`), 22, false},

		"a policy for both":    {catches, policy("^billing", `, "message-ttl": 50`), expires, true},
		"a policy for one":     {catches, policy("^billing$", `, "message-ttl": 50`), expires, false},
		"a policy passed over": {"policy-passed-over", policy("^billing$", `, "delivery-limit": 5`), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ch, report := imported(t, tc.definitions)
			in := read(t, "broker.json", tc.definitions)
			says := slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
				return f.Rule == tc.rule && f.Severity == audit.Error
			})
			if says != tc.lost {
				t.Errorf("%s is an error: %t, in %s", tc.rule, says, strings.Join(summary(report), "\n"))
			}
			brokertest.Fill(t, ch, "", "billing", 1, 10)
			if tc.returns >= 0 {
				dies(t, ch, tc.returns)
			}
			var have map[string]int
			steady := 0
			brokertest.EventuallyEvery(t, 40e6, "the message to be gone, or to stay", func() bool {
				have = counts(t, ch, in)
				_, waits := have["wait"]
				if _, stays := have["billing"]; len(have) > 0 == tc.lost || waits || stays && tc.returns == expires {
					steady = 0
				} else {
					steady++
				}
				return steady == 5 // a message on its way is in no queue
			}, &have)
		})
	}
}

// The default delivery limit of 4.x loses a message at the 21st return, and 3.10 has none. On 3.10
// the limit -1 loses one at the first return, whatever a policy says.
func TestDeliveryLimitsThatLoseMessagesOnALine(t *testing.T) {
	t.Parallel()
	for rule, tc := range map[string]struct {
		argument string
		returns  int
		since4   bool
	}{
		"delivery-limit-into-nothing": {"", 21, true},
		"limit-minus-one-on-3x":       {`, "x-delivery-limit": -1`, 1, false},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			definitions := `{"queues": [{"name": "billing", "durable": true, "auto_delete": false,
  "arguments": {"x-queue-type": "quorum"` + tc.argument + `}}]`
			if tc.argument != "" {
				definitions += `, "policies": [{"name": "limit", "pattern": "^billing$", "apply-to": "queues", "priority": 0,
  "definition": {"delivery-limit": 2147483647}}]`
			}
			target, ch, report := imported(t, definitions+"}")
			in := read(t, "broker.json", definitions+"}")
			says := finds(report, rule)
			if want := target.AtLeast("4.0") == tc.since4; says != want {
				t.Errorf("on %s the audit says so: %t", target.Version, says)
			}
			brokertest.Eventually(t, "the policy in effect", func() bool {
				return tc.argument == "" || target.Queue(t, "billing")["policy"] == "limit"
			})
			brokertest.Fill(t, ch, "", "billing", 1, 10)
			dies(t, ch, tc.returns)
			steady := 0
			brokertest.EventuallyEvery(t, 40e6, "the message to be gone, or to stay", func() bool {
				if len(counts(t, ch, in)) > 0 == says {
					steady = 0
				} else {
					steady++
				}
				return steady == 5
			})
		})
	}
}

// A quorum queue with at-least-once dead-lettering keeps what its exchange cannot route. With the
// default overflow it loses it.
func TestAtLeastOnceNeedsRejectPublish(t *testing.T) {
	t.Parallel()
	for overflow, kept := range map[string]bool{"drop-head": false, "reject-publish": true} {
		t.Run(overflow, func(t *testing.T) {
			t.Parallel()
			definitions := `{"exchanges": [{"name": "dlx", "type": "fanout", "durable": true, "auto_delete": false,
  "internal": false, "arguments": {}}],
 "queues": [{"name": "billing", "durable": true, "auto_delete": false, "arguments": {
   "x-queue-type": "quorum", "x-dead-letter-exchange": "dlx",
   "x-dead-letter-strategy": "at-least-once", "x-overflow": "` + overflow + `"}},
  {"name": "dead", "durable": true, "auto_delete": false, "arguments": {}}]}`
			target, ch, report := imported(t, definitions)
			in := read(t, "broker.json", definitions)
			says := finds(report, "at-least-once-not-in-effect")
			if says == kept {
				t.Errorf("the audit says so: %t", says)
			}
			brokertest.Fill(t, ch, "", "billing", 1, 10)
			dies(t, ch, 0)
			steady := 0 // the queue publishes the dead letter just after it has forgotten the message
			brokertest.EventuallyEvery(t, 40e6, "the message to leave", func() bool {
				if steady++; len(counts(t, ch, in)) > 0 {
					steady = 0
				}
				return steady == 10
			})
			if kept { // invisible to consumers, and published again after three minutes
				brokertest.Eventually(t, "the dead letter in the queue", func() bool {
					return fmt.Sprint(target.Queue(t, "billing")["messages_dlx"]) == "1"
				})
				return
			}
			brokertest.Bind(t, ch, "dead", "", "dlx", nil)
			brokertest.Fill(t, ch, "", "billing", 1, 10)
			dies(t, ch, 0)
			brokertest.Eventually(t, "the second dead letter", func() bool { return counts(t, ch, in)["dead"] > 0 })
			if got := counts(t, ch, in)["dead"]; got != 1 {
				t.Errorf("%d dead letters, want the second one alone", got)
			}
		})
	}
}

// A full quorum queue drops its oldest message with reject-publish-dlx, and refuses the newest one
// with reject-publish.
func TestQuorumQueuesTakeRejectPublishDLXForDropHead(t *testing.T) {
	t.Parallel()
	const definitions = `{"queues": [{"name": "billing", "durable": true, "auto_delete": false,
  "arguments": {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish-dlx"}}]}`
	_, ch, report := imported(t, definitions)
	if !finds(report, "overflow-not-supported") {
		t.Error("the audit does not say so")
	}
	brokertest.Fill(t, ch, "", "billing", 5, 10) // all confirmed, ids from 0
	d, ok, err := ch.Get("billing", true)
	if err != nil || !ok || d.MessageId != "4" {
		t.Errorf("the queue has kept message %q (%t, %v), want the newest one", d.MessageId, ok, err)
	}
}

// Policies that a broker has applied are in effect for the audit, too.
func TestAPolicyThatIsInEffectIsNotAFinding(t *testing.T) {
	t.Parallel()
	target, _, _ := imported(t, `{"queues": [
  {"name": "billing", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum"}},
  {"name": "reports", "durable": true, "auto_delete": false, "arguments": {}}],
 "policies": [
  {"name": "one", "pattern": "^(?!amq\\.)", "apply-to": "queues", "priority": 0, "definition": {"max-length": 10}},
  {"name": "two", "pattern": "reports", "apply-to": "all", "priority": 5, "definition": {"max-length": 20}}]}`)
	m := managementtest.Client(t, target)
	var findings []audit.Finding
	brokertest.Eventually(t, "no finding about policies", func() bool { // a broker applies policies afterwards
		state, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		findings = audit.Run(audit.Input{
			State: state, Live: &topology.Live{}, Rules: []string{"policy-not-in-effect", "policies-tie", "policy-passed-over"},
		}).Findings
		return len(findings) == 0
	}, &findings)
}

// A queue whose node is down is not taken for missing, though RabbitMQ 4.3 does not list it. The
// audit finds that no node answers for it, and nothing else about it. Of the quorum queues it names
// the one that has fewer replicas than there are nodes, one of which is down.
func TestAQueueThatIsDown(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	nodes := brokertest.Cluster(t)
	target := nodes[0].VHost(t)
	third := nodes[2].See(t, target).Channel(t)
	brokertest.Declare(t, third, "billing.dead", nil)
	brokertest.Declare(t, target.Channel(t), "billing", amqp091.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead",
	})
	for name, replicas := range map[string]int{"one": 1, "three": 3} {
		brokertest.Declare(t, target.Channel(t), name, amqp091.Table{
			"x-queue-type": "quorum", "x-quorum-initial-group-size": replicas,
		})
	}
	brokertest.Bind(t, third, "billing.dead", "dead", "amq.direct", nil)
	m := managementtest.Client(t, target)
	nodes[2].Kill(t)
	var state topology.State
	brokertest.Eventually(t, "the queue to be down", func() bool {
		var err error
		if state, err = m.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		return slices.Equal(state.Down, []string{"billing.dead"})
	}, &state.Down)
	live, err := m.Live(t.Context(), state, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := audit.Run(audit.Input{State: state, Live: &live})
	if _, judged := r.Fates["billing.dead"]; judged || r.Fates["billing"] != audit.Kept {
		t.Errorf("the fates are %v", r.Fates)
	}
	for _, f := range r.Findings {
		missing := strings.Contains(f.Evidence, "no queue billing.dead")
		isDown := f.Rule == "queue-without-leader"
		tooFew := f.Rule == "too-few-replicas"
		if missing || isDown != (f.Object.Name == "billing.dead") || tooFew && f.Object.Name != "one" {
			t.Errorf("%s %s: %s", f.Rule, f.Object, f.Evidence)
		}
	}
	if !finds(r, "queue-without-leader") || !finds(r, "too-few-replicas") {
		t.Errorf("it does not say that the queue is down, or which has too few replicas: %v", r.Findings)
	}
}
