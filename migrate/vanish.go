package migrate

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlxctl/dlxctl/plan"
)

// ErrVanished is wrapped when a legacy queue that held messages was deleted while migrate ran, and
// not by migrate: the messages may be lost.
var ErrVanished = errors.New("a legacy queue was deleted with its messages")

// sight is the last look at a legacy queue.
type sight struct {
	held int64 // messages
	at   time.Time
	// moved is how many messages the drain had moved by then.
	moved int64
}

// note keeps what a legacy queue holds, for the case that it vanishes. h is its drain; nil: it has
// not begun.
func (r *Runner) note(state plan.State, m Move, h *mover) {
	if !m.find(state).legacy {
		return
	}
	u := state.Usage[m.Legacy]
	s := sight{held: u.Ready + u.Unacknowledged, at: time.Now()}
	if h != nil {
		s.moved = h.moved.Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sights[m.Legacy] = s
}

// vanished says that a legacy queue is gone which migrate did not delete. It fails if the queue
// held messages when it was seen last and the drain has not moved as many since.
func (r *Runner) vanished(m Move, h *mover) error {
	r.mu.Lock()
	last, seen := r.sights[m.Legacy]
	r.mu.Unlock()
	if !seen {
		return nil // it was gone when this run began
	}
	text := fmt.Sprintf("the queue %s was deleted while migrate ran, and not by migrate: by x-expires, by a policy with expires, or by a person or service; it last held %s, at %s",
		m.Legacy, number(last.held, "message"), clock(last.at))
	if left := last.held - (h.moved.Load() - last.moved); left > 0 {
		return fmt.Errorf("%w: %s; up to %s of these are lost, unless they were consumed", ErrVanished, text, number(left, "message"))
	}
	r.tell("retire: %s", text)
	return nil
}

// grouped gives 50,000 for 50000.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
