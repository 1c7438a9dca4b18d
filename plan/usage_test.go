package plan_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The law: a plan depends on no statistics but those of the queues that it names. Each is made a
// second time, with the statistics of the others unread.
func TestConsulted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := &fake{objects: map[string]topology.Object{}}
		before, after := file(t), file(t)
		if err := apply.ExecuteWithReroutes(t.Context(), f, before,
			plan.Make(before, f.state(), plan.Options{}), 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
		for _, run := range []string{"20260302-120000-a", "20260302-120000-b"} {
			q := topology.Queue{
				Name: topology.HoldName("shop", run), Durable: true,
				Arguments: topology.Arguments{"x-queue-type": "quorum", "x-managed-by": topology.DeskMark("shop")},
			}
			if err := f.create(q); err != nil {
				t.Fatal(err)
			}
		}
		full := f.state()
		for _, q := range full.Have.Queues {
			full.Usage[q.Name] = topology.Usage{
				Ready: rapid.Int64Range(0, 2).Draw(t, "ready"), Unacknowledged: rapid.Int64Range(0, 1).Draw(t, "unacknowledged"),
				Consumers: rapid.Int64Range(0, 1).Draw(t, "consumers"), ConsumersUnknown: rapid.Bool().Draw(t, "unknown"),
				Bytes: rapid.Int64Range(0, 9).Draw(t, "bytes"),
			}
		}
		o := plan.Options{Prune: rapid.Bool().Draw(t, "prune"), Destroy: rapid.Bool().Draw(t, "destroy")}
		if o.Destroy {
			after = plan.Nothing(after)
		}
		consulting(t, after, full, o)
	})
}

// consulting returns the plan that is made with the statistics of those queues only that it
// consults, and fails unless it is the plan that is made with all.
func consulting(t rapid.TB, want topology.Compiled, full topology.State, o plan.Options) plan.Plan {
	t.Helper()
	part, read := full, map[string]bool{}
	part.Usage = maps.Clone(full.Usage)
	for name, u := range full.Usage {
		part.Usage[name] = topology.Usage{Ready: u.Ready, Unacknowledged: u.Unacknowledged, ConsumersUnknown: true}
	}
	for {
		p := plan.Make(want, part, o)
		more := false
		for _, name := range p.Consulted() {
			more = more || !read[name]
			read[name] = true
			part.Usage[name] = full.Usage[name]
		}
		if more {
			continue
		}
		if d := cmp.Diff(written(t, plan.Make(want, full, o)), written(t, p)); d != "" {
			t.Fatalf("with the statistics of %v only (-all +these):\n%s", p.Consulted(), d)
		}
		return p
	}
}

// A plan depends on the consumers of the failed queues, and of queues that are no longer in the
// file.
func TestConsultedNames(t *testing.T) {
	t.Parallel()
	want, gone := consumed(map[string]topology.Usage{"gone": {}})
	dead := func(where string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\ndefaults: {type: classic}\nbackoff: {a: {tiers: [1s]}}\nexchanges: [{name: e}]\n"+
			"queues: [{name: q, backoff: a, dead: "+where+", bindings: [{exchange: e, key: k}]}]\n")
	}
	retired := topology.State{Version: "4.3.6", Have: dead("own").Topology, Usage: map[string]topology.Usage{
		"q": {}, "shop.a.failed": {Consumers: 1}, "q.dead": {Ready: 3, Consumers: 2, Bytes: 12},
	}}
	for name, tc := range map[string]struct {
		want      topology.Compiled
		state     topology.State
		consulted []string
		warning   string
	}{
		"a queue that is deleted": {want, gone, []string{"gone", "shop.a.failed"}, ""},
		"a retired dead-letter queue": {
			dead("shared"), retired,
			[]string{"q.dead", "shop.a.failed"},
			"the dead-letter queue q.dead is no longer declared and is kept until it is empty: 3 messages (counts are up to 5s old), 2 consumers; to delete it, empty it and run apply again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := consulting(t, tc.want, tc.state, plan.Options{})
			if d := cmp.Diff(tc.consulted, p.Consulted()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			warned := slices.ContainsFunc(p.Warnings, func(w plan.Warning) bool { return w.Text == tc.warning })
			if tc.warning != "" && !warned {
				t.Errorf("no warning %q in %v", tc.warning, p.Warnings)
			}
		})
	}
}

// written returns all that a plan shows.
func written(t interface{ Fatal(args ...any) }, p plan.Plan) string {
	var b bytes.Buffer
	if err := planview.WriteJSON(&b, p, "test", ""); err != nil {
		t.Fatal(err)
	}
	return b.String() + text(t, p) + p.Fingerprint
}
