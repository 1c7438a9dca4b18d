package planview_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// company compiles the four files of testdata/company, with texts replaced: pairs of old and new.
func company(t *testing.T, edits ...string) topology.Compiled {
	t.Helper()
	paths, err := filepath.Glob("../../testdata/company/*.yaml")
	if err != nil || len(paths) != 4 {
		t.Fatalf("the company has the files %v: %v", paths, err)
	}
	var files []spec.Source
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, spec.Source{Name: filepath.Base(path), Data: data})
	}
	for i := 0; i < len(edits); i += 2 {
		found := 0
		for f := range files {
			found += bytes.Count(files[f].Data, []byte(edits[i]))
			files[f].Data = bytes.Replace(files[f].Data, []byte(edits[i]), []byte(edits[i+1]), 1)
		}
		if found != 1 {
			t.Fatalf("%q stands %d times in the files of the company", edits[i], found)
		}
	}
	top, _, err := spec.Load(files, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// running returns a broker that has what the company has, and the queue and exchange that others
// declare. Without have it has only these.
func running(have *topology.Compiled) topology.State {
	state := topology.State{Version: "4.3.6", Cluster: "eu-1", VHost: "/", Usage: map[string]topology.Usage{}}
	if have != nil {
		state.Have = have.Topology
		state.Have.Exchanges, state.Have.Queues = nil, nil
		for _, e := range have.Exchanges {
			if !e.External {
				state.Have.Exchanges = append(state.Have.Exchanges, e)
			}
		}
		for _, q := range have.Queues {
			if !q.External {
				state.Have.Queues = append(state.Have.Queues, q)
			}
		}
	}
	state.Have.Exchanges = append(state.Have.Exchanges, topology.Exchange{
		Name: "legacy.bus", Type: topology.Topic, Durable: true,
	})
	for name, typ := range map[string]string{"crm.inbox": topology.Quorum, "shipping.warehouse": topology.Classic} {
		state.Have.Queues = append(state.Have.Queues, topology.Queue{
			Name: name, Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: typ},
		})
	}
	return state
}

// companyEdits are what a busy week changes: texts of the files, old and new.
func companyEdits() []string {
	return []string{
		"standard: {tiers: [10s, 1m, 10m]}", "standard: {tiers: [10s, 2m, 20m]}",
		"name: billing.tax\n", "name: billing.taxes\n",
		"  - name: billing.fx\n    owner: team-billing\n" +
			"    bindings: [{exchange: orders, keys: [fx.created, fx.*.changed]}]\n", "",
		"name: shipping.tracking\n    owner: team-shipping\n    backoff: quick",
		"name: shipping.tracking\n    owner: team-shipping\n    backoff: quick\n    type: classic",
		"name: support.surveys\n    owner: team-support\n    severity: info\n",
		"name: support.surveys\n    owner: team-support\n    severity: info\n    type: classic\n",
		"[customer.created, customer.changed]", "[customer.created, customer.updated, customer.merged]",
		"name: crm.merge\n    owner: team-crm\n    backoff: quick",
		"name: crm.merge\n    owner: team-crm\n    backoff: patient",
	}
}

// weekly returns the plan for a company after a busy week.
func weekly(t *testing.T, o plan.Options) plan.Plan {
	t.Helper()
	before := company(t)
	state := running(&before)
	state.Usage["support.surveys"] = topology.Usage{Ready: 12, Bytes: 4096, Consumers: 2}
	state.Usage["billing.tax"] = topology.Usage{Ready: 5, Bytes: 1024}
	state.Usage["acme.standard.retry.1m"] = topology.Usage{Ready: 3, Bytes: 300}
	state.Usage["acme.standard.retry.10m"] = topology.Usage{Ready: 4, Bytes: 400}
	return plan.Make(company(t, companyEdits()...), state, o)
}

// The plans of a company with four files, five teams and 30 queues, as a person reviews them.
func TestCompany(t *testing.T) {
	t.Parallel()
	before := company(t)
	for name, p := range map[string]plan.Plan{
		"first":  plan.Make(before, running(nil), plan.Options{}),
		"weekly": weekly(t, plan.Options{}),
		"none":   plan.Make(before, running(&before), plan.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text, markdown bytes.Buffer
			if err := planview.WriteText(&text, p, planview.TextOptions{}); err != nil {
				t.Fatal(err)
			}
			goldentest.Check(t, "testdata/company/"+name+".txt", text.Bytes())
			if err := planview.WriteMarkdown(&markdown, p, ""); err != nil {
				t.Fatal(err)
			}
			goldentest.Check(t, "testdata/company/"+name+".markdown", markdown.Bytes())
		})
	}
}

