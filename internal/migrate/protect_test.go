package migrate_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/topology"
)

// A foreign policy that would delete what is in the generated queues: prepare
// overrides it before it makes them, and abort leaves nothing of that behind.
func TestMigrateWithAHarmfulPolicy(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			s.target.Call(t, http.MethodPut, "policies/"+url.PathEscape(s.target.VHost)+"/foreign", map[string]any{
				"pattern": "^(?!old$)", "apply-to": "queues", "priority": 4,
				"definition": map[string]any{"max-length": 1, "dead-letter-routing-key": "k"},
			})
			before := s.target.Definitions(t)
			r := s.runner(t)
			r.Until = migrate.Prepare
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			state, inEffect := s.inspect(t), 0
			for _, q := range state.Have.Queues {
				if strings.Contains(state.QueuePolicies[q.Name], ".protect.") {
					inEffect++
				}
			}
			want := 0
			for _, q := range r.Topology.Queues {
				if q.Label.Role != topology.RoleWork {
					want++
				}
			}
			if inEffect != want || want == 0 {
				t.Errorf("%d of %d generated queues are protected: %v", inEffect, want, state.QueuePolicies)
			}
			if left := migrate.Preparation(r.Topology, state, migrate.Moves(r.Topology, state)); !left.Empty() {
				t.Errorf("left to prepare: %s", planview.Summary(left))
			}
			s.abort(t, s.runner(t))
			if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s", d)
			}
		})
	}
}
