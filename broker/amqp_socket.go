package broker

import (
	"net"
	"sync"
	"time"
)

const (
	// writeTime is how long the broker may not read what is sent to it, unless it
	// says that an alarm is the reason.
	writeTime = time.Minute
	// unsentLimit is how many bytes may wait to be sent. More hold up the writer.
	unsentLimit = 256 << 10
)

// socket sends together what is written while it is sending: the library writes
// each message by itself, and one system call for each costs more than all else
// that is done with a small message.
//
// It also ends a connection on which sending hangs. A broker stops reading from
// whoever publishes to a queue that cannot keep up; if that queue does not come
// round, nobody would ever notice.
type socket struct {
	net.Conn

	mu      sync.Mutex
	changed *sync.Cond // any of those below
	unsent  []byte
	spare   []byte    // to write into next
	err     error     // why nothing more can be sent
	blocked bool      // by an alarm: sending may take for ever
	last    time.Time // when all is to end; zero is never
	ended   chan struct{}
}

func newSocket(conn net.Conn) *socket {
	s := &socket{Conn: conn, ended: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	go s.send()
	return s
}

// Write takes b over, to be sent at once. That something could not be sent it
// says the next time.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && len(s.unsent) > 0 && len(s.unsent)+len(b) > unsentLimit {
		s.changed.Wait()
	}
	if s.err != nil {
		return 0, s.err
	}
	s.unsent = append(s.unsent, b...)
	s.changed.Broadcast()
	return len(b), nil
}

// send sends until the connection is over.
func (s *socket) send() {
	defer close(s.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.err == nil && len(s.unsent) == 0 {
			s.changed.Wait()
		}
		if s.err != nil {
			return
		}
		b := s.unsent
		s.unsent, s.spare = s.spare[:0], nil
		err := s.limit()
		s.mu.Unlock()
		if err == nil {
			_, err = s.Conn.Write(b)
		}
		s.mu.Lock()
		s.spare = b
		if s.err == nil && err != nil {
			s.err = err
			_ = s.Conn.Close() // or the library would wait for answers
		}
		s.changed.Broadcast()
	}
}

// limit sets the deadline of the next write, and of the one that is under way.
func (s *socket) limit() error {
	switch {
	case !s.last.IsZero():
		return nil
	case s.blocked:
		return s.SetWriteDeadline(time.Time{})
	default:
		return s.SetWriteDeadline(time.Now().Add(writeTime))
	}
}

// block says whether an alarm is on.
func (s *socket) block(blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = blocked
	_ = s.limit() // a connection that is over says so at the next write
}

// SetDeadline ends all that is under way at t. Zero lifts it.
func (s *socket) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = t
	return s.Conn.SetDeadline(t)
}

// Close ends the connection. What is not sent by now is not sent: the library
// closes only after the broker has answered to its farewell.
func (s *socket) Close() error {
	s.mu.Lock()
	if s.err == nil {
		s.err = net.ErrClosed
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	err := s.Conn.Close()
	<-s.ended
	return err
}
