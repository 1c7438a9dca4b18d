package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A saved plan, read again, leads to the very same plan.
func TestSavedPlansComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, state := file(t), plan.State{Version: "4.0.5", VHost: "v", Cluster: "c"}
		o := plan.Options{Prune: true, Allow: []plan.Hazard{plan.DropsRouting}}
		p := plan.Make(want, state, o)
		var b bytes.Buffer
		if err := plan.Save(&b, p, want, o, "test"); err != nil {
			t.Fatal(err)
		}
		s, err := plan.ReadSaved(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(p); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, plan.Make(s.Want, state, s.Options)); d != "" {
			t.Fatalf("the plan changed on the way (-saved +read):\n%s", d)
		}
		state.Have.Exchanges = want.Exchanges[:1]
		if err := s.Check(plan.Make(s.Want, state, s.Options)); err == nil {
			t.Fatal("it holds though the broker changed")
		}
	})
}

// A saved plan that no longer holds says what has become different.
func TestAStalePlanNamesTheDifference(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	want := host(exchange("e", "topic", mark), queue("q", nil))
	var b bytes.Buffer
	if err := plan.Save(&b, plan.Make(want, plan.State{}, plan.Options{}), want, plan.Options{}, "test"); err != nil {
		t.Fatal(err)
	}
	s, err := plan.ReadSaved(&b)
	if err != nil {
		t.Fatal(err)
	}
	for said, have := range map[string]topology.Topology{
		`the broker has changed since it was made: a plan made now has no "create queue q"; plan again`: host(queue("q", nil)),
		`a plan made now has "blocked exchange e" as well; plan again`:                                  host(exchange("e", "fanout", nil)),
		`a plan made now has "delete queue old" as well; plan again`:                                    host(queue("old", nil)),
	} {
		err := s.Check(plan.Make(want, plan.State{Have: have}, plan.Options{}))
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("error is %v, without %s", err, said)
		}
	}
}

func TestNoSavedPlan(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "[]", "{}", "null", `{"plan": {"version": 2}}`, `{"plan": {"version": 1}}`, "version: 1"} {
		if _, err := plan.ReadSaved(strings.NewReader(text)); err == nil {
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
	_, err := plan.ReadSaved(endless{})
	if want := "this is no saved plan: it is larger than 256 MiB; plan again, with a smaller topology"; err == nil || err.Error() != want {
		t.Errorf("error is %v, not %s", err, want)
	}
}
