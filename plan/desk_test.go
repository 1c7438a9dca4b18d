package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// deskObjects are what a run in progress and parked messages have on the broker: a hold, the
// exchanges of the run, the exclusive queues of its process, and the parked queue.
func deskObjects() []topology.Object {
	durable := func(name string) topology.Queue {
		return topology.Queue{
			Name: name, Durable: true,
			Arguments: topology.Arguments{"x-queue-type": "quorum", "x-managed-by": topology.DeskMark("shop")},
		}
	}
	exclusive := func(name string) topology.Queue {
		return topology.Queue{
			Name: name, Exclusive: true,
			Arguments: topology.Arguments{"x-queue-type": "classic"},
		}
	}
	fanout := func(name string) topology.Exchange {
		return topology.Exchange{
			Name: name, Type: "fanout", Durable: true,
			Arguments: topology.Arguments{"x-managed-by": topology.DeskMark("shop")},
		}
	}
	hold := topology.HoldName("shop", "r1")
	return []topology.Object{
		durable(hold), durable(topology.ParkedName("shop")), durable(topology.LogName("shop")),
		exclusive(topology.DeskWorkerName("shop", "r1")),
		exclusive(topology.DeskLockName("shop", "q0.dead")), fanout(hold), fanout(hold + ".to.0"),
		topology.Binding{Source: hold, Destination: hold, DestinationType: topology.ToQueue},
	}
}

// A plan is the same with and without a run of the desk, except for warnings, and when it is
// carried out, the queues of the desk are as they were: whatever files come one after the other,
// one without any queue and one that prunes included. A plan that deletes the exchange on which a
// run listens is blocked by that alone.
func TestADeskChangesNoPlanLaw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f, desk := &fake{objects: map[string]topology.Object{}}, deskObjects()
		sends := topology.Binding{
			Source: topology.HoldName("shop", "r1") + ".to.0", Destination: "q0", DestinationType: topology.ToQueue,
		}
		listens := topology.Binding{
			Source: "shop.failed", Destination: topology.DeskWorkerName("shop", "r1"), DestinationType: topology.ToQueue,
			Key: "@q0",
		}
		o := plan.Options{Prune: rapid.Bool().Draw(t, "prune")}
		empty := topology.Compiled{Name: "shop"}
		for _, want := range []topology.Compiled{file(t), file(t), empty} {
			without := plan.Make(want, f.state(), o)
			for _, object := range desk {
				if err := f.create(object); err != nil {
					t.Fatal(err)
				}
			}
			listened := f.objects["exchange shop.failed"] != nil && rapid.Bool().Draw(t, "listens")
			if listened {
				if err := f.create(listens); err != nil {
					t.Fatal(err)
				}
			}
			if f.objects["queue q0"] != nil {
				if err := f.create(sends); err != nil {
					t.Fatal(err)
				}
			}
			p := plan.Make(want, f.state(), o)
			if typeChanged(without) {
				return
			}
			if typeChanged(p) {
				if !listened || p.Count(plan.Blocked) > 1 || p.Count(plan.Delete) != without.Count(plan.Delete)-1 {
					t.Fatalf("the desk blocks the plan:\n%s", text(t, p))
				}
				return
			}
			if listened && slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
				return c.Action == plan.Delete && c.Name == "shop.failed"
			}) {
				t.Fatalf("the plan deletes an exchange on which a run listens:\n%s", text(t, p))
			}
			warnings := p.Warnings
			p.Warnings, without.Warnings = nil, nil
			if d := cmp.Diff(text(t, without), text(t, p)); d != "" || without.Fingerprint != p.Fingerprint {
				t.Fatalf("the desk changes the plan (-without +with):\n%s", d)
			}
			warned := map[string]bool{}
			for _, w := range warnings {
				warned[w.Name] = true
			}
			ends := slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
				return c.Action == plan.Delete && c.Name == "shop.return"
			})
			if ends && !warned["desk-run"] {
				t.Fatalf("no warning of the run:\n%s\n%v", text(t, p), warnings)
			}
			if err := apply.ExecuteWithReroutes(t.Context(), f, want, p, 0, func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
			for _, object := range desk {
				if d := cmp.Diff(object, f.objects[key(object)]); d != "" {
					t.Fatalf("a queue of the desk changed (-before +after):\n%s", d)
				}
				delete(f.objects, key(object))
			}
			delete(f.objects, key(listens))
			delete(f.objects, key(sends))
		}
	})
}

