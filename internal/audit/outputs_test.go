package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// finding makes a finding about a queue in line n of a file.
func finding(rule string, severity audit.Severity, queue string, n int) audit.Finding {
	return audit.Finding{
		Rule: rule, Severity: severity, VHost: "shop", Object: topology.Key{Kind: topology.KindQueue, Name: queue},
		Evidence:    `x-dead-letter-exchange "dlx" (argument); no binding of exchange dlx takes the key ` + queue,
		Consequence: "a message that a consumer of " + queue + " rejects is lost",
		Remedy:      "rabbitmqadmin declare binding --source dlx --destination " + queue + ".dead",
		Position:    topology.Place{File: "broker/shop definitions.json", Line: n},
	}
}

// report is a virtual host of 80 queues, with findings of several rules.
func report() audit.Report {
	r := audit.Report{VHost: "shop", Version: "4.0.5", Fates: map[string]audit.Fate{}}
	fates := []audit.Fate{audit.Kept, audit.Lost, audit.Kept, audit.Undecided}
	for i := range 80 {
		r.Fates[fmt.Sprintf("team%d.queue%d", i%7, i)] = fates[i%4]
	}
	for i := range 20 {
		r.Findings = append(r.Findings, finding("dead-letter-unrouted", audit.Error, fmt.Sprintf("team%d.queue%d",
			i%7, i), 10+i))
	}
	tie := finding("policies-tie", audit.Error, "billing", 3)
	tie.Object = topology.Key{Kind: topology.KindPolicy, Name: "dlx"}
	tie.Evidence, tie.Consequence = "policies dlx and ttl have priority 0, and both match billing", "which applies is undefined"
	dangling := finding("binding-dangling", audit.Error, "", 4)
	dangling.Object = topology.Binding{
		Source: "events", Destination: "b`q|x", DestinationType: topology.ToQueue, Key: "order.*",
	}.ID()
	dangling.Evidence, dangling.Consequence, dangling.Remedy = "no queue b`q|x", "the binding routes nothing", ""
	late := finding("dead-letter-queue-expires", audit.Warning, "dead", 5)
	late.Fix.Lines = "queues: # in a topology file\n  - {name: dead}"
	late.Remedy = late.Fix.Lines
	r.Findings = append(r.Findings, tie, dangling, late,
		finding("dead-letters-at-most-once", audit.Note, "team1.queue1", 9))
	return r
}

func result() audit.Result {
	r := audit.NewResult([]audit.Report{report()})
	r.Source = "broker/shop definitions.json"
	return r
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.txt": func(b *bytes.Buffer) error { return audit.WriteText(b, result(), audit.TextOptions{}) },
		"report-verbose.txt": func(b *bytes.Buffer) error {
			return audit.WriteText(b, result(), audit.TextOptions{Verbose: true})
		},
		"report.json": func(b *bytes.Buffer) error {
			return jsondoc.Write(b, audit.Document{Result: result(), Program: "1.2.3"})
		},
		"report.md":    func(b *bytes.Buffer) error { return audit.WriteMarkdown(b, result()) },
		"baseline.yml": func(b *bytes.Buffer) error { return audit.WriteBaseline(b, result()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			goldentest.Check(t, "testdata/"+name, b.Bytes())
		})
	}
}

// The text of 80 queues fits a screen, but for commands that are to be pasted.
func TestTextFitsAScreen(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := audit.WriteText(&b, result(), audit.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if len(lines) > 40 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 && !strings.HasPrefix(line, "    fix") {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
}

// Colors change no character.
func TestColors(t *testing.T) {
	t.Parallel()
	paint := func(s string) string { return "\x1b[31m" + s + "\x1b[0m" }
	style := text.Style{Blocked: paint, Caution: paint, Strong: paint, Create: paint}
	var plain, colored bytes.Buffer
	if err := audit.WriteText(&plain, result(), audit.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := audit.WriteText(&colored, result(), audit.TextOptions{Style: style}); err != nil {
		t.Fatal(err)
	}
	bare := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(colored.String())
	if bare == colored.String() {
		t.Error("nothing is colored")
	}
	if d := cmp.Diff(plain.String(), bare); d != "" {
		t.Errorf("without its colors (-want +got):\n%s", d)
	}
}

// A name from a broker controls no terminal.
func TestNamesAreHarmless(t *testing.T) {
	t.Parallel()
	r := report()
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Object.Name += "\x1b[2J"
		f.Evidence += "\x1b[2J"
		f.Position.File += "\x1b[2J"
	}
	for _, verbose := range []bool{false, true} {
		var b bytes.Buffer
		if err := audit.WriteText(&b, audit.NewResult([]audit.Report{r}), audit.TextOptions{Verbose: verbose}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("the text has a control character:\n%q", b.String())
		}
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	for want, fates := range map[string]map[string]audit.Fate{
		"there are no work queues whose messages could fail":                     nil,
		"failed messages are kept in the only work queue":                        {"a": audit.Kept},
		"failed messages are lost in all 2 work queues":                          {"a": audit.Lost, "b": audit.Lost},
		"failed messages are kept in 0 of 1 work queue, lost in 0, unknown in 1": {"a": audit.Undecided},
		"failed messages are kept in 1 of 3 work queues, lost in 1, unknown in 1": {
			"a": audit.Kept, "b": audit.Lost, "c": audit.Undecided,
		},
	} {
		if got := audit.NewResult([]audit.Report{{Fates: fates}}).Score(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// sarif writes a result as SARIF, and checks it against the schema of OASIS.
func sarif(t *testing.T, r audit.Result) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := audit.WriteSARIF(&b, r, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile("testdata/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("not valid SARIF: %#v", err)
	}
	return b.Bytes()
}

func TestSARIF(t *testing.T) {
	t.Parallel()
	baseline, err := audit.ReadBaseline("b.yml", nil)
	if err != nil {
		t.Fatal(err)
	}
	baseline.Entries = []audit.Entry{{Rule: "dead-letter-queue-expires", Object: "dead", Reason: "archived nightly"}}
	var log struct {
		Runs []struct {
			Results []struct {
				RuleID       string
				Level        string
				Suppressions []any
				Locations    []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
					LogicalLocations []struct{ FullyQualifiedName string }
				}
			}
		}
	}
	if err := json.Unmarshal(sarif(t, baseline.Apply([]audit.Report{report()}, time.Now())), &log); err != nil {
		t.Fatal(err)
	}
	results := log.Runs[0].Results
	if len(results) != len(report().Findings) {
		t.Fatalf("%d results for %d findings", len(results), len(report().Findings))
	}
	at := results[0].Locations[0]
	if at.PhysicalLocation.ArtifactLocation.URI != "broker/shop%20definitions.json" ||
		at.PhysicalLocation.Region.StartLine != 10 ||
		at.LogicalLocations[0].FullyQualifiedName != "shop/team0.queue0" || results[0].Level != "error" {
		t.Errorf("the first result is %+v", results[0])
	}
	for _, r := range results {
		if accepted := r.RuleID == "dead-letter-queue-expires"; accepted != (len(r.Suppressions) == 1) {
			t.Errorf("%s has %d suppressions", r.RuleID, len(r.Suppressions))
		}
	}
}

// A live broker has no files: the locations are logical.
func TestSARIFOfABroker(t *testing.T) {
	t.Parallel()
	r := report()
	for i := range r.Findings {
		r.Findings[i].Position = topology.Place{}
	}
	if out := sarif(t, audit.NewResult([]audit.Report{r})); bytes.Contains(out, []byte("physicalLocation")) {
		t.Error("a result has a file")
	}
	sarif(t, audit.NewResult(nil))
}
