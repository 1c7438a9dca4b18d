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

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// draft is a topology file: for each queue, q0 and so on, its backoff and where its dead letters
// go, and for each backoff its tiers. Backoffs that no queue has are not in the file.
type draft struct {
	backoffs, dead []string
	tiers          map[string][]string
}

// deadIs returns the dead-letter queue of a queue.
func (d draft) deadIs(i int) string {
	switch d.dead[i] {
	case "own":
		return fmt.Sprintf("q%d.dead", i)
	case "shared":
		return "shop.dead"
	}
	return d.dead[i]
}

// failuresGoTo returns the queue that gets what a queue rejects.
func (d draft) failuresGoTo(i int) string {
	if d.backoffs[i] == topology.NoBackoff {
		return d.deadIs(i)
	}
	return topology.FailedQueueName("shop", d.backoffs[i])
}

// countGoesTo returns the queue that gets a message of a queue which the processor of a backoff
// publishes with a count.
func (d draft) countGoesTo(i int, backoff string, count int64) string {
	if tiers := d.tiers[backoff]; count > 0 && count <= int64(len(tiers)) {
		return "shop." + backoff + ".retry." + tiers[count-1]
	}
	if count == topology.DeadLetterCount {
		return d.deadIs(i)
	}
	return d.failuresGoTo(i)
}

func (d draft) compiled(tb interface{ Fatal(args ...any) }) topology.Compiled {
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\nbackoff:\n  z: {tiers: [1s]}\n")
	for _, name := range slices.Sorted(maps.Keys(d.tiers)) {
		fmt.Fprintf(&b, "  %s: {tiers: [%s]}\n", name, strings.Join(d.tiers[name], ", "))
	}
	b.WriteString("exchanges: [{name: e}]\nqueues:\n")
	for i, name := range d.backoffs {
		dead := d.dead[i]
		if dead != "own" && dead != "shared" {
			dead = fmt.Sprintf("{queue: %s}", dead)
		}
		fmt.Fprintf(&b, "  - {name: q%d, backoff: %s, dead: %s, bindings: [{exchange: e, key: k%d}]}\n", i, name, dead, i)
	}
	return loaded(tb, b.String())
}

// backoffsOf returns a topology in which each queue has the backoff at its place.
func backoffsOf(tb interface{ Fatal(args ...any) }, backoffs []string) topology.Compiled {
	d := draft{backoffs: backoffs, tiers: map[string][]string{}}
	for _, name := range backoffs {
		d.dead = append(d.dead, "own")
		if name != topology.NoBackoff {
			d.tiers[name] = []string{"1s", "1m"}
		}
	}
	return d.compiled(tb)
}

// failureGoes returns the queues that get what a work queue rejects.
func (f *fake) failureGoes(queue string) []string {
	q, _ := f.objects["queue "+queue].(topology.Queue)
	exchange, _ := q.Arguments[topology.ArgDeadLetterExchange].(string)
	return f.goes(exchange, topology.AddressKey(queue), 0)
}

