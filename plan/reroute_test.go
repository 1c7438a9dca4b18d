package plan_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// backoffsOf gives a topology in which each queue, q0 and so on, has the backoff at its
// place. Backoffs that no queue has are not in the file.
func backoffsOf(tb interface{ Fatal(args ...any) }, backoffs []string) topology.Compiled {
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\nbackoff:\n  z: {tiers: [1s]}\n")
	for _, name := range slices.Compact(slices.Sorted(slices.Values(backoffs))) {
		if name != topology.NoBackoff {
			fmt.Fprintf(&b, "  %s: {tiers: [1s, 1m]}\n", name)
		}
	}
	b.WriteString("exchanges: [{name: e}]\nqueues:\n")
	for i, name := range backoffs {
		fmt.Fprintf(&b, "  - {name: q%d, backoff: %s, bindings: [{exchange: e, key: k%d}]}\n", i, name, i)
	}
	return loaded(tb, b.String())
}

// earlier gives what the release before made of a topology: a fanout exchange for each
// backoff, to which its queues dead-letter.
func earlier(t topology.Compiled) []topology.Object {
	var out []topology.Object
	mark := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark(t.Name)}
	main := topology.FailedExchangeName(t.Name)
	for _, e := range t.Exchanges {
		if e.Name != main && e.Name != topology.NextFailedExchangeName(t.Name) {
			out = append(out, e)
		}
	}
	for _, l := range t.Backoffs {
		out = append(out, topology.Exchange{Name: l.FailedQueue, Type: topology.Fanout, Durable: true, Arguments: mark},
			topology.Binding{
				Source: l.FailedQueue, Destination: l.FailedQueue, DestinationType: topology.ToQueue,
				Arguments: mark,
			})
	}
	for _, q := range t.Queues {
		if w, is := t.WorkQueue(q.Name); is {
			target := topology.DeadLetterName(t.Name)
			if l, has := t.Backoff(w.Backoff); has {
				target = l.FailedQueue
			}
			q.Arguments = q.Arguments.With(topology.ArgDeadLetterExchange, target)
		}
		out = append(out, q)
	}
	for _, b := range t.Bindings {
		if b.Source != main {
			out = append(out, b)
		}
	}
	return out
}

// failureGoes gives the queues that get what a work queue rejects: the ways from the
// exchange that it dead-letters to, alternate exchanges included.
func (f *fake) failureGoes(queue string) []string {
	q, _ := f.objects["queue "+queue].(topology.Queue)
	exchange, _ := q.Arguments[topology.ArgDeadLetterExchange].(string)
	reached, visited := map[string]bool{}, map[string]bool{}
	var route func(exchange string)
	route = func(exchange string) {
		e, ok := f.objects["exchange "+exchange].(topology.Exchange)
		if !ok || visited[exchange] {
			return
		}
		visited[exchange] = true
		matched := false
		for _, o := range f.objects {
			b, ok := o.(topology.Binding)
			if !ok || b.Source != exchange || e.Type == topology.Direct && b.Key != topology.AddressKey(queue) {
				continue
			}
			matched = true
			if b.DestinationType == topology.ToQueue {
				reached[b.Destination] = true
			} else {
				route(b.Destination)
			}
		}
		if alternate, ok := e.Arguments[topology.ArgAlternateExchange].(string); ok && !matched {
			route(alternate)
		}
	}
	route(exchange)
	return slices.Sorted(maps.Keys(reached))
}

// watched is a virtual host that looks after each change where failures go, and that
// stops carrying out changes after some.
type watched struct {
	*fake

	mu   sync.Mutex // changes of one phase run at the same time
	left int        // changes until it stops
	look func(c plan.Change)
}

func (w *watched) Apply(ctx context.Context, c plan.Change) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left < 0 {
		return fmt.Errorf("killed")
	}
	err := w.fake.Apply(ctx, c)
	w.look(c)
	return err
}

