package broker

import (
	"net"
	"sync"
	"time"
)

// writeTime is how long the broker may not read what is sent to it, unless it
// says that an alarm is the reason.
const writeTime = time.Minute

// hurryConn ends a connection on which a write hangs. A broker stops reading from
// whoever publishes to a queue that cannot keep up; if that queue does not come
// round, nobody would ever notice, since the writes wait without end.
type hurryConn struct {
	net.Conn

	mu      sync.Mutex
	blocked bool      // by an alarm: writes may take for ever
	last    time.Time // when all is to end; zero is never
}

// Write writes within writeTime.
func (c *hurryConn) Write(b []byte) (int, error) {
	if err := c.hurry(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// hurry sets the deadline of the next write, and of the one that hangs.
func (c *hurryConn) hurry() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.last.IsZero():
		return nil
	case c.blocked:
		return c.SetWriteDeadline(time.Time{})
	default:
		return c.SetWriteDeadline(time.Now().Add(writeTime))
	}
}

// block says whether an alarm is on.
func (c *hurryConn) block(blocked bool) {
	c.mu.Lock()
	c.blocked = blocked
	c.mu.Unlock()
	_ = c.hurry() // a connection that is over says so at the next write
}

// SetDeadline ends all that is under way at t. Zero lifts it.
func (c *hurryConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = t
	return c.Conn.SetDeadline(t)
}
