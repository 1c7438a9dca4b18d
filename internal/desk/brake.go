package desk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// brakeLength is how many failures may wait to be heard.
	brakeLength = 10_000
	// leastSent is how many messages must have been sent for a share to count.
	leastSent = 10
)

// brake hears each message of a run that fails again. It listens on the exchange to which the
// work queues dead-letter, so it hears a failure when the broker routes it, not after the last
// tier. Failures of other queues it hears once they come back to where the run took them, see echo.
// A nil brake hears nothing: it is that of a run whose messages cannot fail.
type brake struct {
	conn   *amqp.Conn     // nil if no queue dead-letters to the topology
	source *amqp.Consumer // as conn
	echo   *echo          // nil if all do
	// deaf says of each queue whose failures nothing hears, why.
	deaf map[string]string
	// listened are the queues whose failures conn hears.
	listened []string
	// lost is called with why conn has ended, unless close has ended it.
	lost func(why error)
	// begun is closed when the run begins to send, and over when it is over, or does not begin.
	begun, over chan struct{}
	// echoes are the queues whose failures only the echo hears.
	echoes []string
	idle   []string // see noteIdle
	run    string
	hold   string // the name of the hold of the run
	reader *deadletter.Reader
	heard  func(failures int)
	done   sync.WaitGroup

	mu     sync.Mutex
	seen   map[string]bool
	back   int // how many came back
	at     time.Time
	why    string
	key    string
	closed bool // close has begun
	cut    bool // conn has ended before
}

// listen starts to listen for failures of the messages that the session sends. It returns nil if
// they go to no consumer. It calls waiting with a line that says what it waits for, heard with how
// many have failed so far, and lost with why it hears no more.
func (s *session) listen(
	ctx context.Context, waiting func(string), heard func(int), lost func(error),
) (*brake, error) {
	m, d := s.manifest, s.worker.desk
	if m.back || m.Action.Kind().goes != toWork {
		return nil, nil //nolint:nilnil // a nil brake is a brake
	}
	b := &brake{
		run: m.Run, hold: topology.HoldName(d.Topology.Name, m.Run), reader: d.Reader, heard: heard, lost: lost,
		begun: make(chan struct{}), over: make(chan struct{}), seen: map[string]bool{}, deaf: map[string]string{},
	}
	if len(m.Listen) > 0 {
		var err error
		if b.conn, err = amqp.DialToConsume(ctx, d.endpoint("listens "+m.Run)); err != nil {
			return nil, err
		}
		if err = s.unchanging(ctx, waiting, func() error { return s.bind(ctx, b) }); err != nil {
			_ = b.conn.Close() // it unbinds the brake
			return nil, fmt.Errorf("listen for failures: %w", err)
		}
	}
	if b.source != nil {
		b.done.Go(b.hear)
	}
	if err := s.listenBack(ctx, b, waiting); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// listenBack hears what comes back of the queues that the brake does not listen to.
func (s *session) listenBack(ctx context.Context, b *brake, waiting func(string)) error {
	m, d := s.manifest, s.worker.desk
	if len(b.listened) == len(m.Watch) {
		return nil
	}
	state, err := d.inspect(ctx)
	if err != nil {
		return err
	}
	for _, queue := range m.Watch {
		switch {
		case slices.Contains(b.listened, queue):
		case slices.Contains(m.Echo, queue):
			b.echoes = append(b.echoes, queue)
		default:
			b.deaf[queue] = "its dead letters do not come back to " + text.Name(m.Queue)
		}
	}
	longest := idleTime
	if len(b.echoes) == 0 || len(m.Send.Ramp) == 0 {
		longest = 0 // no batch waits for what is heard there
	}
	b.echo, err = s.startEcho(ctx, state, b, longest, waiting)
	return err
}

// cameBack notes what has come back so far.
func (b *brake) cameBack(f failures) {
	b.mu.Lock()
	more := f.n > b.back
	if more {
		b.back, b.at, b.why, b.key = f.n, time.Now(), f.why, f.key
	}
	b.mu.Unlock()
	if more {
		b.tell()
	}
}

// noteIdle notes the queues that have messages and no consumer at this moment.
func (b *brake) noteIdle(queues []string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = queues
}

// unheard says of each queue whose failures are not heard, why, in words that follow its name.
func (b *brake) unheard() (out []string) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	deaf, idle, cut := maps.Clone(b.deaf), b.idle, b.cut
	b.mu.Unlock()
	if cut {
		for _, queue := range b.listened {
			deaf[queue] = "the connection that listened was lost"
		}
	}
	if b.echo != nil {
		if why := b.echo.deafness(); why != "" {
			for _, queue := range b.echoes {
				deaf[queue] = fmt.Sprintf("its dead letters come back to %s, which cannot be watched: %s",
					text.Name(b.echo.session.manifest.Queue), why)
			}
		}
	}
	for _, queue := range idle {
		deaf[queue] = "it has no consumer"
	}
	for _, queue := range slices.Sorted(maps.Keys(deaf)) {
		out = append(out, fmt.Sprintf("%s (%s)", text.Name(queue), deaf[queue]))
	}
	return out
}