// goes returns the queues that get a message with a key and a count from an exchange, by its
// bindings and by alternate exchanges, as RabbitMQ routes.
func (f *fake) goes(exchange, key string, count int64) []string {
	reached, visited := map[string]bool{}, map[string]bool{}
	matches := func(e topology.Exchange, b topology.Binding) bool {
		switch e.Type {
		case topology.Direct:
			return b.Key == key
		case topology.Headers:
			return b.Arguments[topology.DefaultCountHeader] == count
		}
		return true
	}
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
			if !ok || b.Source != exchange || !matches(e, b) {
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

// way is one way of messages: what a queue rejects, or what a processor publishes with a count.
type way struct {
	queue   int
	backoff string // empty: what the queue rejects
	count   int64
}

// ways returns all ways of a topology.
func (d draft) ways() []way {
	var out []way
	for i, own := range d.backoffs {
		out = append(out, way{queue: i})
		for count := topology.DeadLetterCount; own != topology.NoBackoff && count < 5; count++ {
			out = append(out, way{i, own, count})
		}
	}
	return out
}

func (d draft) place(w way) string {
	if w.backoff == "" {
		return d.failuresGoTo(w.queue)
	}
	return d.countGoesTo(w.queue, w.backoff, w.count)
}

// places returns where some files have a way lead. Between two files a message that one of them
// makes a dead letter may find the dead-letter queue of the other, and one that it returns the
// backoff of the other.
func places(files []draft, w way) map[string]bool {
	out := map[string]bool{}
	dies := slices.ContainsFunc(files, func(d draft) bool { return d.place(w) == d.deadIs(w.queue) })
	returns := slices.ContainsFunc(files, func(d draft) bool { return d.place(w) == d.failuresGoTo(w.queue) })
	for _, d := range files {
		out[d.place(w)] = true
		if returns {
			out[d.failuresGoTo(w.queue)] = true
			dies = dies || d.backoffs[w.queue] == topology.NoBackoff
		}
	}
	for _, d := range files {
		if dies {
			out[d.deadIs(w.queue)] = true
		}
	}
	return out
}

// fails reports whether what a queue rejects goes to the failed queue of a backoff.
func (f *fake) fails(backoff string) bool {
	return slices.ContainsFunc([]string{"q0", "q1", "q2"}, func(queue string) bool {
		return slices.Contains(f.failureGoes(queue), topology.FailedQueueName("shop", backoff))
	})
}

func (f *fake) takes(w way) []string {
	queue := fmt.Sprint("q", w.queue)
	if w.backoff == "" {
		return f.failureGoes(queue)
	}
	return f.goes(topology.RetryExchangeName("shop", w.backoff), topology.AddressKey(queue), w.count)
}

// The law of changing routes: after each single change, wherever a run is stopped and with
// whatever file the next one continues, what a queue rejects, and what the processor of its backoff
// publishes with any count, goes to one place, and that is one which a file has for it that was
// applied or is being applied.
func TestMessagesHaveOneWayAtEachMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"a", "b", topology.NoBackoff})
		delays := rapid.SliceOfN(rapid.SampledFrom([]string{"1s", "2s", "1m"}), 0, 3)
		dead := rapid.SampledFrom([]string{"own", "shared", "graves", "q9.dead"})
		draw := func(label string) draft {
			d := draft{
				backoffs: rapid.SliceOfN(names, 3, 3).Draw(t, label), dead: rapid.SliceOfN(dead, 3, 3).Draw(t, label+", dead"),
				tiers: map[string][]string{},
			}
			for _, name := range []string{"a", "b"} {
				d.tiers[name] = delays.Draw(t, label+", tiers of "+name)
			}
			return d
		}
		f := &fake{objects: map[string]topology.Object{}}
		files := []draft{draw("first")}
		want := files[0].compiled(t)
		first := plan.Make(want, f.state(), plan.Options{})
		if err := apply.ExecuteWithReroutes(t.Context(), f, want, first, 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			next := draw(fmt.Sprint("file ", round))
			files = append(files, next)
			want := next.compiled(t)
			var wrong []string
			w := &watched{fake: f, left: rapid.IntRange(0, 60).Draw(t, "changes until it is killed"), look: func(c plan.Change) {
				for _, file := range files[len(files)-2:] { // processors of both run
					for _, way := range file.ways() {
						if way.backoff != "" && !f.fails(way.backoff) {
							continue // no message comes to its processors
						}
						if got := f.takes(way); len(got) != 1 || !places(files, way)[got[0]] {
							wrong = append(wrong, fmt.Sprintf("after %s %s: messages of %+v go to %q", c.Action, c.Name, way, got))
						}
					}
				}
			}}
			for more := true; more; more = w.left < 0 && rapid.Bool().Draw(t, "continues with the same file") {
				if w.left < 0 {
					w.left = 1000
				}
				p := plan.Make(want, f.state(), plan.Options{})
				if p.Count(plan.Blocked) > 0 {
					t.Fatalf("blocked: %s", text(t, p))
				}
				_ = apply.ExecuteWithReroutes(t.Context(), w, want, p, 0, func(plan.Change) {}) // it may be killed
				if len(wrong) > 0 {
					t.Fatal(wrong[0])
				}
			}
			if w.left < 0 {
				continue
			}
			for _, way := range next.ways() {
				if got := f.takes(way); !slices.Equal(got, []string{next.place(way)}) {
					t.Fatalf("in the end messages of %+v go to %q, not to %s", way, got, next.place(way))
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
	if err := apply.ExecuteWithReroutes(t.Context(), f, before, plan.Make(before, f.state(), plan.Options{}), 0,
		func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	p := plan.Make(backoffsOf(t, []string{"a", topology.NoBackoff}), f.state(), plan.Options{})
	want := `topology shop, vhost /, RabbitMQ 4.0.5

~ queue q1: backoff a -> none
    before  3 deliveries, at 0s, +1s, +1m; dead after 1m1s at the earliest
    after   1 delivery; dead at once
    messages that wait in a tier return to the queue and keep their attempt count

1 to update; 28 unchanged
`
	if got := text(t, p); got != want {
		t.Errorf("the plan:\n%s", got)
	}
	if err := plan.Check(p, nil); err != nil {
		t.Error(err)
	}
}
