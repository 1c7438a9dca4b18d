package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/topology"
)

// A loop of a dead-letter queue with itself is not that of the work queue with it.
func TestTheLoopOfADeadLetterQueueIsNamed(t *testing.T) {
	t.Parallel()
	in := read(t, "loop.json", `{"rabbitmq_version": "4.3.6", "queues": [
  {"name": "billing", "durable": true, "auto_delete": false,
   "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dlq"}},
  {"name": "billing.dlq", "durable": true, "auto_delete": false,
   "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dlq", "x-message-ttl": 1000}}]}`)
	for _, f := range audit.Run(in).Findings {
		if f.Rule == "cycle-cut" && f.Object.Name == "billing" &&
			strings.HasSuffix(f.Evidence, "billing → billing.dlq and back to billing.dlq") {
			return
		}
	}
	t.Errorf("no such loop: %v", summary(audit.Run(in)))
}

// A policy that ties with forty others is one finding. It names the queue that loses messages if
// the broker chooses the other policy.
func TestATieIsOneFinding(t *testing.T) {
	t.Parallel()
	const dead = `"definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "q.dead"}`
	queues := `{"name": "q.dead", "durable": true, "auto_delete": false, "arguments": {}}`
	policies := `{"name": "all", "pattern": "^q[0-9]", "apply-to": "queues", "priority": 0, "definition": {"max-length": 5}}`
	for i := range 40 {
		queues += fmt.Sprintf(`, {"name": "q%d", "durable": true, "auto_delete": false, "arguments": {}}`, i)
		policies += fmt.Sprintf(`, {"name": "%d", "pattern": "^q%d$", "apply-to": "queues", "priority": 0, %s}`, i, i, dead)
	}
	in := read(t, "tie.json", `{"rabbitmq_version": "4.3.6", "queues": [`+queues+`], "policies": [`+policies+`]}`)
	var found []audit.Finding
	for _, f := range audit.Run(in).Findings {
		if f.Rule == "policies-tie" {
			found = append(found, f)
		}
	}
	if len(found) != 1 || found[0].Object.Name != "all" ||
		!strings.HasSuffix(found[0].Consequence, "; if it is all, failed messages of q0, q1, q10 and 37 more are lost") {
		t.Errorf("%d findings: %+v", len(found), found)
	}
}

// A finding is as bad as what the broker of that line does, and a key that resembles none may be
// one of a plugin, which a running broker took.
func TestSeverityByLine(t *testing.T) {
	t.Parallel()
	const (
		later    = `"exchanges": [{"name": "later", "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}]`
		policies = `"policies": [{"name": "p", "pattern": ".", "apply-to": "queues", "priority": 0, "definition": {%s}}]`
	)
	for _, tc := range []struct {
		version, rule, objects string
		live                   bool
		want                   string
	}{
		{"4.2.1", "delayed-plugin", later, false, "warning: messages that wait there are lost with the node that holds them, and no client can read them out"},
		{"4.3.6", "delayed-plugin", later, false, "error: RabbitMQ 4.3 refuses the exchange, and the import of a file with it"},
		{
			"4.3.6", "policy-refused", fmt.Sprintf(policies, `"foo": 1`), false,
			"warning: RabbitMQ refuses the policy, and the import of a file with it",
		},
		{"4.3.6", "policy-refused", fmt.Sprintf(policies, `"foo": 1`), true, ""},
		{
			"4.3.6", "policy-refused", fmt.Sprintf(policies, `"queue-master-locator": "min-masters"`), true,
			"error: RabbitMQ refuses the policy, and the import of a file with it",
		},
		{"4.0.5", "policy-refused", fmt.Sprintf(policies, `"queue-master-locator": "min-masters"`), false, ""},
	} {
		in := read(t, "in.json", fmt.Sprintf(`{"rabbitmq_version": %q, %s}`, tc.version, tc.objects))
		in.Rules = []string{tc.rule}
		if tc.live {
			in.Live = &topology.Live{}
		}
		got := ""
		for _, f := range audit.Run(in).Findings {
			got += fmt.Sprintf("%s: %s", f.Severity, f.Consequence)
		}
		if got != tc.want {
			t.Errorf("%s on %s: %q, want %q", tc.rule, tc.version, got, tc.want)
		}
	}
}