// certain waits until the brake has heard what has failed so far. It returns why others keep it
// from that at this moment. Empty: they do not.
func (b *brake) certain(ctx context.Context) (busy string) {
	if b == nil {
		return ""
	}
	if busy = b.echo.check(ctx, true); len(b.echoes) == 0 {
		return "" // none of the failures comes back there
	}
	return busy
}

// atEnd is certain at the end of a run, which waits for no others: what they keep from it then is
// not heard.
func (b *brake) atEnd(ctx context.Context) {
	if busy := b.certain(ctx); busy != "" {
		b.echo.deafen(busy)
	}
}

// bind binds the brake where the failures of the queues are routed. It binds nothing else, and
// stops the run in the middle of a change: a failure that no other binding of the exchange matches
// takes the alternate exchange, which the binding of the brake would prevent. The failure would be
// lost. The caller has the lock of the topology, so that this stays as it is until the brake is
// bound; a change that begins afterwards finds the brake and takes other steps.
func (s *session) bind(ctx context.Context, b *brake) error {
	m, d := s.manifest, s.worker.desk
	state, err := d.inspect(ctx)
	if err != nil {
		return err
	}
	routes := failureRoutes(d.Topology, state)
	if why := unfinishedChange(m.Listen, routes); why != "" {
		return stopped(fmt.Sprintf("%s, then %s", why, s.again()))
	}
	var keys []string
	b.listened = nil
	for _, queue := range m.Listen {
		if routes[queue] {
			keys, b.listened = append(keys, failureKey(d.Topology, queue)), append(b.listened, queue)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	b.source, err = b.conn.Listen(b.hold+".brake", topology.FailedExchangeName(d.Topology.Name), keys, brakeLength,
		d.mark())
	return err
}

// hear hears failures until the connection ends, also one that only this connection has lost.
func (b *brake) hear() {
	defer b.deafened()
	for d := range b.source.Deliveries() {
		d = b.source.Take(d)
		// Nothing is lost: it is a copy in a queue of the desk's own.
		if b.source.Ack(d.DeliveryTag, false) != nil {
			return
		}
		if d.Headers[deadletter.HeaderRun] == b.run && b.note(d) {
			b.tell()
		}
	}
}

// tell tells the run how many messages have failed so far, once it has begun.
func (b *brake) tell() {
	select {
	case <-b.begun:
		b.heard(b.count())
	case <-b.over:
	}
}

// deafened notes that nothing hears failures any more, unless the run has ended.
func (b *brake) deafened() {
	b.mu.Lock()
	b.cut = !b.closed
	b.mu.Unlock()
	if b.cut {
		b.lost(fmt.Errorf("listen for failures: %w", b.source.Err()))
	}
}

// note counts a failure, once for each message: it fails again in each tier. It reports whether it
// is the first of the message.
func (b *brake) note(d amqp091.Delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Now()
	handle, _ := d.Headers[deadletter.HeaderHandle].(string)
	sum := sha256.Sum256(d.Body)
	id := handle + " " + d.MessageId + " " + hex.EncodeToString(sum[:8])
	if b.seen[id] {
		return false
	}
	b.seen[id] = true
	if b.reader != nil {
		// In a queue of dlxctl the reader believes what the consumer says: it came by NAME.failed.
		v := b.reader.Head(deadletter.Message{Delivery: d, Queue: b.hold})
		b.why, b.key = cmp.Or(v.Error, v.Cause), v.Key
	}
	return true
}

// count returns how many messages failed again.
func (b *brake) count() int {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen) + b.back
}

// last returns how many messages failed again, and why the last one did.
func (b *brake) last() (n int, why, key string) {
	if b == nil {
		return 0, "", ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen) + b.back, b.why, b.key
}

// heardAt returns when the last failure was heard; zero is never.
func (b *brake) heardAt() time.Time {
	if b == nil {
		return time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// lately describes the last failure.
func (b *brake) lately() string {
	_, why, key := b.last()
	if why == "" {
		return ""
	}
	return fmt.Sprintf(", the last one with key %q: %s", key, why)
}

// close ends the listening.
func (b *brake) close() {
	if b == nil {
		return
	}
	close(b.over)
	if b.echo != nil {
		b.echo.end()
	}
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.Close() // nothing is in progress on it
	}
	b.done.Wait()
}

// unheard stops the run, as nothing would stop it any more when messages fail again. One that has
// sent all, or that no failure could stop, goes on, and its result says what was not heard.
func (x *sender) unheard(why error) {
	if !x.pacer.sentAll() && x.pacer.stops() {
		x.cancel(why)
	}
}

// failedAgain stops the run once too many messages have failed again.
func (x *sender) failedAgain(failures int) {
	o, sent := x.manifest.Send, max(failures, x.pacer.progress().Done) // one may fail before its confirm is here
	switch {
	case o.StopFailures > 0 && failures >= o.StopFailures,
		o.StopShare > 0 && sent >= leastSent && float64(failures) >= o.StopShare*float64(sent):
		x.cancel(stopped(fmt.Sprintf("%d of %d messages failed again%s", failures, sent, x.brake.lately())))
	}
	x.pacer.awake() // a batch that has failed is judged at once
	x.tellSending()
}
