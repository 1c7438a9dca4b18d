package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/topology"
)

// failer is a test, or one run of a property test.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// worst returns the worst severity of the findings of each rule about each object.
func worst(r audit.Report) map[[2]any]int {
	out := map[[2]any]int{}
	for _, f := range r.Findings {
		key := [2]any{f.Rule, f.Object}
		rank := slices.Index(audit.Severities(), f.Severity)
		if have, ok := out[key]; !ok || rank < have {
			out[key] = rank
		}
	}
	return out
}

// checkChanges requires that changes remove findings, add no error and no warning, and let no queue
// lose messages that it kept.
func checkChanges(t failer, in audit.Input, before audit.Report, fixed []audit.Finding, changes []audit.Change) {
	t.Helper()
	in.State = audit.Apply(in.State, changes)
	report := audit.Untried(in)
	was, is := worst(before), worst(report)
	for _, f := range fixed {
		if _, there := is[[2]any{f.Rule, f.Object}]; there {
			t.Fatalf("%s of %s is still there after its fix:\n%s", f.Rule, f.DisplayName(), f.Remedy)
		}
	}
	for key, rank := range is {
		if had, there := was[key]; rank < 2 && (!there || rank < had) {
			t.Fatalf("the fix of %s adds %v:\n%s", fixed[0].Rule, key, fixed[0].Remedy)
		}
	}
	bad := []audit.Fate{audit.Kept, audit.Endless, audit.Undecided, audit.Lost}
	for name, fate := range report.Fates {
		if had, there := before.Fates[name]; there && slices.Index(bad, fate) > slices.Index(bad, had) {
			t.Fatalf("failed messages of %s were %s, and are %s after the fix of %s:\n%s", name, had, fate, fixed[0].Rule, fixed[0].Remedy)
		}
	}
}

// shares reports whether two fixes change the same object.
func shares(a, b audit.Fix) bool {
	return slices.ContainsFunc(a.Changes, func(c audit.Change) bool {
		return slices.ContainsFunc(b.Changes, func(o audit.Change) bool { return o.Object.ID() == c.Object.ID() })
	})
}

// checkFixes requires of all fixes of an audit what they promise, alone and together. It returns
// how many there are.
func checkFixes(t failer, in audit.Input) int {
	t.Helper()
	before := audit.Run(in)
	var all []audit.Change
	var fixed []audit.Finding
	for _, f := range before.Findings {
		if len(f.Fix.Changes) == 0 {
			if strings.Contains(f.Remedy, "curl") || f.Remedy == "" {
				t.Fatalf("%s of %s has commands that were not tried: %q", f.Rule, f.DisplayName(), f.Remedy)
			}
			continue
		}
		checkChanges(t, in, before, []audit.Finding{f}, f.Fix.Changes)
		for _, other := range fixed {
			if f.Fix.Lines != other.Fix.Lines && min(len(f.Fix.Lines), len(other.Fix.Lines)) > 0 && shares(f.Fix, other.Fix) {
				t.Fatalf("%s and %s of %s want two things of one file:\n%s\n%s", other.Rule, f.Rule, f.DisplayName(),
					other.Fix.Lines, f.Fix.Lines)
			}
		}
		all, fixed = append(all, f.Fix.Changes...), append(fixed, f)
	}
	if len(fixed) > 0 {
		checkChanges(t, in, before, fixed, all)
	}
	return len(fixed)
}

func TestFixesOfRealDefinitions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/real/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range append(files, "../../testdata/genomics/legacy.json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := checkFixes(t, read(t, file, string(data))); n == 0 {
				t.Error("no finding has a fix")
			}
		})
	}
}

// The examples of the rules, too, have fixes that hold.
func TestFixesOfExamples(t *testing.T) {
	t.Parallel()
	for _, rule := range audit.Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			t.Parallel()
			in := example(t, rule.Hit, rule.ID)
			in.Rules = nil
			checkFixes(t, in)
		})
	}
}

