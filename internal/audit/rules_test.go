package audit_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// read returns the only virtual host of definitions.
func read(tb testing.TB, name, text string) audit.Input {
	tb.Helper()
	hosts, err := definitions.Read([]definitions.File{{Name: name, Data: []byte(text)}})
	if err != nil {
		tb.Fatalf("%v\n%s", err, text)
	}
	if len(hosts) != 1 {
		tb.Fatalf("%d virtual hosts in\n%s", len(hosts), text)
	}
	return audit.Input{State: hosts[0].State, Positions: hosts[0].Positions, Oddities: hosts[0].Oddities}
}

// example returns the input that an example of a rule stands for.
func example(tb testing.TB, e audit.Example, rule string) audit.Input {
	tb.Helper()
	in := read(tb, "example.json", e.Definitions)
	in.Live, in.Rules, in.For = e.Live, []string{rule}, e.For
	in.State.Usage, in.State.QueuePolicies = e.Usage, e.QueuePolicies
	if e.Version != "" {
		in.State.Version = e.Version
	}
	return in
}

// Each rule finds the first example of its page, and nothing in the second one.
func TestEachRuleHitsAndMissesItsExamples(t *testing.T) {
	t.Parallel()
	for _, rule := range audit.Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			t.Parallel()
			hits := audit.Run(example(t, rule.Hit, rule.ID)).Findings
			if len(hits) != 1 || hits[0].Rule != rule.ID || hits[0].Severity != rule.Severity {
				t.Errorf("the hit gives %+v, want one %s", hits, rule.Severity)
			}
			for _, f := range hits {
				if f.Evidence == "" || f.Consequence == "" || f.Remedy == "" || f.Object.Name == "" {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if misses := audit.Run(example(t, rule.Miss, rule.ID)).Findings; len(misses) > 0 {
				t.Errorf("the miss gives %+v", misses)
			}
		})
	}
}

// A command of a remedy names a virtual host that is not the default one: it would show, or change,
// what another one has.
func TestRemediesNameTheVirtualHost(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(`^(dlxctl|rabbitmqctl|rabbitmq-queues) `)
	for vhost, named := range map[string]*regexp.Regexp{
		"staging": regexp.MustCompile(` (--vhost|-p) staging\b`),
		"/":       regexp.MustCompile(` (--vhost|-p) / `), // one of several
	} {
		commands := 0
		for _, rule := range audit.Rules() {
			in := example(t, rule.Hit, rule.ID)
			in.State.VHost, in.Several = vhost, vhost == "/"
			for _, f := range audit.Run(in).Findings {
				if !command.MatchString(f.Remedy) || strings.HasSuffix(f.Remedy, "--help") {
					continue
				}
				commands++
				for one := range strings.SplitSeq(f.Remedy, " && ") {
					if !named.MatchString(one + " ") {
						t.Errorf("%s: %s", rule.ID, f.Remedy)
					}
				}
			}
		}
		if commands < 5 {
			t.Errorf("%d remedies are commands", commands)
		}
	}
}

