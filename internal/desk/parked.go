package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

// The queue of parked messages of a virtual host without a topology goes once it is empty. A run
// that sends messages there and a run that deletes that queue exclude each other: each run has the
// queue of its worker from before it opens the queue of parked messages until it has ended, and it
// opens that queue with a lock. A run that has the lock, and finds no other worker, knows that no
// run sends a message there before it has opened the queue again.

// parkedTurn is how long a run waits until another has proven that the queue is empty.
const parkedTurn = time.Minute

// ownsParked reports whether the queue of parked messages goes once it is empty.
func (d *Desk) ownsParked() bool { return d.Found != nil && d.Topology.Name == topology.DeskName }

// lockParked acquires the lock of the existence of the queue of parked messages.
func (w *worker) lockParked(ctx context.Context, wait time.Duration) (*amqp.Conn, error) {
	name := topology.ParkedName(w.desk.Topology.Name)
	return w.desk.lock(ctx, wish{
		what: "opens " + name, queue: topology.DeskLockName(w.desk.Topology.Name, name+" exists"), wait: wait,
		taken: "another desk opens or deletes the queue " + name, fix: "try again in a minute",
	})
}

// fillsParked reports whether the run puts messages into the queue of parked ones: it parks, gives
// back what was parked, or has that queue as its target.
func (w *worker) fillsParked(m *manifest) bool {
	return m.parks() || m.Goes[topology.ParkedName(w.desk.Topology.Name)] > 0
}

// openParked creates the queue of parked messages if the run puts messages there, and reports
// whether it is new. Giving back takes no right on a queue that is there.
func (w *worker) openParked(ctx context.Context, m *manifest) (made bool, err error) {
	if !w.fillsParked(m) {
		return false, nil
	}
	if w.desk.ownsParked() {
		lock, err := w.lockParked(ctx, parkedTurn)
		if err != nil {
			return false, err
		}
		defer lock.Close()
	}
	parked := w.desk.parked()
	_, err = w.conn.MessagesReady(parked.Name)
	if made = errors.Is(err, broker.ErrNotFound); !made && !m.parks() {
		return false, nil
	}
	if err := w.conn.DeclareQueue(parked); err != nil {
		return false, fmt.Errorf("create the queue of parked messages: %w", err)
	}
	return made, nil
}

// dropEmptyParked deletes the queue of parked messages at the end of a run, if no topology file
// says that there is one, and it is empty. What keeps it from that is not a failure: the queue
// stays until the end of the next run.
//
// Nothing can be lost: it is proven to be empty, and no other run sends a message there, see above.
func (w *worker) dropEmptyParked(ctx context.Context) {
	d := w.desk
	parked := d.parked()
	if !d.ownsParked() {
		return
	}
	if ready, err := w.conn.MessagesReady(parked.Name); err != nil || ready > 0 {
		return
	}
	lock, err := w.lockParked(ctx, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	if !w.aloneWith(ctx, parked) || d.Management.ProveEmpty(ctx, []topology.Queue{parked}) != nil {
		return
	}
	_ = w.conn.DeleteQueue(parked.Name, amqp.Conditions{}) // proven to be empty, see above
}

// aloneWith reports whether a queue is one of the desk, and no other process works on a run.
func (w *worker) aloneWith(ctx context.Context, queue topology.Queue) bool {
	name := w.desk.Topology.Name
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return false
	}
	own, others := false, false
	for _, q := range state.Have.Queues {
		own = own || q.Name == queue.Name && q.Arguments[topology.ArgManagedBy] == topology.DeskMark(name)
		others = others || topology.IsDeskWorker(name, q.Name) && q.Name != topology.DeskWorkerName(name, w.run)
	}
	return own && !others
}
