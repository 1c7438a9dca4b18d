package status_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// Queues are asked for their consumers only if they decide what the report says.
func TestDoubtful(t *testing.T) {
	t.Parallel()
	file := "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}}\nqueues:\n" +
		"  - {name: billing, owner: team-billing, backoff: a}\n  - {name: mail, replaces: post, backoff: a}\n"
	for i := range 30 {
		file += fmt.Sprintf("  - {name: more.%02d, backoff: a}\n", i)
	}
	top := spectest.Compile(t, file)
	unknown, idle := topology.Usage{ConsumersUnknown: true}, topology.Usage{}
	many := map[string]topology.Usage{}
	for i := range 30 {
		many[fmt.Sprintf("more.%02d", i)] = idle
	}
	for name, tc := range map[string]struct {
		usage         map[string]topology.Usage
		filter        status.Filter
		unknown, idle []string
		more          int // how many of the other queues are idle
	}{
		"unknown": {
			usage: map[string]topology.Usage{
				"post": unknown, "billing": unknown, "foreign": unknown, "billing.dead": unknown,
			},
			unknown: []string{"billing", "billing.dead", "post"},
		},
		"idle": {
			usage: map[string]topology.Usage{"post": idle, "billing": idle, "mail": {Consumers: 1}, "foreign": idle},
			idle:  []string{"billing"},
		},
		"asked before": {usage: map[string]topology.Usage{"billing": {ConsumersAsked: true}}},
		"not chosen": {
			usage:  map[string]topology.Usage{"billing": idle, "mail": idle, "post": unknown},
			filter: status.Filter{Owners: []string{"team-billing"}},
			idle:   []string{"billing"},
		},
		"too many": {usage: many, more: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unknown, idle := status.Doubtful(top, topology.State{Usage: tc.usage}, tc.filter)
			if tc.more > 0 {
				if len(idle) != tc.more {
					t.Errorf("%d queues are asked", len(idle))
				}
				return
			}
			if d := cmp.Diff([][]string{tc.unknown, tc.idle}, [][]string{unknown, idle}); d != "" {
				t.Errorf("unknown and idle (-want +got):\n%s", d)
			}
		})
	}
}
