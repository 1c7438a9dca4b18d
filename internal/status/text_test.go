package status_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

//nolint:gochecknoglobals // when the reports are read
var read = time.Date(2026, 11, 22, 18, 3, 40, 0, time.UTC)

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldentest.Check(t, filepath.Join("testdata", name), []byte(got))
}

// large is a topology of 1,000 queues in ten teams, and its state when all is well.
func large(t *testing.T) (topology.Compiled, topology.State) {
	t.Helper()
	var b strings.Builder
	b.WriteString("version: 1\nname: acme\ndefaults: {backoff: standard}\n" +
		"backoff: {standard: {tiers: [10s, 1m, 10m]}, patient: {tiers: [30m, 4h]}}\nqueues:\n")
	for i := range 1000 {
		backoff := ""
		if i%100 == 7 {
			backoff = ", backoff: patient"
		}
		fmt.Fprintf(&b, "  - {name: team%d.orders.%03d, owner: team-%d%s}\n", i%10, i, i%10, backoff)
	}
	top := spectest.Compile(t, b.String())
	state := topology.State{
		VHost: "/", Cluster: "rabbit@prod", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{},
	}
	for _, q := range top.Queues {
		state.Usage[q.Name] = topology.Usage{}
		if q.Label.Role == topology.RoleWork || q.Label.Role == topology.RoleFailed {
			state.Usage[q.Name] = topology.Usage{Consumers: 2}
		}
	}
	return top, state
}

// written returns the text of a report, and fails if a line does not fit 80 columns or the whole
// does not fit a screen.
func written(t *testing.T, r status.Report, o status.TextOptions, lines int) string {
	t.Helper()
	var b bytes.Buffer
	o.Width = 80
	if err := status.WriteText(&b, r, o); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := text.Columns(strings.TrimSuffix(line, "\n")); n > 80 && !strings.HasPrefix(line, "  run: ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if n := strings.Count(b.String(), "\n"); n > lines {
		t.Errorf("%d lines", n)
	}
	return b.String()
}

// A healthy topology of 1,000 queues takes a few lines.
func TestAThousandHealthyQueues(t *testing.T) {
	t.Parallel()
	top, state := large(t)
	r := status.Make(top, state, status.Options{At: read})
	if r.Wrong != 0 {
		t.Errorf("problems: %v", r.Problems)
	}
	golden(t, "healthy.txt", written(t, r, status.TextOptions{}, 10))
}

// What is wrong with 1,000 queues fits a screen of 80 columns, most urgent first.
func TestAThousandQueues(t *testing.T) {
	t.Parallel()
	top, state := large(t)
	usage := state.Usage
	for i := range 400 { // a normal load
		name := fmt.Sprintf("team%d.orders.%03d", i%10, i)
		usage[name] = topology.Usage{Ready: int64(i % 5), Unacknowledged: 1, Consumers: 2}
	}
	for i := 600; i < 1000; i += 3 {
		usage[fmt.Sprintf("team%d.orders.%03d", i%10, i)] = topology.Usage{}
	}
	usage["team3.orders.603"] = topology.Usage{Ready: 1_234_567, Oldest: read.Add(-26 * time.Hour)}
	usage["team4.orders.004.dead"] = topology.Usage{Ready: 120}
	usage["team5.orders.005.dead"] = topology.Usage{Ready: 7, Unacknowledged: 2}
	usage["acme.standard.failed"] = topology.Usage{Ready: 41, ConsumersAsked: true}
	usage["acme.standard.retry.10s"] = topology.Usage{Ready: 300}
	usage["acme.unroutable"] = topology.Usage{Ready: 1}
	state.Alarm = "memory alarm on rabbit@prod-1"
	r := status.Make(top, state, status.Options{At: read})
	golden(t, "thousand.txt", written(t, r, status.TextOptions{}, 60))
	golden(t, "thousand_team.txt", written(t, status.Make(top, state, status.Options{
		At: read, Filter: status.Filter{Owners: []string{"team-5"}, Problems: true},
	}), status.TextOptions{Rows: 3}, 40))
}

// Names that do not fit have a line of their own, and names that would upset a terminal are quoted.
func TestLongNames(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s]}}
queues:
  - {name: acme.europe-west.billing.invoices.created.by.the.accounting.department, owner: team-accounting-europe}
  - {name: 注文, owner: 物流}
  - {name: "a\x1b[31mb", owner: "c\x1b[31md"}
