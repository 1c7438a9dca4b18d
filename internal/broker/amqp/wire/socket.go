package wire

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeTime is how long the broker may leave unread what is sent to it, unless it has announced
	// an alarm as the reason.
	writeTime = time.Minute
	// unsentLimit is how many bytes may wait to be sent. A writer of more has to wait.
	unsentLimit = 256 << 10
)

// Socket sends in one system call what is written while the previous call is in progress: the
// library flushes after each message, and a system call for each costs more than everything else
// that is done with a small message.
//
// It also ends a connection on which sending hangs. A broker stops reading from a publisher whose
// queue cannot keep up; if that queue never recovers, the hang would go unnoticed.
//
// Upstream: one flush for each message (https://github.com/rabbitmq/amqp091-go/issues/141), and
// publishes that hang without a write deadline (https://github.com/rabbitmq/amqp091-go/issues/178
// and https://github.com/rabbitmq/amqp091-go/issues/288).
type Socket struct {
	net.Conn

	mu      sync.Mutex
	changed *sync.Cond // signals a change of the fields below
	unsent  []byte
	spare   []byte    // to write into next
	err     error     // why nothing more can be sent
	blocked bool      // by an alarm: sending may take forever
	last    time.Time // the deadline for everything; zero is none
	ended   chan struct{}
	why     atomic.Pointer[error] // why nothing more can be received
}

// NewSocket wraps a connection. Close ends the goroutine that sends.
func NewSocket(conn net.Conn) *Socket {
	s := &Socket{Conn: conn, ended: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	go s.send()
	return s
}

// Write buffers b, to be sent at once. It reports an error of sending at the next call.
func (s *Socket) Write(b []byte) (int, error) {
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

// Read reads, and remembers why it cannot any more.
func (s *Socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		s.why.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Ended returns the first error of Read. Nil: there was none.
func (s *Socket) Ended() error {
	if err := s.why.Load(); err != nil {
		return *err
	}
	return nil
}

// send sends until the connection is closed.
func (s *Socket) send() {
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

// limit sets the deadline of the next write, and of the one in progress.
func (s *Socket) limit() error {
	switch {
	case !s.last.IsZero():
		return nil
	case s.blocked:
		return s.SetWriteDeadline(time.Time{})
	default:
		return s.SetWriteDeadline(time.Now().Add(writeTime))
	}
}

// Block records whether the broker has announced an alarm.
func (s *Socket) Block(blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = blocked
	_ = s.limit() // a closed connection reports it at the next write
}

// SetDeadline ends everything in progress at t. The zero time lifts the deadline.
func (s *Socket) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = t
	return s.Conn.SetDeadline(t)
}

// Close ends the connection. Bytes that are not sent yet are dropped: the library closes only after
// the broker has answered its close.
func (s *Socket) Close() error {
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
