package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// retire deletes the legacy queue if it is empty and unused. It is proved empty a moment before; of
// a classic queue the broker also checks in the moment of the deletion that no message is ready.
// If the queue is not empty, it stays and is drained again. The idle time has shown that no
// publisher sends to it by name; feedersEmpty has shown that no queue dead-letters to it by
// name.
func (r *Runner) retire(ctx context.Context, m Move, h *mover) (topology.State, error) {
	state, err := r.inspect(ctx)
	if err != nil {
		return state, err
	}
	if len(m.find(state).onLegacy) > 0 {
		return state, nil // it was bound again meanwhile
	}
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	if i < 0 {
		return state, nil
	}
	r.remember(state, m)
	// The counts that prove the queue empty must be newer than this moment.
	fresh := r.Management.Fresh()
	err = apply.Execute(ctx, fresh, plan.Plan{Changes: []plan.Change{remove(state.Have.Queues[i])}}, r.noteWrite)
	if errors.Is(err, broker.ErrRefused) {
		return state, wait.For(ctx, time.Second) // a message came, or the drain's consumer is still in the statistics
	}
	if err != nil {
		return state, err
	}
	h.deleted = true
	r.say("retire: deleted %s", m.Legacy)
	r.noteFeeders(state, m)
	r.tellOfDesk(state, m)
	return r.inspect(ctx)
}

// leftovers returns the deletions of what is left when the legacy queue is gone: the exchange
// of the drain, the forwarder, and the binding of the failures of a legacy queue that dlxctl
// generated.
func (m Move) leftovers(state topology.State) []plan.Change {
	var out []plan.Change
	if m.find(state).exchanges[m.successorEnd()] {
		c := remove(topology.Exchange{Name: m.successorEnd()})
		c.Hazards = []topology.Hazard{topology.DropsRouting} // only the drain publishes to it
		out = append(out, c)
	}
	if p := m.find(state).forwarder; p != nil {
		out = append(out, remove(*p))
	}
	for _, b := range state.Have.Bindings {
		owner, _ := topology.Owner(b.Arguments)
		ofFailures := b.Source == topology.FailedExchangeName(m.Topology) && b.Key == topology.AddressKey(m.Legacy)
		if ofFailures && owner == m.Topology {
			out = append(out, remove(b)) // nothing fails in the legacy queue any more
		}
	}
	return out
}

// cleanUp removes what is left when the legacy queue is gone, and reports how the migration
// ended.
func (r *Runner) cleanUp(ctx context.Context, m Move, h *mover, state topology.State) error {
	if err := r.execute(ctx, m.leftovers(state)); err != nil {
		return err
	}
	if !h.deleted {
		return r.vanished(m, h)
	}
	r.say("done: %s is now %s; this run moved %s", m.Legacy, m.New, h.account(time.Since(r.began)))
	return nil
}

// account returns what a mover has moved in a time, and how many messages it may have doubled.
//
// A copy exists twice in one of three cases: the message was in flight when a drain was killed or
// lost its connection (it is then delivered again, and the broker says so), another program bound
// the legacy queue after the cutover, or both. A message to which none applies was moved once.
func (h *mover) account(took time.Duration) string { return h.counts() + ", " + text.Took(took) }

func (h *mover) counts() string {
	return countsText(h.moved.Load(), h.doubled)
}

// countsText says how many messages were moved, and how many of them may be doubled.
func countsText(moved, most int64) string {
	doubled := "0 doubled"
	if n := min(most, moved); n > 0 {
		doubled = "at most " + text.Grouped(n) + " doubled"
	}
	return fmt.Sprintf("%s, %s", messages(moved), doubled)
}
