package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// lockFlags say how one apply keeps others of the same topology out.
type lockFlags struct {
	lock    bool
	timeout time.Duration
}

func (l *lockFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&l.lock, "lock", true, "keep others from applying the same topology meanwhile; needs the AMQP port")
	f.DurationVar(&l.timeout, "lock-timeout", 0, "how long to wait while somebody else holds the lock")
}

// take takes the lock of a topology, and gives the connection that holds it, nil
// without a lock. Closing it frees the lock; the broker does so when this process
// dies. It gives up only after it knows who holds it, or that the broker does not
// tell.
func (l lockFlags) take(ctx context.Context, a *app, m *broker.Management, want topology.Topology) (*broker.Conn, error) {
	if !l.lock {
		return nil, nil //nolint:nilnil // that nothing is held is no error
	}
	endpoint, err := a.endpointOf(a.conn, want)
	if err != nil {
		return nil, err
	}
	endpoint.ConnectionName = fmt.Sprintf("dlxctl apply %s (%s)", want.Name, whoami())
	began := time.Now()
	for try := 1; ; try++ {
		conn, err := l.await(ctx, a, m, endpoint, want.Name, began)
		if !errors.Is(err, broker.ErrLockEnding) || try == stumbles {
			return conn, err
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

const (
	// askEvery is the pause between two questions for a lock.
	askEvery = 500 * time.Millisecond
	// stumbles is how often the broker may fail at a lock that is just ending.
	stumbles = 5
)

// await takes the lock on a connection of its own. It waits for it until the
// timeout, counted from began.
func (l lockFlags) await(ctx context.Context, a *app, m *broker.Management, endpoint broker.Endpoint, name string, began time.Time) (*broker.Conn, error) {
	conn, err := broker.Dial(ctx, endpoint)
	if errors.Is(err, plan.ErrBroker) {
		return nil, err // without a lock it is the same broker
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w; --lock=false goes without a lock", err)
	}
	free := func() { _ = conn.Close() } // the broker frees the lock, whatever this says
	queue := topology.LockName(name)
	for holder, said := "", false; ; {
		err := conn.Lock(queue)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, broker.ErrLocked) {
			free()
			return nil, fmt.Errorf("lock: %w; --lock=false goes without a lock", err)
		}
		if holder == "" {
			holder = heldBy(ctx, m, queue, time.Since(began))
		}
		pause := askEvery
		if holder != "" {
			left := l.timeout - time.Since(began)
			if left <= 0 {
				free()
				return nil, fmt.Errorf("another dlxctl works on the topology %q%s; try again, or wait for it with --lock-timeout 5m", name, holder)
			}
			if !said {
				said = true
				fmt.Fprintf(a.stderr, "waiting up to %s: another dlxctl works on the topology %q%s\n", l.timeout, name, holder)
			}
			pause = min(pause, left)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			free()
			return nil, ctx.Err()
		}
	}
}

// tellTime is how long it may take until the broker tells who holds a lock: it
// learns that from statistics, which are 5 seconds apart. The lock may be free
// before: so we do not wait for the answer, but ask again after each try.
const tellTime = 7 * time.Second

// heldBy says who holds a lock. It is empty if the broker does not tell, but may
// yet: we have asked for less than tellTime.
func heldBy(ctx context.Context, m *broker.Management, queue string, asked time.Duration) string {
	h, ok := m.Holder(ctx, queue)
	if (!ok || h.Since.IsZero()) && asked < tellTime {
		return ""
	}
	if !ok {
		return " (the broker does not say who)"
	}
	text := fmt.Sprintf(": %s from %s", h.Connection, h.Host)
	if !h.Since.IsZero() {
		text += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	return text
}

// whoami names user and machine, for those whom we keep waiting.
func whoami() string {
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
