package audit_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/audit"
)

func TestBaseline(t *testing.T) {
	t.Parallel()
	b := audit.Baseline{Entries: []audit.Entry{
		{Rule: "dead-letter-unrouted", Object: "team0.queue0", VHost: "shop", Reason: "r", Until: "2026-11-22"},
		{Rule: "dead-letter-unrouted", Object: "team1.queue1", Reason: "r", Until: "2026-11-21"},
		{Rule: "dead-letter-unrouted", Object: "team2.queue3", VHost: "shop", Reason: "r"},
		{Rule: "binding-dangling", Object: "events -> b`q|x (order.*)", Reason: "r"},
	}}
	now := time.Date(2026, 11, 22, 23, 59, 0, 0, time.UTC)
	r := b.Apply([]audit.Report{report()}, now)
	if len(r.Accepted) != 2 || len(r.Findings) != len(report().Findings)-2 {
		t.Errorf("%d accepted, %d count", len(r.Accepted), len(r.Findings))
	}
	if len(r.Expired) != 1 || r.Expired[0].Object != "team1.queue1" {
		t.Errorf("expired: %+v", r.Expired)
	}
	if len(r.Unmatched) != 1 || r.Unmatched[0].Object != "team2.queue3" {
		t.Errorf("unmatched: %+v", r.Unmatched)
	}
	if !r.Fails(audit.Error) {
		t.Error("the other errors do not count")
	}
	var text bytes.Buffer
	if err := audit.WriteText(&text, r, audit.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 findings accepted by the baseline",
		"the baseline accepted dead-letter-unrouted of team1.queue1 until 2026-11-21; it\n  counts again",
		"the baseline accepts dead-letter-unrouted of team2.queue3, which is not found;",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

// A baseline that was written is read, and accepts everything.
func TestWrittenBaselineAcceptsAll(t *testing.T) {
	t.Parallel()
	known := report()
	known.Findings = nil
	for _, rule := range audit.Rules() {
		known.Findings = append(known.Findings, finding(rule.ID, rule.Severity, `odd "name": #1`, 1), finding(rule.ID,
			rule.Severity, "- x", 1))
	}
	var b bytes.Buffer
	if err := audit.WriteBaseline(&b, audit.NewResult([]audit.Report{known})); err != nil {
		t.Fatal(err)
	}
	baseline, err := audit.ReadBaseline("b.yml", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := baseline.Apply([]audit.Report{known}, time.Now())
	if len(r.Findings) > 0 || len(r.Unmatched) > 0 || len(r.Accepted) != len(known.Findings) {
		t.Errorf("%d still count, %d entries match nothing", len(r.Findings), len(r.Unmatched))
	}
}

// A written baseline accepts neither a finding about an exchange that is named like a queue, nor
// one that has become worse.
func TestBaselineHidesNoNewFinding(t *testing.T) {
	t.Parallel()
	const definitions = `{"exchanges": [{"name": "billing", "type": "fanout", "durable": %t, "auto_delete": false},
  {"name": "dlx", "type": "direct", "durable": true, "auto_delete": false}],
 "queues": [
  {"name": "billing", "durable": false, "auto_delete": false, "arguments": {"x-dead-letter-exchange": "dlx"}},
  {"name": "dead", "durable": true, "auto_delete": false, "arguments": {}}],
 "bindings": [
  {"source": "billing", "destination": "billing", "destination_type": "queue", "routing_key": ""},
  {"source": "dlx", "destination": "dead", "destination_type": "queue", "routing_key": "order"}%s]}`
	before := read(t, "before.json", fmt.Sprintf(definitions, true, ""))
	after := read(t, "after.json", fmt.Sprintf(definitions, false, `,
  {"source": "amq.direct", "destination": "billing", "destination_type": "queue", "routing_key": "invoice"}`))
	var b bytes.Buffer
	if err := audit.WriteBaseline(&b, audit.NewResult([]audit.Report{audit.Run(before)})); err != nil {
		t.Fatal(err)
	}
	baseline, err := audit.ReadBaseline("b.yml", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := baseline.Apply([]audit.Report{audit.Run(after)}, time.Now())
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s %s %s", f.Severity, f.Rule, f.Object.Kind, f.Object.Name))
	}
	want := []string{"error dead-letter-partly-unrouted queue billing", "warning not-durable exchange billing"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings that count (-want +got):\n%s", d)
	}
	if len(r.Unmatched) > 0 {
		t.Errorf("entries that match nothing: %+v", r.Unmatched)
	}
}

// An audit cannot tell of an entry whose rule did not run, or whose virtual host was not read. It
// does not ask to remove the entry, writes it again, and does not count the loss that it accepts.
func TestBaselineOfWhatWasNotChecked(t *testing.T) {
	t.Parallel()
	in := read(t, "d.json", `{"queues": [
  {"name": "billing", "vhost": "a", "durable": true, "auto_delete": false, "arguments": {}},
  {"name": "mail", "vhost": "a", "durable": true, "auto_delete": false, "arguments": {"x-dead-letter-exchange": "dlx"}}],
 "exchanges": [{"name": "dlx", "vhost": "a", "type": "direct", "durable": true, "auto_delete": false}],
 "bindings": []}`)
	const file = `
- {rule: dead-letter-unrouted, object: mail, vhost: a, reason: known}
- {rule: no-dead-lettering, object: billing, vhost: a, reason: meant so}
- {rule: no-consumers, object: mail, vhost: a, reason: it runs at night}
- {rule: no-dead-lettering, object: billing, vhost: b, reason: elsewhere}
`
	const over = "- {rule: no-dead-lettering, object: billing, vhost: a, until: 2026-01-01, reason: for a year}\n"
	const gone = "- {rule: dead-letter-unrouted, object: post, vhost: a, reason: it is gone}\n"
	for name, tc := range map[string]struct {
		file            string
		rules           []string
		line            string
		loses           bool
		unmatched, kept int
	}{
		"all rules":            {file: file, kept: 4},
		"one rule":             {file: file, rules: []string{"dead-letter-unrouted"}, kept: 4},
		"no rule":              {file: file, rules: []string{}, kept: 4},
		"an upgrade":           {file: file, line: "4.3", kept: 4},
		"of a rule that runs":  {file: file + gone, rules: []string{"dead-letter-unrouted"}, unmatched: 1, kept: 4},
		"one that has expired": {file: over, rules: []string{"no-consumers"}, loses: true, kept: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			baseline, err := audit.ReadBaseline("b.yml", []byte(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			in := in
			in.Rules, in.For = tc.rules, tc.line
			r := baseline.Apply([]audit.Report{audit.Run(in)}, time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
			if len(r.Unmatched) != tc.unmatched || len(r.Expired) > 0 || r.Loses() != tc.loses {
				t.Errorf("unmatched: %+v, expired: %+v, loses: %t", r.Unmatched, r.Expired, r.Loses())
			}
			var b bytes.Buffer
			if err := audit.WriteBaseline(&b, r); err != nil {
				t.Fatal(err)
			}
			written, err := audit.ReadBaseline("b.yml", b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			kept := slices.DeleteFunc(written.Entries, func(e audit.Entry) bool {
				return !strings.Contains(tc.file, "reason: "+e.Reason+"}")
			})
			if len(kept) != tc.kept {
				t.Errorf("%d entries are kept, not %d:\n%s", len(kept), tc.kept, b.String())
			}
		})
	}
}

func TestReadBaselineRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ data, want string }{
		"no list":   {"rule: x\n", "b.yml: it is not a list; write a list of entries with rule, object and reason"},
		"no object": {"- x\n", "b.yml:1: an entry is not an object; write rule, object and reason"},
		"unknown key": {
			"- {rule: r, objects: q}\n",
			`b.yml:1: an entry has no key "objects"; the keys are rule, object, kind, severity, vhost, reason, until`,
		},
		"nothing in it": {"\n- {}\n", "b.yml:2: an entry has no rule; each entry needs rule, object and reason"},
		"no reason": {
			"- {rule: r, object: q}\n",
			"b.yml:1: an entry has no reason; each entry needs rule, object and reason",
		},
		"not a rule": {
			`[{"rule": "r", "object": "q", "reason": "why"}]`,
			`b.yml:1: there is no rule "r"; 'dlxctl audit --rules' lists them`,
		},
		"not a kind": {
			"- {rule: not-durable, object: q, reason: r, kind: topic}\n",
			`b.yml:1: kind is "topic"; write queue, exchange, binding or policy`,
		},
		"not a severity": {
			"- {rule: not-durable, object: q, reason: r, severity: bad}\n",
			`b.yml:1: severity is "bad"; write error, warning or note`,
		},
		"a list as value": {
			"- {rule: [], object: q, reason: r}\n",
			"b.yml:1: a value of an entry is not text; write it in quotes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := audit.ReadBaseline("b.yml", []byte(tc.data))
			if err == nil {
				t.Fatal("it was read")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("error (-want +got):\n%s", d)
			}
		})
	}
	if b, err := audit.ReadBaseline("b.yml", nil); err != nil || len(b.Entries) != 0 {
		t.Errorf("an empty baseline: %+v, %v", b, err)
	}
}
