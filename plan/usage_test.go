package plan_test

import (
	"bytes"
	"maps"
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
		if err := apply.Carry(t.Context(), f, before,
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
		part, read := full, map[string]bool{}
		part.Usage = maps.Clone(full.Usage)
		for name, u := range full.Usage {
			part.Usage[name] = topology.Usage{Ready: u.Ready, Unacknowledged: u.Unacknowledged, ConsumersUnknown: true}
		}
		for {
			p := plan.Make(after, part, o)
			more := false
			for _, name := range p.Consulted() {
				more = more || !read[name]
				read[name] = true
				part.Usage[name] = full.Usage[name]
			}
			if more {
				continue
			}
			if d := cmp.Diff(written(t, plan.Make(after, full, o)), written(t, p)); d != "" {
				t.Fatalf("with the statistics of %v only (-all +these):\n%s", p.Consulted(), d)
			}
			return
		}
	})
}

// A plan depends on the consumers of the failed queues, and of a queue that it deletes.
func TestConsultedNames(t *testing.T) {
	t.Parallel()
	want, state := consumed(map[string]topology.Usage{"gone": {}})
	p := plan.Make(want, state, plan.Options{})
	if d := cmp.Diff([]string{"gone", "shop.a.failed"}, p.Consulted()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// written returns all that a plan shows.
func written(t interface{ Fatal(args ...any) }, p plan.Plan) string {
	var b bytes.Buffer
	if err := planview.WriteJSON(&b, p, "test"); err != nil {
		t.Fatal(err)
	}
	return b.String() + text(t, p) + p.Fingerprint
}
