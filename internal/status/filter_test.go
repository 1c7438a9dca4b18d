package status_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// Of the queues that do not exist, those that the filter chooses are named. None is said only if
// the filter leaves out no queue. Without such a queue, all that differs is counted.
func TestMissingQueues(t *testing.T) {
	t.Parallel()
	top := shop(t)
	audit := status.Filter{Queues: []string{"audit"}}
	for name, tc := range map[string]struct {
		missing []string // nil: all
		filter  status.Filter
		text    string
	}{
		"all":             {nil, status.Filter{}, "none of the 9 queues of the file exists"},
		"all, one family": {nil, audit, "these queues of the file do not exist: audit and shop.dead"},
		"one family": {
			[]string{"audit", "shop.dead"}, audit, "these queues of the file do not exist: audit and shop.dead",
		},
		"one queue":             {[]string{"audit"}, status.Filter{}, "the queue audit does not exist"},
		"one queue, one family": {[]string{"audit"}, audit, "the queue audit does not exist"},
		"another family":        {[]string{"mail"}, audit, "the broker differs from the file in 1 place"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := top.Topology
			have.Queues = slices.DeleteFunc(slices.Clone(have.Queues), func(q topology.Queue) bool {
				return tc.missing == nil || slices.Contains(tc.missing, q.Name)
			})
			state := topology.State{Version: "4.0.5", Have: have}
			text := ""
			for _, p := range status.Make(top, state, status.Options{Filter: tc.filter}).Problems {
				if p.Name == "not-applied" {
					text = p.Text
				}
			}
			if d := cmp.Diff(tc.text, text); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A queue whose dead-lettering dlxctl does not manage has no row. That it is missing is said.
func TestAMissingQueueThatIsNotManaged(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, "version: 1\nname: shop\nqueues: [{name: own, deadLetterBy: unmanaged}]\n")
	got := texts(status.Make(top, topology.State{Version: "4.0.5"}, status.Options{}))
	if d := cmp.Diff([]string{"not-applied: the broker differs from the file in 1 place"}, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// A match has its owner and its dead-letter queue before a service declares the first queue that it
// covers. Then the name of that queue chooses it.
func TestQueuesOfAMatchAreChosen(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
queues:
  - {name: billing, backoff: standard}
  - {match: '^svc[.]', external: true, backoff: standard, owner: platform}
`)
	owner, queue := status.Filter{Owners: []string{"platform"}}, status.Filter{Queues: []string{"svc.mail"}}
	for name, tc := range map[string]struct {
		declared []string
		filter   status.Filter
		known    bool
		chosen   []string
	}{
		"the owner, no queue": {nil, owner, true, []string{"shop.dead", "shop.standard.failed", "shop.standard.retry.10s"}},
		"no queue":            {nil, queue, false, nil},
		"the owner": {
			[]string{"svc.mail"},
			owner, true,
			[]string{"shop.dead", "shop.standard.failed", "shop.standard.retry.10s", "svc.mail"},
		},
		"the queue": {
			[]string{"svc.log", "svc.mail"},
			queue, true,
			[]string{"shop.dead", "shop.standard.failed", "shop.standard.retry.10s", "svc.mail"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := top.Topology
			have.Queues = slices.Clone(have.Queues)
			for _, declared := range tc.declared {
				have.Queues = append(have.Queues, topology.Queue{
					Name: declared, Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum},
				})
			}
			noQueue, noOwner, _ := tc.filter.Unknown([]topology.Compiled{policy.WithMatched(top, have.Queues)})
			if known := noQueue+noOwner == ""; known != tc.known {
				t.Fatalf("known is %t", known)
			}
			if !tc.known {
				return
			}
			var got []string
			report := status.Make(top, topology.State{Version: "4.3.6", Have: have}, status.Options{Filter: tc.filter})
			for _, q := range report.Queues {
				got = append(got, q.Name)
			}
			slices.Sort(got)
			if d := cmp.Diff(tc.chosen, got); d != "" {
				t.Errorf("chosen (-want +got):\n%s", d)
			}
			for _, p := range report.Problems {
				if p.Name == "no-consumers" && p.Command != "" {
					t.Errorf("no file declares the queue, and this is to print how: %s", p.Command)
				}
			}
		})
	}
}