func BenchmarkFixes(b *testing.B) {
	data, err := os.ReadFile("../../testdata/real/ons-census-rm.json")
	if err != nil {
		b.Fatal(err)
	}
	in := read(b, "real.json", string(data))
	b.Run("audit", func(b *testing.B) {
		for b.Loop() {
			audit.Untried(in)
		}
	})
	b.Run("fixes", func(b *testing.B) {
		for b.Loop() {
			audit.Run(in)
		}
	})
}

// advice is what audit says of a finding in definitions.
type advice struct {
	definitions  string
	rule, object string
	want         []string // parts of the remedy, in order
}

// advices are topologies like those of others, in which advice of audit did harm or did not work.
func advices() map[string]advice {
	const (
		keyed    = `"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "billing"`
		byName   = `"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"`
		byPolicy = `"dead-letter-exchange": "", "dead-letter-routing-key": "dlq"`
		curl     = "curl -fsS -X "
		api      = ` "$RABBITMQ_API_URL/api/`
	)
	bindingTo := func(from, to, key string) string {
		return `{"source": "` + from + `", "destination": "` + to + `", "destination_type": "queue", "routing_key": "` +
			key + `"}`
	}
	binding := func(from, key string) string { return bindingTo(from, "billing", key) }
	definitions := func(exchanges, queues, bindings, policies string) string {
		return `{"rabbitmq_version": "4.3.6", "exchanges": [` + exchanges + `], "queues": [` + queues +
			`], "bindings": [` + bindings + `], "policies": [` + policies + `]}`
	}
	exchange := func(name, kind string) string {
		return `{"name": "` + name + `", "type": "` + kind + `", "durable": true, "auto_delete": false, "internal": false, "arguments": {}}`
	}
	queue := func(name, arguments string) string {
		return `{"name": "` + name + `", "durable": true, "auto_delete": false, "arguments": {` + arguments + `}}`
	}
	pol := func(name, pattern, definition string) string {
		return `{"name": "` + name + `", "pattern": "` + pattern + `", "apply-to": "queues", "priority": 0, ` +
			`"definition": {` + definition + `}}`
	}
	return map[string]advice{
		"the dead-letter queue is declared before it is bound": {
			definitions(exchange("dlx", "direct"), queue("billing", keyed), "", ""), "dead-letter-unrouted", "billing",
			[]string{curl + "PUT" + api + `queues/%2F/billing.dead"`, " &&\n" +
				curl + "POST" + api + `bindings/%2F/e/dlx/q/billing.dead"`},
		},
		"where a retry queue should return messages is for a person to decide": {
			definitions(exchange("events", "topic"),
				queue("billing", `"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.retry"`)+", "+
					queue("billing.retry", `"x-message-ttl": 1000, "x-dead-letter-exchange": "back"`),
				binding("events", "order.*"), ""), "dead-letter-exchange-missing", "billing.retry",
			[]string{"decide to which queue the messages that wait in billing.retry should go, declare the exchange back, and bind"},
		},
		"a missing target of a retry queue is not a dead-letter queue": {
			definitions(exchange("events", "topic"),
				queue("billing", `"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.retry"`)+", "+
					queue("billing.retry", `"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "biling"`),
				binding("events", "order.*"), ""), "dead-letter-queue-missing", "billing.retry",
			[]string{"decide to which queue the messages that wait in billing.retry should go: declare the queue biling as"},
		},
		"no queue can be bound to the default exchange": {
			definitions(exchange("events", "topic")+", "+exchange("dlx", "fanout"),
				queue("billing", `"x-dead-letter-exchange": "dlx"`)+", "+
					queue("billing.retry", `"x-message-ttl": 1000, "x-dead-letter-exchange": ""`),
				binding("events", "order.placed")+", "+bindingTo("dlx", "billing.retry", ""), ""),
			"dead-letter-queue-missing", "billing.retry",
			[]string{"decide to which queue the messages that wait in billing.retry should go, and set its name as the"},
		},
		"the dead-letter queue that exists is bound": {
			definitions(exchange("dlx", "direct"), queue("billing", keyed)+", "+queue("billing_dlq", ""), "", ""),
			"dead-letter-unrouted", "billing",
			[]string{curl + "POST" + api + `bindings/%2F/e/dlx/q/billing_dlq"`},
		},
		"a pattern is not a key of a direct exchange: a policy sets a key": {
			definitions(exchange("dlx", "direct")+", "+exchange("logs", "topic"),
				queue("billing", `"x-dead-letter-exchange": "dlx"`),
				binding("logs", "logs.*"), ""), "dead-letter-unrouted", "billing",
			[]string{
				`queues/%2F/billing.dead"`, `{"arguments":{},"routing_key":"billing"}`,
				`policies/%2F/billing-only"`, `"dead-letter-routing-key":"billing"`,
			},
		},
		"queues without keys share a dead-letter queue, as each would get the dead letters of the others": {
			definitions(exchange("dlx", "fanout"),
				queue("a", `"x-dead-letter-exchange": "dlx"`)+", "+queue("b", `"x-dead-letter-exchange": "dlx"`), "", ""),
			"dead-letter-unrouted", "b",
			[]string{`queues/%2F/dlx.dead"`, `bindings/%2F/e/dlx/q/dlx.dead"`},
		},
		"an exchange that is not durable is not deleted": {
			definitions(`{"name": "events", "type": "topic", "durable": false, "auto_delete": false, "internal": false, "arguments": {}}`,
				queue("billing", ""), binding("events", "#"), ""), "not-durable", "events",
			[]string{"decide when publishers can use a durable exchange of another name"},
		},
		"a queue that expires and drops gets one policy for both": {
			definitions("", queue("billing", byName)+", "+queue("dlq", ""), "",
				pol("limits", ".*", `"message-ttl": 1000, "max-length": 5`)),
			"dead-letter-queue-expires", "dlq",
			[]string{`policies/%2F/limits"`, `"pattern":"^(?!dlq$)`},
		},
		"and so does the other finding": {
			definitions("", queue("billing", byName)+", "+queue("dlq", ""), "",
				pol("limits", ".*", `"message-ttl": 1000, "max-length": 5`)),
			"dead-letter-queue-drops", "dlq",
			[]string{`policies/%2F/limits"`, `"pattern":"^(?!dlq$)`},
		},
		"which policy of a tie is in effect is not known of a file": {
			definitions("", queue("billing", "")+", "+queue("billing.dlq", "")+", "+queue("reports", byName)+", "+
				queue("dlq", ""), "",
				pol("dlq", "^billing$", `"dead-letter-exchange": "", "dead-letter-routing-key": "billing.dlq"`)+", "+
					pol("ttl", "^(?:billing|reports)$", `"message-ttl": 86400000`)),
			"policies-tie", "ttl",
			[]string{"decide which policy is meant for billing, and give it a higher priority"},
		},
		"a dead-letter queue that dead-letters to itself gets no dead-letter queue": {
			definitions("", queue("billing", byName)+", "+queue("dlq", ""), "", pol("loop", "^dlq$", byPolicy)),
			"dead-letters-to-itself", "dlq",
			[]string{curl + "DELETE" + api + `policies/%2F/loop"`},
		},
		"a policy that gets the keys of another one says for whom": {
			definitions("", queue("billing", "")+", "+queue("billing.dlq", ""), "",
				pol("dlq", "^billing$", `"dead-letter-exchange": "", "dead-letter-routing-key": "billing.dlq"`)+", "+
					strings.Replace(pol("limit", "^billing$", `"max-length": 100000`), `"priority": 0`, `"priority": 5`, 1)),
			"policy-shadowed", "dlq",
			[]string{
				"# copies dead-letter-exchange, dead-letter-routing-key of dlq into limit, for all that it matches: decide first",
				"\n" + curl + "PUT" + api + `policies/%2F/limit"`,
			},
		},
		"a loop that the delivery limit ends gets a successor, not a queue without a limit": {
			definitions(exchange("events", "topic"),
				queue("billing", `"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"`)+", "+
					queue("wait", `"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing"`),
				binding("events", "#"), ""),
			"cycle-cut", "billing",
			[]string{"  - {name: billing.v2, type: quorum, replaces: billing, backoff: standard}"},
		},
		"a dead-letter queue that is not durable": {
			definitions("", queue("billing", byName)+`, {"name": "dlq", "durable": false, "auto_delete": false, "arguments": {}}`, "", ""),
			"dead-letter-queue-not-durable", "dlq",
			[]string{"decide when dlq can be declared as durable"},
		},
		"a queue that a migration has replaced is not declared again": {
			definitions("", queue("wait", `"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing"`)+", "+
				queue("billing.v2", ""), "", ""), "dead-letter-queue-missing", "wait",
			[]string{"decide where dead letters of wait should go: billing seems to be replaced by billing.v2"},
		},
		"the new binding is there before the previous one goes": {
			definitions(exchange("events", "fanout"),
				queue("billing", byName)+", "+queue("dlq", ""), binding("events", "a.b"), ""),
			"key-on-fanout", "events -> billing (a.b)",
			[]string{
				curl + "POST" + api + `bindings/%2F/e/events/q/billing" -d '{"arguments":{},"routing_key":""}'` + " &&\n",
				curl + "DELETE" + api + `bindings/%2F/e/events/q/billing/a%252Eb"`,
			},
		},
		"a retry queue gets the lost keys of its own work queue, and not the dead letters of another": {
			definitions(exchange("orders", "topic")+", "+exchange("dlx", "topic"),
				queue("work", `"x-dead-letter-exchange": "dlx"`)+", "+queue("billing", `"x-dead-letter-exchange": "dlx"`)+", "+
					queue("work.wait", `"x-message-ttl": 20000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"`)+", "+
					queue("deadbox", ""),
				bindingTo("orders", "work", "w.*")+", "+binding("orders", "b.*")+", "+
					bindingTo("dlx", "work.wait", "w.*")+", "+bindingTo("dlx", "deadbox", "b.*"), ""),
			"dead-letter-partly-unrouted", "work",
			[]string{`bindings/%2F/e/dlx/q/work.wait" -d '{"arguments":{},"routing_key":"work"}'`},
		},
		"a dead-letter queue at an exchange of the business gets dead letters alone": {
			definitions(exchange("events", "topic"),
				queue("billing", `"x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "failed"`)+", "+
					queue("reports", `"x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "failed"`),
				binding("events", "order.*")+", "+bindingTo("events", "reports", "order.paid"), ""),
			"dead-letter-unrouted", "billing",
			[]string{`bindings/%2F/e/events/q/events.dead" -d '{"arguments":{},"routing_key":"failed"}'`},
		},
		"a binding of a pattern on a direct exchange": {
			definitions(exchange("events", "direct"),
				queue("billing", ""), binding("events", "logs.*"), ""), "wildcard-on-direct",
			"events -> billing (logs.*)",
			[]string{"decide which keys billing should get"},
		},
	}
}

