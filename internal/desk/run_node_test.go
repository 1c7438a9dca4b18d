package desk_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// step is what a desk does when its node dies.
type step string

const (
	looks   step = "looks"
	takes   step = "takes"
	sends   step = "sends"
	returns step = "returns"
)

// victim is a desk whose node dies while it is in the middle of a step.
type victim struct {
	*shop
	step   step
	typ    string
	chosen []string
	rest   []string
	run    string
	err    error
	// reached is closed in the middle of the step. There the desk waits for released.
	reached  chan struct{}
	released chan struct{}
	once     sync.Once
	ended    chan struct{}
}

// wait waits in the middle of the step.
func (v *victim) wait() {
	v.once.Do(func() { close(v.reached) })
	<-v.released
}

// newVictim starts a desk that waits in the middle of a step.
func newVictim(t *testing.T, node *brokertest.Server, step step, typ string) *victim {
	t.Helper()
	v := &victim{
		shop: newShopOn(t, node.VHost(t), shopFile(typ)), step: step, typ: typ,
		reached: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{}),
	}
	v.chosen, v.rest = v.bury(t, 1000)
	if step == returns {
		v.run = v.takenOnly(t, len(v.chosen))
	}
	p, err := v.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(v.ended)
		v.err = v.work(t.Context(), p)
	}()
	return v
}

// work does the step.
func (v *victim) work(ctx context.Context, p desk.Proposal) error {
	pause := func(p desk.Progress) {
		if (p.Phase == desk.Taking) == (v.step == takes) && p.Done >= 100 {
			v.wait()
		}
	}
	switch v.step {
	case looks:
		_, err := v.desk.Look(ctx, "billing.dead", desk.LookOptions{Hold: time.Hour}, func(m deadletter.Message) error {
			if m.Position == 500 {
				v.wait()
			}
			return nil
		})
		return err
	case returns:
		_, err := v.desk.Return(ctx, v.run, pause)
		return err
	case takes, sends:
		r, err := v.desk.Execute(ctx, p, pause)
		v.run = r.Run
		return err
	}
	return nil
}

// finish continues once the node is back, and counts what is lost and doubled, and for a send how
// many of the chosen messages are in the dead-letter queue again.
func (v *victim) finish(t *testing.T) (lost, doubled, back int) {
	t.Helper()
	v.ch = v.target.Confirming(t)
	var err error
	switch v.step {
	case looks:
	case returns:
		_, err = v.desk.Return(t.Context(), v.run, nil)
	case takes, sends:
		_, err = v.desk.Resume(t.Context(), v.run, nil, nil)
	}
	if err != nil {
		t.Fatalf("%s, %s: %v", v.typ, v.step, err)
	}
	want := append(v.chosen, v.rest...)
	got := identities(v.drained(t, "billing.dead"))
	if v.step == takes || v.step == sends {
		chosen := counts(v.chosen)
		rest := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return chosen[id] > 0 })
		lostRest, doubledRest := compareCounts(v.rest, rest)
		lost, doubled = compareCounts(v.chosen, identities(v.drained(t, "billing")))
		return lost + lostRest, doubled + doubledRest, len(got) - len(rest)
	}
	lost, doubled = compareCounts(want, got)
	return lost, doubled, 0
}

// The node is stopped, and killed by SIGKILL, while desks look, take, send and return. Started
// again, it has all messages: none is lost, and only those in flight of a send may be doubled. A
// killed node forgets what was acknowledged to a classic queue that it has not written since: it
// gave back up to 250 of 500 messages of the dead-letter queue that were sent already (4.3.6).
//
// Where one desk takes alone, its hold is as young as a desk lets it be: a node that forgets a new
// quorum queue would lose all that was taken (see amqp.SafeAge).
func TestNodeDies(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	all := []step{looks, returns, takes, sends} // the node dies soon after the last one began
	for _, round := range brokertest.Share([]struct {
		name  string
		die   func(testing.TB)
		steps []step
		types []string
	}{
		{"killed soon", node.Kill, []step{takes}, []string{"quorum"}},
		{"stopped", node.Stop, all, []string{"quorum"}},
		{"killed", node.Kill, all, queueKinds()},
	}) {
		var victims []*victim
		for _, typ := range round.types {
			for _, step := range round.steps {
				victims = append(victims, newVictim(t, node, step, typ))
			}
		}
		for _, v := range victims {
			select {
			case <-v.reached:
			case <-v.ended:
				t.Fatalf("%s: the desk that %s ended: %v", round.name, v.step, v.err)
			}
		}
		round.die(t)
		for _, v := range victims {
			close(v.released)
			if <-v.ended; v.err == nil {
				t.Errorf("%s: the desk that %s did not notice", round.name, v.step)
			}
		}
		node.Start(t)
		for _, v := range victims {
			lost, doubled, back := v.finish(t)
			what := fmt.Sprintf("%s while a desk %s, %s: %d lost, %d doubled, %d given back", round.name, v.step, v.typ, lost,
				doubled, back)
			t.Log(what)
			forgets := round.name == "killed" && v.step == sends && v.typ == "classic"
			if lost > 0 || v.step == sends && doubled > 256 || v.step != sends && doubled > 0 || back > 0 && !forgets {
				t.Error(what)
			}
		}
	}
	theNodeOfADirectRunDies(t, node)
}