func TestRulesAreDescribed(t *testing.T) {
	t.Parallel()
	rules := audit.Rules()
	if !slices.IsSortedFunc(rules, func(a, b audit.Rule) int { return compare(a.ID, b.ID) }) || len(rules) < 50 {
		t.Errorf("%d rules, not sorted or too few", len(rules))
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.ID] || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(r.ID) {
			t.Errorf("%q is used twice, or is not a name", r.ID)
		}
		seen[r.ID] = true
		if r.Title == "" || r.Why == "" || r.Fix == "" || r.Severity == "" ||
			!json.Valid([]byte(r.Hit.Definitions)) || !json.Valid([]byte(r.Miss.Definitions)) {
			t.Errorf("%s is not described", r.ID)
		}
		if r.Live != (r.Hit.Live != nil) {
			t.Errorf("%s is live, or its example is, and not both", r.ID)
		}
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// summary returns a line for the fates, and one for each finding.
func summary(r audit.Report) []string {
	count := map[audit.Fate]int{}
	for _, f := range r.Fates {
		count[f]++
	}
	out := []string{fmt.Sprintf("kept %d, endless %d, lost %d, unknown %d",
		count[audit.Kept], count[audit.Endless], count[audit.Lost], count[audit.Undecided])}
	for _, f := range r.Findings {
		name := f.Object.Name
		if f.Object.Kind == topology.KindBinding {
			name = "(binding)"
		}
		out = append(out, fmt.Sprintf("%s %s %s: %s => %s", f.Severity, f.Rule, name, f.Evidence, f.Consequence))
	}
	return out
}

// Lines of YAML in a remedy are lines of a topology file.
func TestRemediesInYAMLCompile(t *testing.T) {
	t.Parallel()
	lines := 0
	for _, rule := range audit.Rules() {
		for _, f := range audit.Run(example(t, rule.Hit, rule.ID)).Findings {
			if strings.HasPrefix(f.Remedy, "queues:") || strings.HasPrefix(f.Remedy, "backoff:") {
				lines++
				spectest.Compile(t, "version: 1\nname: shop\n"+f.Remedy+"\n")
			}
		}
	}
	if lines < 7 {
		t.Errorf("only %d remedies are YAML", lines)
	}
}

// A failed queue of dlxctl with messages needs a processor.
func TestAFailedQueueNeedsAProcessor(t *testing.T) {
	t.Parallel()
	in := audit.Input{Live: &topology.Live{Consumers: map[string][]topology.Consumer{}}, Rules: []string{"no-consumers"}}
	in.State.Have = withoutLabels(spectest.Compile(t, `
version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
queues: [{name: billing, backoff: standard}]
`).Topology)
	in.State.Usage = map[string]topology.Usage{"shop.standard.failed": {Ready: 2}, "billing.dead": {Ready: 5}}
	findings := audit.Run(in).Findings
	if len(findings) != 1 || findings[0].Object.Name != "shop.standard.failed" ||
		!strings.Contains(findings[0].Consequence, "no processor is consuming") {
		t.Errorf("got %+v, want one about the failed queue", findings)
	}
}

// On 4.3.6 a return by basic.nack does not count against the delivery limit, as it does on 3.10.8
// and 4.0.5 (measured).
func TestReturnsThatDoNotCount(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"4.0.5": "a message that is returned to billing more than 5 times is lost",
		"4.3.6": "a message that is returned to billing more than 5 times (basic.nack does not count) is lost",
	} {
		in := read(t, "limit.json", `{"queues": [{"name": "billing", "durable": true, "auto_delete": false,
  "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5}}]}`)
		in.State.Version, in.Rules = version, []string{"delivery-limit-into-nothing"}
		findings := audit.Run(in).Findings
		if len(findings) != 1 || findings[0].Consequence != want {
			t.Errorf("%s: %+v, want the consequence %q", version, findings, want)
		}
	}
}

// No replica is added on a node that is down, nor to a queue of which a node is down.
func TestReplicasAreAddedOnNodesThatRun(t *testing.T) {
	t.Parallel()
	in := example(t, audit.Example{Definitions: `{"queues": [
		{"name": "q", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum"}}]}`}, "too-few-replicas")
	const start = "start the nodes that are down, or remove those that are lost with rabbitmqctl forget_cluster_node; " +
		"then run dlxctl audit again"
	for name, tc := range map[string]struct {
		running, replicas []string
		want              string
	}{
		"all run":           {[]string{"a", "b", "c"}, []string{"a"}, "rabbitmq-queues add_member q b && rabbitmq-queues add_member q c"},
		"one is down":       {[]string{"a", "c"}, []string{"a"}, "rabbitmq-queues add_member q c"},
		"only that is left": {[]string{"a", "b"}, []string{"a", "b"}, start},
		"a member is down":  {[]string{"a", "c"}, []string{"a", "b"}, start},
	} {
		in.Live = &topology.Live{
			Nodes: []string{"a", "b", "c"}, Running: tc.running, Replicas: map[string][]string{"q": tc.replicas},
		}
		findings := audit.Run(in).Findings
		if len(findings) != 1 || findings[0].Remedy != tc.want {
			t.Errorf("%s: %+v", name, findings)
		}
	}
}
