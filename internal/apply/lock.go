package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// askEvery is the pause between two tries to get the lock.
	askEvery = 500 * time.Millisecond
	// endingTries is how many times the broker may fail at a lock that is just ending.
	endingTries = 5
	// holderTime is how long it may take until the broker knows who holds a lock: it
	// learns that from statistics, which are 5 seconds apart. The lock may be free
	// before, so dlxctl does not wait for the answer, but asks again after each try.
	holderTime = 7 * time.Second
)

// LockError is the error of Lock when it did not get the lock.
type LockError struct {
	Err error
	// Fix is what to do about it with the flags of apply. Commands without these flags leave it out.
	Fix string
}

func (e *LockError) Error() string { return e.Err.Error() + "; " + e.Fix }

// Unwrap returns the problem without the fix.
func (e *LockError) Unwrap() error { return e.Err }

// Lock gets the lock of the topology for a command, which others then see as its holder, and opens
// the AMQP connection that holds it and makes the changes. Close frees it; the broker does so when
// the process dies.
//
// While another connection holds it, Lock tries again until timeout, and calls waiting
// once. It gives up only once it knows who holds the lock, or that the broker does not
// know.
func (s *Session) Lock(ctx context.Context, command string, timeout time.Duration,
	waiting func(line string),
) error {
	w := lockWait{session: s, endpoint: s.Endpoint, timeout: timeout, waiting: waiting, began: time.Now()}
	w.endpoint.ConnectionName = fmt.Sprintf("dlxctl %s %s (%s)", command, s.Topology.Name, Person())
	for try := 1; ; try++ {
		conn, err := w.connect(ctx)
		if err == nil {
			s.lock = conn
			s.Management.UseAMQP(conn)
			return nil
		}
		if !errors.Is(err, amqp.ErrLockEnding) || try == endingTries {
			return err
		}
		if err := wait.For(ctx, askEvery); err != nil {
			return err
		}
	}
}

// lockWait is one attempt to get the lock of a topology.
type lockWait struct {
	session  *Session
	endpoint broker.Endpoint
	timeout  time.Duration
	waiting  func(line string)
	began    time.Time
}

// connect gets the lock on a connection of its own.
func (w *lockWait) connect(ctx context.Context) (*amqp.Conn, error) {
	conn, err := amqp.Dial(ctx, w.endpoint)
	if errors.Is(err, plan.ErrBroker) {
		return nil, err // it is the same broker without a lock
	}
	if err != nil {
		return nil, unlocked(err)
	}
	if err := w.hold(ctx, conn); err != nil {
		_ = conn.Close() // the broker frees the lock, even if this fails
		return nil, err
	}
	return conn, nil
}

// unlocked returns the error of a lock that the broker did not give for another reason than that it
// is held. A user or a virtual host that the broker refuses would be refused without the lock too.
func unlocked(err error) error {
	if errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrNoVHost) || errors.Is(err, broker.ErrForbidden) {
		return err
	}
	return &LockError{
		Err: fmt.Errorf("lock: %w", err),
		Fix: "where only the management port can be reached, --lock=false does without the lock: " +
			"nothing else may change this topology meanwhile",
	}
}

// hold tries until conn holds the lock, or the time is over.
func (w *lockWait) hold(ctx context.Context, conn *amqp.Conn) error {
	name := w.session.Topology.Name
	queue := topology.LockName(name)
	for holder, said := "", false; ; {
		err := conn.Lock(queue)
		if err == nil {
			return nil
		}
		if !errors.Is(err, amqp.ErrLocked) {
			return unlocked(err)
		}
		if holder == "" {
			holder = w.holder(ctx, queue)
		}
		next := askEvery
		if holder != "" {
			left := w.timeout - time.Since(w.began)
			if left <= 0 {
				return &LockError{
					Err: fmt.Errorf("another dlxctl holds the lock of the topology %q%s", name, holder),
					Fix: "try again, or pass --lock-timeout 5m to wait",
				}
			}
			if !said {
				said = true
				w.waiting(fmt.Sprintf("waiting up to %s: another dlxctl holds the lock of the topology %q%s", text.Duration(w.timeout), name, holder))
			}
			next = min(next, left)
		}
		if err := wait.For(ctx, next); err != nil {
			return err
		}
	}
}

// holder describes the holder of a lock. It is empty if the broker does not know it yet,
// but may within holderTime.
func (w *lockWait) holder(ctx context.Context, queue string) string {
	h, ok := w.session.Management.Holder(ctx, queue)
	if (!ok || h.Since.IsZero()) && time.Since(w.began) < holderTime {
		return ""
	}
	if !ok {
		return w.session.Management.NoHolder(ctx, queue)
	}
	text := fmt.Sprintf(": %s from %s", h.Connection, h.Host)
	if !h.Since.IsZero() {
		text += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	return text
}

// Person names the user and the machine of this process, as user@host: for those who wait for a
// lock, and for the record of a run.
func Person() string {
	name := "unknown user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}
