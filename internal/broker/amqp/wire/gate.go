package wire

import "sync"

// Gate keeps deliveries from filling the memory. The broker limits them by number only, and the
// library reads everything that arrives from the socket. So Conn stops reading the socket while the
// unacknowledged deliveries have as many bytes as the limit. A delivery that is larger than the
// limit passes alone.
//
// A gate must not stay closed for long: a broker that cannot send ends the connection (after 35
// seconds, measured on 3.10.8, 4.0.5 and 4.3.6). The owner of a consumer asks Consumer.Full, and
// continues with fewer deliveries.
//
// Upstream: RabbitMQ refuses a prefetch size (https://github.com/rabbitmq/amqp091-go/issues/187),
// and the library buffers deliveries without a limit
// (https://github.com/streadway/amqp/issues/489).
type Gate struct {
	mu      sync.Mutex
	changed *sync.Cond
	limit   int      // bytes; zero is none
	lifted  bool     // the limit does not apply at the moment
	dropped bool     // deliveries are discarded: the broker still has them
	passed  []parcel // in the order of delivery
	bytes   int      // of passed
	full    bool     // a delivery had to wait
	largest int      // bytes of the largest delivery
}

// parcel is a delivery that was not acknowledged yet.
type parcel struct {
	tag   uint64
	bytes int
}

// NewGate returns an open gate without a limit.
func NewGate() *Gate {
	g := &Gate{}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// Begin starts to count the deliveries of a new channel. The limit is in bytes; zero means no
// limit.
func (g *Gate) Begin(limit int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.dropped, g.passed, g.bytes, g.full, g.largest = limit, false, nil, 0, false, 0
	g.changed.Broadcast()
}

// enter waits until a delivery may pass. It reports whether the delivery had to wait, and whether
// it is still wanted.
func (g *Gate) enter(tag uint64, bytes int) (waited, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.largest = max(g.largest, bytes)
	for g.limit > 0 && !g.dropped && !g.lifted && g.bytes > 0 && g.bytes+bytes > g.limit {
		waited, g.full = true, true
		g.changed.Wait()
	}
	if g.dropped {
		return waited, false
	}
	if g.limit > 0 {
		g.passed = append(g.passed, parcel{tag, bytes})
		g.bytes += bytes
	}
	return waited, true
}

// Release forgets a delivery, with multiple also all before it.
func (g *Gate) Release(tag uint64, multiple bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := g.passed[:0]
	for i, p := range g.passed {
		if p.tag > tag {
			kept = append(kept, g.passed[i:]...)
			break
		}
		if multiple || p.tag == tag {
			g.bytes -= p.bytes
		} else {
			kept = append(kept, p)
		}
	}
	g.passed = kept
	g.changed.Broadcast()
}

// Drop discards all deliveries that arrive from now on. Nothing is lost: they are never
// acknowledged, so the broker still has them.
func (g *Gate) Drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropped = true
	g.changed.Broadcast()
}

func (g *Gate) dropping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dropped
}

// Lift lets all deliveries pass until the returned function is called: an answer of the broker may
// be behind a delivery that waits.
func (g *Gate) Lift() (lower func()) {
	set := func(lifted bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lifted = lifted
		g.changed.Broadcast()
	}
	set(true)
	return func() { set(false) }
}

// State reports whether a delivery had to wait, and how many bytes the largest delivery had.
func (g *Gate) State() (full bool, largest int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.full, g.largest
}