// A broker tells which policy of a tie is in effect. The fix keeps it, and says so. Where that
// makes a dead-letter queue dead-letter to itself, a person decides.
func TestTheFixOfATieSaysWhatItKeeps(t *testing.T) {
	t.Parallel()
	const host = `{"rabbitmq_version": "4.3.6",
  "queues": [{"name": "a", "durable": true, "auto_delete": false, "arguments": {}},
    {"name": "a.dlq", "durable": true, "auto_delete": false, "arguments": {}},
    {"name": "b", "durable": true, "auto_delete": false, "arguments": {}}],
  "policies": [
    {"name": "dlq", "pattern": %q, "apply-to": "queues", "priority": 0,
     "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "a.dlq"}},
    {"name": "limit", "pattern": %q, "apply-to": "queues", "priority": 0, "definition": {"max-length": 100000}}]}`
	for name, tc := range map[string]struct{ dlq, limit, want string }{
		"one queue": {
			"^a$", "^[ab]$", "# keeps what is in effect now, without limit: decide first whether that is meant\ncurl ",
		},
		"the dead-letter queue too": {
			"^a", ".*", "decide which policy is meant for a, a.dlq",
		},
	} {
		in := read(t, "tie.json", fmt.Sprintf(host, tc.dlq, tc.limit))
		in.Live, in.State.QueuePolicies = &topology.Live{}, map[string]string{"a": "dlq", "a.dlq": "dlq", "b": "limit"}
		checkFixes(t, in)
		i := slices.IndexFunc(audit.Run(in).Findings, func(f audit.Finding) bool { return f.Rule == "policies-tie" })
		if i < 0 || !strings.HasPrefix(audit.Run(in).Findings[i].Remedy, tc.want) {
			t.Errorf("%s: %+v", name, audit.Run(in).Findings)
		}
	}
}