// What differs if the broker chooses the other policy of a tie is said, also if nothing is lost.
func TestTheOtherOutcomeOfATie(t *testing.T) {
	t.Parallel()
	const first = `"dead-letter-exchange": "", "dead-letter-routing-key": "dead"`
	for other, want := range map[string]struct {
		says string
		fate audit.Fate
	}{
		`"dead-letter-exchange": "", "dead-letter-routing-key": "b"`:    {"go to b", audit.Kept},
		`"dead-letter-exchange": "", "dead-letter-routing-key": "wait"`: {"are retried without end", audit.Endless},
		`"dead-letter-exchange": "nowhere"`:                             {"are lost", audit.Undecided},
		`"max-length": 5`:                                               {"are lost", audit.Undecided},
		first + `, "max-length": 5`:                                     {"", audit.Kept},
	} {
		in := read(t, "tie.json", fmt.Sprintf(`{"rabbitmq_version": "4.3.6",
  "exchanges": [{"name": "e", "type": "direct", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}],
  "queues": [
    {"name": "a", "durable": true, "auto_delete": false, "arguments": {}}, {"name": "b", "durable": true, "auto_delete": false, "arguments": {}},
    {"name": "dead", "durable": true, "auto_delete": false, "arguments": {}},
    {"name": "wait", "durable": true, "auto_delete": false,
     "arguments": {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a"}}],
  "bindings": [
    {"source": "e", "destination": "a", "destination_type": "queue", "routing_key": "a", "arguments": {}},
    {"source": "e", "destination": "b", "destination_type": "queue", "routing_key": "b", "arguments": {}}],
  "policies": [
    {"name": "p1", "pattern": "^a$", "apply-to": "queues", "priority": 0, "definition": {%s}},
    {"name": "p2", "pattern": "^a$", "apply-to": "queues", "priority": 0, "definition": {%s}}]}`, first, other))
		in.Rules = []string{"policies-tie"}
		report := audit.Run(in)
		if want.says != "" {
			want.says = "; if it is p2, failed messages of a " + want.says
		}
		if len(report.Findings) != 1 || !strings.HasSuffix(report.Findings[0].Consequence, "with a restart"+want.says) {
			t.Errorf("%s: %+v", other, report.Findings)
		}
		if report.Fates["a"] != want.fate {
			t.Errorf("%s: failed messages of a are %s, want %s", other, report.Fates["a"], want.fate)
		}
		for reported, fate := range map[string]audit.Fate{"p1": want.fate, "p2": lostNow(want.fate)} {
			in.State.QueuePolicies = map[string]string{"a": reported}
			if got := audit.Run(in).Fates["a"]; got != fate {
				t.Errorf("%s: with %s in effect failed messages of a are %s, want %s", other, reported, got, fate)
			}
		}
	}
}

// lostNow is the fate if the broker reports the policy that loses messages.
func lostNow(f audit.Fate) audit.Fate {
	if f == audit.Undecided {
		return audit.Lost
	}
	return f
}

// A tie for the dead-letter queue, or for the alternate exchange of its exchange, decides about the
// failed messages too. A queue that one of the policies dead-letters is not said to have none.
func TestATieElsewhereDecides(t *testing.T) {
	t.Parallel()
	const queues = `{"rabbitmq_version": "4.3.6",
  "exchanges": [{"name": "dlx", "type": "direct", "durable": true, "auto_delete": false, "internal": false, "arguments": {}},
    {"name": "rest", "type": "fanout", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}],
  "queues": [{"name": "a", "durable": true, "auto_delete": false, "arguments": {%s}},
    {"name": "dead", "durable": true, "auto_delete": false, "arguments": {}}],
  "bindings": [{"source": "rest", "destination": "dead", "destination_type": "queue", "routing_key": "", "arguments": {}}],
  "policies": [{"name": "p1", "pattern": "%[2]s", "apply-to": "all", "priority": 0, "definition": {%[3]s}},
    {"name": "p2", "pattern": "%[2]s", "apply-to": "all", "priority": 0, "definition": {%[4]s}}]}`
	for name, text := range map[string]string{
		"the dead-letter queue": fmt.Sprintf(queues, `"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"`,
			"^dead$", `"queue-version": 2`, `"message-ttl": 1000`),
		"an exchange": fmt.Sprintf(queues, `"x-dead-letter-exchange": "dlx"`, "^dlx$", `"alternate-exchange": "rest"`,
			`"alternate-exchange": "nowhere"`),
		"the queue, which one policy dead-letters": fmt.Sprintf(queues, "", "^a$", `"max-length": 5`,
			`"dead-letter-exchange": "", "dead-letter-routing-key": "dead"`),
	} {
		report := audit.Run(read(t, "tie.json", text))
		if report.Fates["a"] != audit.Undecided {
			t.Errorf("%s: failed messages of a are %s", name, report.Fates["a"])
		}
		for _, f := range report.Findings {
			if f.Rule == "no-dead-lettering" {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// A running broker tells how many messages wait in an exchange of the plugin.
func TestDelayedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	in := read(t, "in.json", `{"rabbitmq_version": "4.2.1",
  "exchanges": [{"name": "later", "type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}]}`)
	in.Rules, in.Live = []string{"delayed-plugin"}, &topology.Live{Delayed: map[string]int64{"later": 12}}
	findings := audit.Run(in).Findings
	if want := "exchange of type x-delayed-message; 12 messages wait there now on the node that answered (messages_delayed)"; len(findings) != 1 ||
		findings[0].Evidence != want {
		t.Errorf("%+v, want the evidence %q", findings, want)
	}
}