// The law of changing backoffs: after each single change, wherever a run is stopped and
// with whatever file the next one goes on, what a queue rejects goes to one place, and
// that is the one of a backoff that the queue has had or gets. It holds for what an
// earlier release made too.
func TestFailuresHaveOneWayAtEachMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"a", "b", "c", topology.NoBackoff})
		draw := func(label string) []string { return rapid.SliceOfN(names, 3, 3).Draw(t, label) }
		f := &fake{objects: map[string]topology.Object{}}
		first := draw("first")
		old := rapid.Bool().Draw(t, "made by an earlier release")
		// queues without a backoff in an earlier release: their argument names the exchange of
		// dead letters
		fixed := map[int]bool{}
		if old {
			for i, name := range first {
				fixed[i] = name == topology.NoBackoff
			}
			for _, o := range earlier(backoffsOf(t, first)) {
				f.objects[key(o)] = o
			}
		} else if err := plan.Carry(t.Context(), f, backoffsOf(t, first),
			plan.Make(backoffsOf(t, first), f.state(), plan.Options{}), 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
		allowed := make([]map[string]bool, 3)
		place := func(i int, backoff string) string {
			if backoff == topology.NoBackoff {
				return fmt.Sprintf("q%d.dead", i)
			}
			return topology.FailedQueueName("shop", backoff)
		}
		for i, name := range first {
			allowed[i] = map[string]bool{place(i, name): true}
		}
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			next := draw(fmt.Sprint("file ", round))
			for i := range next {
				if fixed[i] {
					next[i] = topology.NoBackoff
				}
				allowed[i][place(i, next[i])] = true
			}
			want := backoffsOf(t, next)
			w := &watched{fake: f, left: rapid.IntRange(0, 40).Draw(t, "changes until it is killed"), look: func(c plan.Change) {
				for i := range next {
					if got := f.failureGoes(fmt.Sprint("q", i)); len(got) != 1 || !allowed[i][got[0]] {
						t.Fatalf("after %s %s: failures of q%d go to %q, and should to one of %v", c.Action, c.Name, i, got,
							slices.Sorted(maps.Keys(allowed[i])))
					}
				}
			}}
			for more := true; more; more = w.left < 0 && rapid.Bool().Draw(t, "goes on with the same file") {
				if w.left < 0 {
					w.left = 1000
				}
				p := plan.Make(want, f.state(), plan.Options{})
				if p.Count(plan.Blocked) > 0 {
					t.Fatalf("blocked: %s", text(t, p))
				}
				_ = plan.Carry(t.Context(), w, want, p, 0, func(plan.Change) {}) // it may be killed
			}
			if w.left < 0 {
				continue
			}
			for i, name := range next {
				if got := f.failureGoes(fmt.Sprint("q", i)); !slices.Equal(got, []string{place(i, name)}) {
					t.Fatalf("in the end failures of q%d go to %q, not to %s", i, got, place(i, name))
				}
			}
		}
	})
}

// A plan says what a changed backoff means, as an update without hazards.
func TestAChangedBackoffIsShown(t *testing.T) {
	t.Parallel()
	f := &fake{objects: map[string]topology.Object{}}
	before := backoffsOf(t, []string{"a", "a"})
	if err := plan.Carry(t.Context(), f, before, plan.Make(before, f.state(), plan.Options{}), 0,
		func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	p := plan.Make(backoffsOf(t, []string{"a", topology.NoBackoff}), f.state(), plan.Options{})
	want := `topology shop, vhost /, RabbitMQ 4.0.5

~ queue q1: backoff a -> none
    before  3 deliveries, at 0s, +1s, +1m; dead after 1m1s at the earliest
    after   1 delivery; dead at once
    messages that wait in a tier return to the queue and keep their attempt count

1 to update; 26 unchanged
`
	if got := text(t, p); got != want {
		t.Errorf("the plan:\n%s", got)
	}
	if err := plan.Check(p, nil); err != nil {
		t.Error(err)
	}
}

// A service that declares its queue as for an earlier release, when nothing of that is left,
// still finds the route of its failures.
func TestAQueueDeclaredAsForAnEarlierRelease(t *testing.T) {
	t.Parallel()
	want := backoffsOf(t, []string{"a"})
	f := &fake{objects: map[string]topology.Object{}}
	q := topology.Queue{
		Name: "q0", Durable: true,
		Arguments: want.Queues[slices.IndexFunc(want.Queues,
			func(q topology.Queue) bool { return q.Name == "q0" })].Arguments.
			With(topology.ArgDeadLetterExchange, "shop.a.failed").Without(topology.ArgManagedBy),
	}
	if err := f.create(q); err != nil {
		t.Fatal(err)
	}
	p := plan.Make(want, f.state(), plan.Options{})
	if err := plan.Check(p, nil); err != nil {
		t.Fatal(err)
	}
	if err := plan.Carry(t.Context(), f, want, p, 0, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	if got := f.failureGoes("q0"); !slices.Equal(got, []string{"shop.a.failed"}) {
		t.Errorf("failures go to %q", got)
	}
	if p := plan.Make(want, f.state(), plan.Options{}); !p.Empty() {
		t.Errorf("left to do: %s", text(t, p))
	}
}