`)
	state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{
		"注文": {Ready: 12, Consumers: 1},
	}}
	r := status.Make(top, state, status.Options{At: read})
	got := written(t, r, status.TextOptions{}, 40)
	if strings.Contains(got, "\x1b") {
		t.Errorf("it controls the terminal: %q", got)
	}
	golden(t, "names.txt", got)
}

// With --all each queue has a row, the generated ones too.
func TestAll(t *testing.T) {
	t.Parallel()
	top := shop(t)
	state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{
		"billing": {Ready: 1, Consumers: 3}, "audit": {Consumers: 1}, "mail": {ConsumersUnknown: true},
		"shop.standard.failed": {Consumers: 1}, "shop.standard.retry.1m": {Ready: 5}, "shop.dead": {Ready: 2},
	}}
	r := status.Make(top, state, status.Options{At: read})
	golden(t, "all.txt", written(t, r, status.TextOptions{All: true}, 60))
}

// Of what RabbitMQ delays itself the first due time is shown, where it delays anything now.
func TestNextDue(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
backoff: {steady: {engine: native, tiers: [{delay: 1m, attempts: 3}]}}
queues:
  - {name: billing, backoff: steady}
  - {name: mail, backoff: steady}
  - {name: audit, backoff: steady}
`)
	usage := map[string]topology.Usage{
		"billing": {Unacknowledged: 7, Other: 7, Consumers: 1, NextDue: read.Add(45 * time.Second)},
		"mail":    {Unacknowledged: 2, Other: 1, Consumers: 1, NextDue: read.Add(-time.Second)},
		"audit":   {Unacknowledged: 1, Consumers: 1, NextDue: read.Add(-time.Second)}, // it came back meanwhile
	}
	state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: usage}
	r := status.Make(top, state, status.Options{At: read})
	golden(t, "nextdue.txt", written(t, r, status.TextOptions{}, 60))
}

// Problems are red, notes are yellow, and a report without problems says so in green.
func TestColors(t *testing.T) {
	t.Parallel()
	mark := func(name string) func(string) string {
		return func(s string) string { return "<" + name + ">" + s + "</>" }
	}
	style := text.Style{Create: mark("green"), Danger: mark("red"), Caution: mark("yellow")}
	for want, r := range map[string]status.Report{
		"<green>no problems</>":       {},
		"<red>problem alarm:</> full": {Wrong: 1, Problems: []status.Problem{{Name: "alarm", Text: "full"}}},
		"<yellow>note alarm:</> full": {Problems: []status.Problem{{Name: "alarm", Text: "full", Note: true}}},
		"<red>q":                      {Works: []status.Work{{Name: "q", Problems: []string{"no-consumers"}}}},
	} {
		var b bytes.Buffer
		err := status.WriteText(&b, r, status.TextOptions{Style: style})
		if err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("no %s: %v\n%s", want, err, b.String())
		}
	}
}

// The line about a queue never says of the last hour what a look has not seen.
func TestWhyInOneLine(t *testing.T) {
	t.Parallel()
	number := func(n int) *int { return &n }
	some := []status.Reason{{"PaymentTimeout", 380}, {"bad row <n>", 32}}
	for want, w := range map[string]status.Why{
		"412 in the last hour: PaymentTimeout 380, bad row <n> 32": {
			Messages: 500, LookedAt: 500, InLastHour: number(412), Groups: some,
		},
		"of the 1,000 oldest of 52,000: PaymentTimeout 380, bad row <n> 32": {Messages: 52_000, LookedAt: 1000, Groups: some},
		"2, none of them known to be of the last hour: no cause 2": {
			Messages: 2, LookedAt: 2, InLastHour: number(0), By: "cause", Groups: []status.Reason{{"", 2}},
		},
		`10 in the last hour: a 4, b 3, c\x1b 1, others 2`: {
			LookedAt: 10, InLastHour: number(10), Groups: []status.Reason{{"a", 4}, {"b", 3}, {"c\x1b", 1}, {"d", 1}, {"e", 1}},
		},
		"not looked at: it has consumers": {Messages: 3, NotLookedAt: "it has consumers"},
	} {
		if got := w.String(); got != want {
			t.Errorf("%+v is %q; want %q", w, got, want)
		}
	}
}
