package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// lockTime is how long a lock is tried: the broker frees that of a killed process a moment
	// after the end of its connection.
	lockTime = 5 * time.Second
	// lockPause is the pause between two tries.
	lockPause = 300 * time.Millisecond
)

// stopped is the cause that ends the work on a run with messages left. It is not a failure.
type stopped string

// Error returns why the run stopped.
func (s stopped) Error() string { return string(s) }

// worker is the only process that works on a run. Its connection holds the locks, and receives
// requests to stop.
type worker struct {
	desk         *Desk
	run          string
	conn         *amqp.Conn
	cancel       context.CancelCauseFunc
	takeExchange string // the exchange through which it takes
	// opened is when this process has created the queues of the run. Zero: it has not.
	opened time.Time
	locked *amqp.Conn    // holds the lock of the queue, and nothing else
	freed  chan struct{} // closed to free it
	done   sync.WaitGroup
	// record is what the record of the run says that its result does not, and hold what the argument
	// of the hold tells of a run whose list is gone.
	record EndedRun
	hold   Run
	// inDoubt is how many messages may be doubled although no process was killed.
	inDoubt int
}

// endpoint returns the endpoint for a connection of the desk that does something.
func (d *Desk) endpoint(what string) broker.Endpoint {
	e := d.Endpoint
	e.ConnectionName = fmt.Sprintf("dlxctl desk %s (%s)", what, cmp.Or(d.By, "unknown"))
	return e
}

// work makes this process the worker of a run. The returned context ends when ctx does, when
// another process asks the run to stop, and when a connection that holds a lock ends.
func (d *Desk) work(ctx context.Context, run string) (*worker, context.Context, error) {
	name := topology.DeskWorkerName(d.Topology.Name, run)
	conn, err := d.lock(ctx, wish{
		what: "run " + run, queue: name, wait: lockTime,
		taken: fmt.Sprintf("another process works on the run %s", run),
		fix:   fmt.Sprintf("wait for its end, or stop it with 'dlxctl desk run cancel %s'", run),
	})
	if err != nil {
		return nil, nil, err
	}
	requests, err := conn.Consume(name, 1, 0)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &worker{desk: d, run: run, conn: conn, cancel: cancel}
	w.done.Go(func() { w.listen(ctx, requests) })
	return w, ctx, nil
}

// listen waits for a request to stop.
func (w *worker) listen(ctx context.Context, requests *amqp.Consumer) {
	select {
	case d, ok := <-requests.Deliveries():
		if !ok {
			w.cancel(errors.New("the connection that holds the lock of the run ended"))
			return
		}
		by, _ := d.Headers["desk-by"].(string)
		w.cancel(stopped("canceled by " + cmp.Or(by, "another process")))
	case <-ctx.Done():
	}
}

// lockQueue acquires the lock of the queue that the run takes from, unless it has it.
func (w *worker) lockQueue(ctx context.Context, queue string) (err error) {
	if w.locked != nil {
		return nil
	}
	d := w.desk
	w.locked, err = d.lock(ctx, wish{
		what: "takes from " + queue + " in the run " + w.run, wait: lockTime,
		queue: topology.DeskLockName(d.Topology.Name, queue),
		taken: fmt.Sprintf("another desk works on the queue %s", text.Name(queue)),
		fix:   "wait until it has taken its messages, or stop its run with 'dlxctl desk run cancel'; 'dlxctl desk run list' lists those that have a hold",
	})
	if err != nil {
		return err
	}
	ended, freed := w.locked.Ended(), make(chan struct{})
	w.freed = freed
	w.done.Go(func() { w.guard(ended, freed) })
	return nil
}

// guard stops the run if the lock of the queue ends before it is freed: another run may take from
// the queue then.
func (w *worker) guard(ended <-chan *amqp091.Error, freed <-chan struct{}) {
	select {
	case <-freed:
		return
	case <-ended: //nolint:errcheck // whatever ended it
	}
	select {
	case <-freed: // the connection was closed to free it
	default:
		w.cancel(errors.New("the connection that holds the lock of the queue ended"))
	}
}

