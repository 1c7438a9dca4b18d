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
func (l lockFlags) take(ctx context.Context, a *app, m *broker.Management, name string) (*broker.Conn, error) {
	if !l.lock {
		return nil, nil //nolint:nilnil // that nothing is held is no error
	}
	endpoint, err := a.conn.Resolve()
	if err != nil {
		return nil, err
	}
	endpoint.ConnectionName = fmt.Sprintf("dlxctl apply %s (%s)", name, whoami())
	var conn *broker.Conn
	free := func() {
		if conn != nil {
			_ = conn.Close() // the broker frees the lock, whatever this says
		}
	}
	queue := topology.LockName(name)
	holder, said := "", false
	for began := time.Now(); ; {
		if conn == nil {
			if conn, err = broker.Dial(ctx, endpoint); err != nil {
				return nil, fmt.Errorf("lock: %w; --lock=false goes without a lock", err)
			}
		}
		err := conn.Lock(queue)
		if err == nil {
			return conn, nil
		}
		ending := errors.Is(err, broker.ErrLockEnding) && time.Since(began) < tellTime
		if !ending && !errors.Is(err, broker.ErrLocked) {
			free()
			return nil, fmt.Errorf("lock: %w; --lock=false goes without a lock", err)
		}
		if ending { // and so has the connection
			free()
			conn = nil
		} else if holder == "" {
			holder = heldBy(ctx, m, queue, time.Since(began))
		}
		pause := 500 * time.Millisecond
		if holder != "" && !ending {
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
	if (!ok || h.Since.Unix() <= 0) && asked < tellTime {
		return ""
	}
	if !ok {
		return " (the broker does not say who)"
	}
	text := fmt.Sprintf(": %s from %s", h.Connection, h.Host)
	if h.Since.Unix() > 0 {
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
