package migrate

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// ErrVanished is wrapped when a legacy queue that held messages was deleted while migrate ran, and
// not by migrate: the messages may be lost.
var ErrVanished = errors.New("a legacy queue was deleted with its messages")

// lastSeen is what a legacy queue held when it was last seen.
type lastSeen struct {
	held int64 // messages
	at   time.Time
	// moved is how many messages the drain had moved by then.
	moved int64
}

// remember keeps what a legacy queue holds, for the case that it vanishes.
func (r *Runner) remember(state topology.State, m Move) {
	if !m.find(state).legacy {
		return
	}
	u := state.Usage[m.Legacy]
	s := lastSeen{held: u.Ready + u.Unacknowledged, at: time.Now()}
	if h := r.moverOf(m.Legacy, m.New); h != nil {
		s.moved = h.moved.Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[m.Legacy] = s
}

// vanished reports that a legacy queue is gone which migrate did not delete. It fails if the
// queue held messages when it was last seen and the drain has not moved as many since.
func (r *Runner) vanished(m Move, h *mover) error {
	r.mu.Lock()
	last, seen := r.seen[m.Legacy]
	r.mu.Unlock()
	if !seen {
		return nil // it was gone when this run began
	}
	what := fmt.Sprintf("the queue %s was deleted while migrate ran, but not by migrate: by x-expires, by a policy with expires, or by a user or service; it last held %s, at %s",
		m.Legacy, messages(last.held), clock(last.at))
	if left := last.held - (h.moved.Load() - last.moved); left > 0 {
		return fmt.Errorf("%w: %s; up to %s of these are lost, unless they were consumed", ErrVanished, what,
			messages(left))
	}
	r.say("retire: %s", what)
	return nil
}