// On a terminal of 80 columns each line but those with a longer word fits, and what matters has a
// color: signs, hazards, warnings, the summary.
func TestCompanyOnATerminal(t *testing.T) {
	t.Parallel()
	mark := func(name string) func(string) string {
		return func(s string) string { return "\x1b[" + name + "m" + s + "\x1b[0m" }
	}
	var b bytes.Buffer
	err := planview.WriteText(&b, weekly(t, plan.Options{}), planview.TextOptions{Width: 80, Style: text.Style{
		Create: mark("1"), Change: mark("2"), Delete: mark("3"), Blocked: mark("4"),
		Danger: mark("5"), Caution: mark("6"), Strong: mark("7"), Faint: mark("8"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{
		"\x1b[1m+\x1b[0m queue", "\x1b[2m~\x1b[0m backoff", "\x1b[3m-/+\x1b[0m queue", "\x1b[4m-/+\x1b[0m queue",
		"\x1b[5m [loses-messages] [drops-routing] [copies-messages]\x1b[0m", "\x1b[6mwarning renamed:\x1b[0m", "\x1b[7mteam-billing\x1b[0m",
		"\x1b[7m14 to create", "\x1b[5mblocked: queue support.surveys", "\x1b[8mshared.yaml:8\x1b[0m",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not have %q", want)
		}
	}
	codes := regexp.MustCompile("\x1b\\[[0-9]+m")
	for line := range strings.Lines(got) {
		plain := strings.TrimRight(codes.ReplaceAllString(line, ""), "\n")
		if n := len([]rune(plain)); n > 80 && strings.Contains(strings.TrimSpace(plain), " ") {
			t.Errorf("%d columns: %q", n, plain)
		}
	}
}

// A comment fits into what GitHub accepts, however many changes a plan has, and says what it
// leaves out.
func TestLongMarkdown(t *testing.T) {
	t.Parallel()
	for changes, cut := range map[int]bool{300: false, 3000: true, 30000: true} {
		t.Run(strconv.Itoa(changes), func(t *testing.T) {
			t.Parallel()
			p := plan.Plan{Topology: "acme", VHost: "/", Changes: []plan.Change{}}
			for i := range changes {
				q := queue(fmt.Sprintf("team%d.orders.%04d", i%20, i), nil)
				p.WorkQueues = append(p.WorkQueues, topology.WorkQueue{Name: q.Name, Owner: fmt.Sprintf("team-%02d", i%20)})
				c := plan.Change{
					Action: plan.Create, Kind: topology.KindQueue, Name: q.Name, After: q, Label: q.Label,
				}
				switch i % 10 {
				case 0:
					c.Action, c.Before, c.Reason, c.Immutable = plan.Blocked, q, "because", true
					c.Fields = []plan.Field{{Name: "x-queue-type", Before: "classic", After: "quorum"}}
				case 1, 2:
					c.Action, c.Before, c.After, c.Hazards = plan.Delete, q, nil, topology.Hazards()[:4] // that a deletion can have
					c.Stake = &topology.Usage{Ready: 7, Bytes: 700}
				case 3:
					p.Warnings = append(p.Warnings, plan.Warning{Name: "overruled", Text: strings.Repeat(q.Name+" ", 10)})
				}
				p.Changes = append(p.Changes, c)
			}
			var b bytes.Buffer
			if err := planview.WriteMarkdown(&b, p, ""); err != nil {
				t.Fatal(err)
			}
			got := b.String()
			if n := utf8.RuneCountInString(got); n > 65536 {
				t.Errorf("%d characters", n)
			}
			if strings.Contains(got, "left out here") != cut {
				t.Errorf("whether it says that something is left out: %t", !cut)
			}
			if strings.Count(got, "```")%2 != 0 || strings.Count(got, "<details>") != strings.Count(got, "</details>") {
				t.Error("a fence or the folded part does not end")
			}
		})
	}
}

// JSON has, in addition to what it had, positions, owners, fixes and changed backoffs.
func TestCompanyJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := planview.WriteJSON(&b, weekly(t, plan.Options{}), "dev", ""); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Unchanged int
		Backoffs  []struct {
			Name          string
			Before, After []string
			Queues        []string
			Position      struct {
				File string
				Line int
			}
		}
		Changes []struct {
			Action, Kind, Name, Owner string
			Position                  *struct {
				File string
				Line int
			}
			Fields []struct{ Name, Fix string }
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Unchanged != 215 || len(got.Backoffs) != 1 || got.Backoffs[0].Position.Line != 8 ||
		!slices.Equal(got.Backoffs[0].After, []string{"10s", "2m", "20m"}) || len(got.Backoffs[0].Queues) != 17 {
		t.Errorf("got %+v", got)
	}
	found := false
	for _, c := range got.Changes {
		if c.Kind == "queue" && c.Action == "blocked" {
			found = c.Owner == "team-support" && c.Position != nil && c.Position.File == "crm.yaml" &&
				c.Fields[0].Fix == "write type: quorum"
		}
	}
	if !found {
		t.Errorf("the blocked queue has no owner, position or fix:\n%s", b.String())
	}
}
