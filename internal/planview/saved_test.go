package planview_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A saved plan, read again, leads to the very same plan.
func TestSavedPlansComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var edits []string
		for pair := range slices.Chunk(companyEdits(), 2) {
			if rapid.Bool().Draw(r, pair[0]) {
				edits = append(edits, pair...)
			}
		}
		want, state := company(t, edits...), running(nil)
		o := plan.Options{Prune: true, Allow: []plan.Consent{{Hazard: topology.DropsRouting, Object: "legacy"}}}
		p := plan.Make(want, state, o)
		var b bytes.Buffer
		if err := planview.Save(&b, p, want, planview.Source{}, o, "test", ""); err != nil {
			t.Fatal(err)
		}
		s, err := planview.ReadSaved(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(p); err != nil {
			t.Fatal(err)
		}
		if s.CheckVersion("test") != nil || s.CheckVersion("another") == nil {
			t.Fatal("the version that saved it is not the one that may apply it")
		}
		if d := cmp.Diff(p, plan.Make(s.Want, state, s.Options), cmpopts.IgnoreUnexported(plan.Plan{})); d != "" {
			t.Fatalf("the plan changed on the way (-saved +read):\n%s", d)
		}
		state.Have.Exchanges = nil
		if err := s.Check(plan.Make(s.Want, state, s.Options)); err == nil {
			t.Fatal("it holds though the broker changed")
		}
	})
}

// A consent without a name is one for what the saved plan shows, when it is saved and when it is
// added later: messages that come to another queue meanwhile are not in it.
func TestASavedPlanAllowsNoMoreThanItShows(t *testing.T) {
	t.Parallel()
	have := topology.Topology{Queues: []topology.Queue{queue("a", nil), queue("b", nil)}}
	state := topology.State{Have: have, Usage: map[string]topology.Usage{"a": {Ready: 3}, "b": {}}}
	want, all := topology.Compiled{Name: "shop"}, plan.Allow(topology.LosesMessages, topology.StopsConsumers)
	o := plan.Options{Allow: all}
	var b bytes.Buffer
	if err := planview.Save(&b, plan.Make(want, state, o), want, planview.Source{}, o, "test", ""); err != nil {
		t.Fatal(err)
	}
	s, err := planview.ReadSaved(&b)
	if err != nil {
		t.Fatal(err)
	}
	other := plan.Consent{Hazard: topology.LosesMessages, Object: "b"}
	shown := []plan.Consent{{Hazard: topology.LosesMessages, Object: "a"}}
	if d := cmp.Diff(shown, s.Options.Allow); d != "" {
		t.Errorf("saved (-want +got):\n%s", d)
	}
	if d := cmp.Diff(append(shown, other), s.Narrowed(append(all, other))); d != "" {
		t.Errorf("added (-want +got):\n%s", d)
	}
}

// A saved plan that no longer holds says what has become different.
func TestAStalePlanNamesTheDifference(t *testing.T) {
	t.Parallel()
	mark := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("shop")}
	exchange := topology.Exchange{Name: "e", Type: topology.Topic, Durable: true, Arguments: mark}
	other := exchange
	other.Type, other.Arguments = topology.Fanout, nil
	want := topology.Compiled{Name: "shop", Topology: topology.Topology{
		Exchanges: []topology.Exchange{exchange}, Queues: []topology.Queue{queue("q", nil)},
	}}
	var b bytes.Buffer
	before := plan.Make(want, topology.State{}, plan.Options{})
	if err := planview.Save(&b, before, want, planview.Source{}, plan.Options{}, "test", ""); err != nil {
		t.Fatal(err)
	}
	s, err := planview.ReadSaved(&b)
	if err != nil {
		t.Fatal(err)
	}
	const again = "; nothing was written; save a new plan with 'dlxctl plan --save', read it, and apply that one"
	for said, have := range map[string]topology.Topology{
		`: a new plan no longer has "create queue q"` + again: {Queues: []topology.Queue{queue("q", nil)}},
		`: a new plan has "blocked exchange e" in addition, and no longer has "create exchange e"` + again: {
			Exchanges: []topology.Exchange{other},
		},
		`: a new plan has "delete queue old" and 1 more in addition` + again: {
			Queues: []topology.Queue{queue("old", nil), queue("older", nil)},
		},
		", and none of its changes is needed any more; nothing was written; 'dlxctl plan' shows that there are no changes": want.Topology,
	} {
		err := s.Check(plan.Make(want, topology.State{Have: have}, plan.Options{}))
		if said = "the saved plan is stale: the broker has changed since the plan was made" + said; err == nil || err.Error() != said {
			t.Errorf("error is %v, not %s", err, said)
		}
	}
}

func TestNoSavedPlan(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "[]", "{}", "null", `{"plan": {"version": 2}}`, `{"plan": {"version": 1}}`,
		"version: 1",
	} {
		if _, err := planview.ReadSaved(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a saved plan", text)
		}
	}
}

// endless is a file without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestASavedPlanHasALimit(t *testing.T) {
	t.Parallel()
	_, err := planview.ReadSaved(endless{})
	if want := "this is not a saved plan: it is larger than 256 MiB; run plan again with a smaller topology"; err == nil ||
		err.Error() != want {
		t.Errorf("error is %v, not %s", err, want)
	}
}
