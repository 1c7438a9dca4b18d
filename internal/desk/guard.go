package desk

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// guardPause is the shortest pause between two reads of the policies while a run takes. Where they
	// are many, the pause is guardRest times as long as the read.
	guardPause = 50 * time.Millisecond
	guardRest  = 3
	// guardLag is how long before a read the hold must have confirmed a copy: in a cluster, the node
	// that answers may know a policy later than the node of the hold.
	guardLag = 250 * time.Millisecond
	// copiedMost is how many messages wait at most to be acknowledged, until the next read. Their
	// headers are in memory.
	copiedMost = 10_000
)

// guard tells of which copies in a hold no policy can take any away.
//
// A message-ttl holds for the messages that a quorum queue gets while it is in effect, also after
// it has gone, and for no others; and a policy can be read before it is in effect (3.10.8, 4.0.5
// and 4.3.6, measured). So a copy stays if no such policy was there when the policies were read
// after the hold had confirmed the copy. Until then the message is not acknowledged. A policy that
// is set and deleted between two reads is not seen.
type guard struct {
	mu   sync.Mutex
	safe time.Time // copies that the hold had confirmed by then stay
	err  error     // why no more of them will

	read chan struct{} // has one once the policies were read
	end  func()
}

// guardHold begins to read the policies, until ctx ends or the guard is closed.
func (w *worker) guardHold(ctx context.Context, m *manifest) (*guard, error) {
	hold, err := w.desk.holdOf(m)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &guard{read: make(chan struct{}, 1)}
	var reading sync.WaitGroup
	reading.Go(func() { g.watch(ctx, w.desk, hold) })
	g.end = func() { cancel(); reading.Wait() }
	return g, nil
}

func (g *guard) watch(ctx context.Context, d *Desk, hold topology.Queue) {
	for failed := 0; g.why() == nil; {
		began := time.Now()
		safe := began.Add(-guardLag)
		state, err := d.Management.ReadPolicies(ctx, *d.last.Load())
		wait := max(cmp.Or(d.guards, guardPause), guardRest*time.Since(began))
		g.mu.Lock()
		switch {
		case err == nil:
			failed = 0
			if why := d.refusePolicies(state, hold); why != nil {
				g.err = stopped(why.Error())
			} else {
				g.safe = safe
			}
		case ctx.Err() != nil:
			g.err = context.Cause(ctx)
		default:
			wait = roomTime
			if failed++; failed == roomTries {
				g.err = fmt.Errorf("read the policies on the hold: %w", err)
			}
		}
		g.mu.Unlock()
		select {
		case g.read <- struct{}{}:
		default:
		}
		if err := pause(ctx, wait); err != nil {
			return
		}
	}
}

// why returns why no more copies will be safe. Nil: they may.
func (g *guard) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// covers reports whether a copy stays that the hold had confirmed at that time.
func (g *guard) covers(confirmed time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !confirmed.After(g.safe)
}

// await waits until a copy is known to stay that the hold had confirmed at that time.
func (g *guard) await(ctx context.Context, confirmed time.Time) error {
	for !g.covers(confirmed) {
		if err := g.why(); err != nil {
			return err
		}
		select {
		case <-g.read:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// copied is a message of which the hold has a copy, which it has confirmed at a time.
type copied struct {
	held amqp.Held
	key  fingerprint
	at   time.Time
}

// acknowledgeCopied acknowledges messages of which the hold has a copy that stays: those that have
// one by now, or all, for which it waits.
//
// Nothing is lost: the broker has confirmed the copy of each in the hold, and no policy takes it
// away, see guard. Of a process that ends before that, the queue has all that the hold may lose,
// see worker.dropDoubles.
func (t *taking) acknowledgeCopied(ctx context.Context, all bool) error {
	var why error
	if n := len(t.copied); all && n > 0 {
		why = t.guard.await(ctx, t.copied[n-1].at)
	}
	n := 0
	for ; n < len(t.copied) && t.guard.covers(t.copied[n].at); n++ {
		m := t.copied[n].held
		t.taken++
		t.inHold[t.copied[n].key]++
		t.acked++
		if err := t.holder.Ack(m); err != nil {
			return err
		}
	}
	t.copied = t.copied[n:]
	if why == nil && all && t.left+t.surplus > 0 {
		why = t.guard.why()
	}
	return why
}