// A plan that deletes what a run may need says so, and what would harm its messages. A plan that
// deletes nothing of it is silent.
func TestWarningsOfTheDesk(t *testing.T) {
	t.Parallel()
	all := host(queue("q", nil))
	all.Queues = append(all.Queues, host(deskObjects()...).Queues...)
	foreign := topology.Policy{
		Name: "ttl", Pattern: "^shop\\.desk", ApplyTo: "queues", Priority: 1,
		Definition: topology.Arguments{"message-ttl": int64(60000)},
	}
	harmed := all
	harmed.Policies = []topology.Policy{foreign}
	spared := all
	foreign.Pattern = "^(?!shop\\.desk\\.)shop\\.desk"
	spared.Policies = []topology.Policy{foreign}
	const keeps = "shop.desk.r1 keeps the messages of a run of the desk, and this plan deletes q: if the run needs that, it cannot send its messages, or cannot give them back, and what it sends until it stops may go to shop.unroutable. Before you apply, list the runs with 'dlxctl desk run list', and end them with 'dlxctl desk run resume' or 'dlxctl desk run return'"
	usage := map[string]topology.Usage{
		"shop.desk.r1": {Ready: 5}, "shop.desk.log": {Ready: 9}, "shop.parked": {Ready: 2, Unacknowledged: 1},
	}
	for name, tc := range map[string]struct {
		want, have topology.Compiled
		usage      map[string]topology.Usage
		warnings   []plan.Warning
	}{
		"nothing is deleted":   {want: host(queue("q", nil)), have: all, usage: usage},
		"no message is parked": {want: host(), have: all, warnings: []plan.Warning{{Name: "desk-run", Text: keeps}}},
		"a work queue is deleted": {
			want: host(), have: all, usage: usage,
			warnings: []plan.Warning{{Name: "desk-run", Text: keeps}, {
				Name: "desk-parked",
				Text: "shop.parked keeps 3 messages that a person parked, and this plan deletes q; before you apply, give back with 'dlxctl desk restore' what still has to go there",
			}},
		},
		"a policy of another team deletes messages": {
			want: host(queue("q", nil)), have: harmed, usage: usage,
			warnings: []plan.Warning{{
				Name: "desk-policy",
				Text: "the policy ttl (pattern ^shop\\.desk) would delete the messages in shop.desk.r1 after 1m; exclude the queues of all runs from the pattern, as ^(?!shop\\.desk\\.) does",
			}},
		},
		"that policy, as it is advised": {want: host(queue("q", nil)), have: spared, usage: usage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Make(tc.want, topology.State{Version: "4.0.5", Have: tc.have.Topology, Usage: tc.usage}, plan.Options{})
			var got []plan.Warning
			for _, w := range p.Warnings {
				if strings.HasPrefix(w.Name, "desk-") {
					got = append(got, w)
				}
			}
			if d := cmp.Diff(tc.warnings, got); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

// How to end a run that sends to a queue is said so that it finds the run of another topology too.
func TestHowToEndARunThatSends(t *testing.T) {
	t.Parallel()
	b := topology.Binding{
		Source: topology.HoldName("desk", "r1") + ".to.0", Destination: "q", DestinationType: topology.ToQueue,
		Arguments: topology.Arguments{"x-managed-by": topology.DeskMark("desk")},
	}
	got := plan.DeskSends("q", []topology.Binding{b})
	if !strings.HasSuffix(got, "end it with 'dlxctl desk run resume r1' or 'dlxctl desk run return r1' "+
		"(with --name desk unless that is the topology of your file)") {
		t.Error(got)
	}
}

// The desk of another topology, and queues that only have a similar name, are not taken for the
// topology's own desk.
func TestDeskQueues(t *testing.T) {
	t.Parallel()
	have := topology.Topology{Queues: []topology.Queue{
		queue("shop.desk.x", nil),
		{Name: "shop.desk.mine", Durable: true},
		{Name: "other.desk.r1", Arguments: topology.Arguments{"x-managed-by": topology.DeskMark("other")}},
	}}
	have.Queues = append(have.Queues, host(deskObjects()...).Queues...)
	state := topology.State{Have: have, Usage: map[string]topology.Usage{"shop.desk.r1": {Ready: 5}}}
	want := []plan.DeskQueue{
		{Name: "shop.desk.log", Role: topology.RoleLog},
		{
			Name: "shop.desk.r1", Role: topology.RoleHold, Run: "r1", Active: true,
			Usage: topology.Usage{Ready: 5},
		},
		{Name: "shop.parked", Role: topology.RoleParked},
	}
	if d := cmp.Diff(want, plan.DeskQueues("shop", state)); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
}
