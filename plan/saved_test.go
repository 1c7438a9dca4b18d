package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A saved plan, read again, leads to the very same plan.
func TestSavedPlansComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, state := file(t), topology.State{Version: "4.0.5", VHost: "v", Cluster: "c"}
		o := plan.Options{Prune: true, Allow: plan.Allow(plan.DropsRouting)}
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
		if d := cmp.Diff(p, plan.Make(s.Want, state, s.Options), cmpopts.IgnoreUnexported(plan.Plan{})); d != "" {
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
	if err := plan.Save(&b, plan.Make(want, topology.State{}, plan.Options{}), want, plan.Options{}, "test"); err != nil {
		t.Fatal(err)
	}
	s, err := plan.ReadSaved(&b)
	if err != nil {
		t.Fatal(err)
	}
	for said, have := range map[string]topology.Topology{
		`the broker has changed since it was made: a new plan has no "create queue q"; run plan again`: host(queue("q",
			nil)).Topology,
		`a plan made now has "blocked exchange e" as well; run plan again`: host(exchange("e",
			"fanout", nil)).Topology,
		`a plan made now has "delete queue old" as well; run plan again`: host(queue("old",
			nil)).Topology,
	} {
		err := s.Check(plan.Make(want, topology.State{Have: have}, plan.Options{}))
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("error is %v, without %s", err, said)
		}
	}
}

func TestNoSavedPlan(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "[]", "{}", "null", `{"plan": {"version": 2}}`, `{"plan": {"version": 1}}`,
		"version: 1",
	} {
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
	if want := "this is not a saved plan: it is larger than 256 MiB; run plan again with a smaller topology"; err == nil ||
		err.Error() != want {
		t.Errorf("error is %v, not %s", err, want)
	}
}

// What others have bound to what a saved plan deletes or makes again is part of it: it
// goes along. What they have bound elsewhere is not.
func TestSavedPlansKnowWhatGoesAlong(t *testing.T) {
	t.Parallel()
	mark := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("shop"), topology.ArgQueueType: topology.Classic}
	exchange := func(name string) topology.Exchange {
		return topology.Exchange{
			Name: name, Type: topology.Topic, Durable: true,
			Arguments: mark.Without(topology.ArgQueueType),
		}
	}
	state := topology.State{Version: "4.0.5", Have: topology.Topology{
		Exchanges: []topology.Exchange{exchange("gone.x"), exchange("changed.x"), {Name: "foreign.x", Type: topology.Fanout}},
		Queues: []topology.Queue{
			{Name: "gone", Durable: true, Arguments: mark},
			{Name: "changed", Durable: true, Arguments: mark},
			{Name: "stays", Durable: true, Arguments: mark},
			{Name: "foreign", Durable: true},
		},
	}}
	changed := exchange("changed.x")
	changed.Type = topology.Direct
	want := topology.Compiled{
		Name: "shop",
		Topology: topology.Topology{Exchanges: []topology.Exchange{changed}, Queues: []topology.Queue{
			{Name: "changed", Durable: true, Arguments: mark.With(topology.ArgMessageTTL, int64(5))},
			{Name: "stays", Durable: true, Arguments: mark},
		}},
	}
	before := plan.Make(want, state, plan.Options{})
	for name, tc := range map[string]struct {
		binding topology.Binding
		stale   bool
	}{
		"a queue that is deleted": {topology.Binding{
			Source: "foreign.x", Destination: "gone",
			DestinationType: topology.ToQueue,
		}, true},
		"a queue that is replaced": {topology.Binding{
			Source: "foreign.x", Destination: "changed",
			DestinationType: topology.ToQueue, Key: "k",
		}, true},
		"from an exchange that goes": {topology.Binding{
			Source: "gone.x", Destination: "foreign",
			DestinationType: topology.ToQueue,
		}, true},
		"to an exchange that goes": {topology.Binding{
			Source: "foreign.x", Destination: "gone.x",
			DestinationType: topology.ToExchange,
		}, true},
		"from an exchange that changes": {topology.Binding{
			Source: "changed.x", Destination: "foreign",
			DestinationType: topology.ToQueue,
		}, true},
		"between foreign objects": {topology.Binding{
			Source: "foreign.x", Destination: "foreign",
			DestinationType: topology.ToQueue,
		}, false},
		"a queue named as an exchange is": {topology.Binding{
			Source: "foreign.x", Destination: "gone.x",
			DestinationType: topology.ToQueue,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := state
			now.Have.Bindings = []topology.Binding{tc.binding}
			if stale := plan.Make(want, now, plan.Options{}).Fingerprint != before.Fingerprint; stale != tc.stale {
				t.Errorf("the saved plan is stale: %t", stale)
			}
		})
	}
}