// freeQueue frees the lock of the queue.
func (w *worker) freeQueue() {
	if w.locked != nil {
		close(w.freed)
		_ = w.locked.Close() // nothing is in progress on it
		w.locked = nil
	}
}

// close ends the work: the broker frees the locks.
func (w *worker) close() {
	w.cancel(nil)
	w.freeQueue()
	_ = w.conn.Unlock(topology.DeskWorkerName(w.desk.Topology.Name, w.run)) // closing the connection does it too
	_ = w.conn.Close()                                                      // nothing is in progress on it
	w.done.Wait()
}

// wish is a lock to acquire.
type wish struct {
	what  string // the connection does, for its name
	queue string // the lock
	// taken says that another holds the lock, and fix what to do about it.
	taken, fix string
	// wait is how long to try, and waiting is called with what it waits for; nil is not called.
	wait    time.Duration
	waiting func(line string)
}

// lock acquires a lock on a connection of its own. The error says that it is taken, who holds it,
// and what to do.
func (d *Desk) lock(ctx context.Context, l wish) (*amqp.Conn, error) {
	holder := ""
	for began := time.Now(); ; {
		conn, err := amqp.Dial(ctx, d.endpoint(l.what))
		if err != nil {
			return nil, err
		}
		if err = conn.Lock(l.queue); err == nil {
			return conn, nil
		}
		_ = conn.Close() // it holds nothing
		locked := errors.Is(err, amqp.ErrLocked)
		if !locked && !errors.Is(err, amqp.ErrLockEnding) {
			return nil, err
		}
		if time.Since(began) > l.wait {
			return nil, refusef("%s%s; %s", l.taken, cmp.Or(d.holder(ctx, l.queue), d.noHolder(ctx, l.queue)), l.fix)
		}
		if l.waiting != nil {
			if holder == "" { // the broker learns it from statistics, which are late
				holder = d.holder(ctx, l.queue)
			}
			l.waiting(fmt.Sprintf("%s%s; waiting up to %s", l.taken, holder, text.Duration(l.wait)))
		}
		if err := pause(ctx, lockPause); err != nil {
			return nil, err
		}
	}
}

// noHolder says why no connection is known to hold a lock.
func (d *Desk) noHolder(ctx context.Context, queue string) string {
	if d.Management == nil {
		return management.HolderUnknown
	}
	return d.Management.NoHolder(ctx, queue)
}

// holder describes who holds a lock. It is empty if the broker does not tell, or not yet.
func (d *Desk) holder(ctx context.Context, queue string) string {
	if d.Management == nil {
		return ""
	}
	h, ok := d.Management.Holder(ctx, queue)
	if !ok {
		return ""
	}
	return fmt.Sprintf(": %s from %s", h.Connection, h.Host)
}

// pause waits for a time, or until ctx ends. Then it returns why ctx ended.
func pause(ctx context.Context, t time.Duration) error {
	if wait.For(ctx, t) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// NoWorkerError is the refusal to stop a run that no process works on. It wraps ErrRefused.
type NoWorkerError struct{ error }

// Unwrap returns the refusal.
func (e NoWorkerError) Unwrap() error { return e.error }

// Cancel asks the process that works on a run to stop, also on one without a hold. What it has sent
// stays sent. It fails with a NoWorkerError if no process works on the run.
func (d *Desk) Cancel(ctx context.Context, id string) error {
	if err := d.permit(ctx, []permission{writing(topology.KindExchange, topology.DefaultExchange)}, nil); err != nil {
		return err
	}
	conn, err := amqp.Dial(ctx, d.endpoint("cancels "+id))
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := newOutlet(conn, 1)
	if err != nil {
		return err
	}
	err = p.publish(ctx, "", topology.DeskWorkerName(d.Topology.Name, id),
		amqp091.Publishing{Headers: amqp091.Table{"desk-by": d.By}})
	if errors.Is(err, errReturned) {
		return NoWorkerError{refusef("no process works on the run %s; 'dlxctl desk run resume %s' continues it, and 'dlxctl desk run return %s' gives back what its hold has", id, id, id)}
	}
	return err
}