// What audit says now. A fix that is a list of changes is tried by checkFixes.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for name, tc := range advices() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := read(t, "advice.json", tc.definitions)
			checkFixes(t, in)
			for _, f := range audit.Run(in).Findings {
				if f.Rule != tc.rule || f.DisplayName() != tc.object {
					continue
				}
				rest := f.Remedy
				for _, part := range tc.want {
					_, after, found := strings.Cut(rest, part)
					if !found {
						t.Errorf("the remedy lacks %q:\n%s", part, f.Remedy)
					}
					rest = after
				}
				return
			}
			t.Errorf("no finding %s of %s", tc.rule, tc.object)
		})
	}
}

// A queue that dead-letters its oldest messages when it is full is not made to refuse messages:
// publishers without confirms would lose them. One that refuses them already is made to dead-letter
// at least once.
func TestNoFixMakesAQueueRefuseWhatItDeadLetters(t *testing.T) {
	t.Parallel()
	const limit, words = `, "x-max-length": 1000`, "decide whether all publishers of billing use confirms, and set "
	for name, tc := range map[string]struct{ rule, object, arguments, policies, want string }{
		"at most once": {
			"dead-letters-at-most-once", "billing", limit, "",
			words + "dead-letter-strategy at-least-once and overflow reject-publish by a policy only if they do: when the queue is full (x-max-length 1000 (argument))",
		},
		"at least once, not in effect": {
			"at-least-once-not-in-effect", "billing", limit + `, "x-dead-letter-strategy": "at-least-once"`, "",
			words + "overflow reject-publish by a policy",
		},
		"an overflow that is not supported": {
			"overflow-not-supported", "billing", limit + `, "x-overflow": "reject-publish-dlx"`, "",
			words + "overflow reject-publish by a policy",
		},
		"a key of another policy": {
			"policy-shadowed", "full", limit,
			policyOf("full", 0, `"overflow": "reject-publish"`) + ", " + policyOf("top", 5, `"consumer-timeout": 3600000`),
			"decide which keys of full the queues should have",
		},
		"one that refuses already": {
			"dead-letters-at-most-once", "billing", limit + `, "x-overflow": "reject-publish"`, "", "curl -fsS -X PUT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := read(t, "full.json", `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "billing.dead"`+tc.arguments+`}},
  {"name": "billing.dead", "durable": true, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 2147483647}}],
 "policies": [`+tc.policies+`]}`)
			checkFixes(t, in)
			wantRemedy(t, in, tc.rule, tc.object, tc.want)
		})
	}
}

// policyOf returns the definition of a policy for the queue billing.
func policyOf(name string, priority int, definition string) string {
	return fmt.Sprintf(`{"name": %q, "pattern": "^billing$", "apply-to": "queues", "priority": %d, "definition": {%s}}`,
		name, priority, definition)
}

// wantRemedy requires that the remedy of one finding begins so.
func wantRemedy(t *testing.T, in audit.Input, rule, object, want string) {
	t.Helper()
	for _, f := range audit.Run(in).Findings {
		if f.Rule == rule && f.DisplayName() == object {
			if !strings.HasPrefix(f.Remedy, want) {
				t.Errorf("the remedy does not begin with %q:\n%s", want, f.Remedy)
			}
			return
		}
	}
	t.Errorf("no finding %s of %s", rule, object)
}
