package relay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/relay"
)

func TestMain(m *testing.M) {
	os.Exit(brokertest.Main(m, func() error {
		return goleak.Find(goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
	}))
}

// line is a source and a sink in memory. Published messages are confirmed when the test asks for
// it; log holds what happened, in order.
type line struct {
	deliveries chan amqp091.Delivery
	settled    chan struct{}
	closeSink  func()
	onTheWay   []amqp091.Delivery // what arrives while the subscription is canceled
	seq        uint64
	drop       map[uint64]bool // by delivery tag
	partial    map[uint64]bool // by delivery tag
	nacks      bool            // it refuses messages by nacks

	mu        sync.Mutex
	left      []amqp091.Delivery // what basic.get finds
	confirmed []uint64           // numbers of publishings, not told yet
	refuse    map[uint64]string  // by the number of the publishing
	oldest    uint64             // the publishing whose confirm is missing
	late      []amqp.Outcome     // what is confirmed anyway, and not yet returned
	absent    map[string]bool    // exchanges
	log       []string
}

func newLine() *line {
	l := &line{deliveries: make(chan amqp091.Delivery, 100), settled: make(chan struct{}, 1), refuse: map[uint64]string{}}
	l.closeSink = sync.OnceFunc(func() { close(l.settled) })
	return l
}

func (l *line) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

// refusing makes the broker refuse these messages, and no others from now on.
func (l *line) refusing(seqs ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.refuse)
	for _, seq := range seqs {
		l.refuse[seq] = "no queue"
	}
}

// happened returns what happened since the last call.
func (l *line) happened() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return log
}

func (l *line) Deliveries() <-chan amqp091.Delivery { return l.deliveries }

func (l *line) Ack(tag uint64, multiple bool) error {
	l.note("ack %d %t", tag, multiple)
	return nil
}

func (l *line) Take(d amqp091.Delivery) amqp091.Delivery { return d }

func (l *line) Canceled() bool { return false }
func (l *line) Forget(uint64)  {}

func (l *line) Full() (bool, int) { return false, 0 }

func (l *line) Stop() error { return l.Cancel() }

func (l *line) Settle() error { return nil }

func (l *line) Cancel() error {
	l.note("cancel")
	for _, d := range l.onTheWay {
		l.deliveries <- d
	}
	l.onTheWay = nil
	close(l.deliveries)
	return nil
}

func (l *line) Resume() error {
	l.note("resume")
	l.deliveries = make(chan amqp091.Delivery, 100)
	return nil
}

func (l *line) Get() (amqp091.Delivery, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.left) == 0 {
		l.log = append(l.log, "get: empty")
		return amqp091.Delivery{}, false, nil
	}
	d := l.left[0]
	l.left = l.left[1:]
	return d, true, nil
}

// leave leaves a message that basic.get finds.
func (l *line) leave(d amqp091.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = append(l.left, d)
}

func (l *line) Publish(_, key string, _ amqp091.Publishing) (uint64, error) {
	l.seq++
	l.note("publish %s", key)
	return l.seq, nil
}

func (l *line) Settled() <-chan struct{} { return l.settled }

func (l *line) Outcomes() []amqp.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []amqp.Outcome
	for _, seq := range l.confirmed {
		out = append(out, amqp.Outcome{Seq: seq, Refused: l.refuse[seq], Nacked: l.nacks && l.refuse[seq] != ""})
	}
	l.confirmed = nil
	return out
}

func (l *line) Late() (uint64, []amqp.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := l.late
	l.late = nil
	return l.oldest, late
}

// missing holds back the confirm of one message, and lets those of others through.
func (l *line) missing(oldest uint64, confirmed ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldest = oldest
	for _, seq := range confirmed {
		l.late = append(l.late, amqp.Outcome{Seq: seq})
	}
}

// lacks removes an exchange, or restores it.
func (l *line) lacks(exchange string, absent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.absent = map[string]bool{exchange: absent}
}

func (l *line) isAbsent(exchange string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.absent[exchange]
}

func (l *line) Err() error { return errors.New("closed by the broker") }

// Move, Refused and Moved are a handler that sends each message to its own id, and refused ones to
// the id with a mark.
func (l *line) Move(d amqp091.Delivery) relay.Move {
	return relay.Move{
		Exchange: "to " + d.MessageId, Key: d.MessageId, Drop: l.drop[d.DeliveryTag], Partial: l.partial[d.DeliveryTag],
	}
}

func (l *line) Refused(d amqp091.Delivery, m relay.Move, reason string) relay.Move {
	if m.Partial {
		reason += ", partly"
	}
	l.note("refused %d: %s", d.DeliveryTag, reason)
	return relay.Move{Key: "parked " + d.MessageId}
}

func (l *line) Moved(_ amqp091.Delivery, m relay.Move) { l.note("moved %s", m.Key) }

// deliver hands over messages with the tags from first to last.
func (l *line) deliver(first, last uint64) {
	for tag := first; tag <= last; tag++ {
		l.deliveries <- amqp091.Delivery{DeliveryTag: tag, MessageId: fmt.Sprint(tag)}
	}
	synctest.Wait()
}

func (l *line) confirm(seqs ...uint64) {
	l.mu.Lock()
	l.confirmed = append(l.confirmed, seqs...)
	l.mu.Unlock()
	l.settled <- struct{}{}
	synctest.Wait()
}

// start runs a relay, and returns its stop function and its error.
func (l *line) start(t *testing.T, r relay.Relay) (stop context.CancelFunc, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r.Source, r.Sink, r.Handler = l, l, l
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	return cancel, func() error { cancel(); return <-ended }
}

// expect compares what happened since the last call.
func (l *line) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := l.happened(); !slices.Equal(got, want) {
		t.Errorf("happened:\n%q, want\n%q", got, want)
	}
}

// sleep advances the clock of the bubble.
func sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func inBubble(t *testing.T, f func(t *testing.T, l *line)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		defer l.closeSink()
		f(t, l)
	})
}

func TestNothingIsAcknowledgedBeforeItsConfirm(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{})
		l.deliver(1, 3)
		l.expect(t, "publish 1", "publish 2", "publish 3")
		l.confirm(2) // not the first: nothing may be named yet
		l.expect(t, "moved 2")
		l.confirm(1)
		l.expect(t, "moved 1", "ack 2 true")
		l.confirm(3)
		l.expect(t, "moved 3", "ack 3 true")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A dropped message is published nowhere, and acknowledged in its turn: not those before it, which
// are not confirmed.
func TestADroppedMessageIsAcknowledgedAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		l.drop = map[uint64]bool{2: true, 4: true}
		_, end := l.start(t, relay.Relay{})
		l.deliver(1, 3)
		l.expect(t, "publish 1", "moved 2", "publish 3")
		l.confirm(1)
		l.expect(t, "moved 1", "ack 2 true")
		l.confirm(2)
		l.expect(t, "moved 3", "ack 3 true")
		l.deliver(4, 4)
		l.expect(t, "moved 4", "ack 4 true")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

func TestOneAcknowledgementCoversMany(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{})
		l.deliver(1, 50)
		l.happened()
		var all []uint64
		for seq := uint64(1); seq <= 50; seq++ {
			all = append(all, seq)
		}
		l.confirm(all...)
		if acks := l.happened()[50:]; len(acks) > 2 || acks[len(acks)-1] != "ack 50 true" {
			t.Errorf("acknowledgements: %q", acks)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A refused message is tried again with growing pauses, then goes to the destination for refused
// ones; those behind it are acknowledged one by one meanwhile.
func TestARefusedMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		l.refusing(1)
		_, end := l.start(t, relay.Relay{})
		l.deliver(1, 1)
		l.confirm(1)
		l.deliver(2, 3)
		l.expect(t, "publish 1", "publish 2", "publish 3")
		l.confirm(2, 3)
		l.expect(t, "moved 2", "moved 3", "ack 2 false", "ack 3 false")

		l.refusing(4, 5, 6, 7)
		for n, pause := range []time.Duration{100, 200, 400} {
			sleep(pause*time.Millisecond - time.Millisecond)
			l.expect(t)
			sleep(time.Millisecond)
			l.expect(t, "publish 1")
			l.confirm(4 + uint64(n))
		}
		l.expect(t, "refused 1: no queue", "publish parked 1") // at once
		l.confirm(7)                                           // even that refuses it: it is kept, and tried on
		l.expect(t, "refused 1: no queue")
		sleep(time.Minute)
		l.expect(t, "publish parked 1")
		l.confirm(8)
		l.expect(t, "moved parked 1", "ack 1 true")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A nacked message that a queue may have is not published there again. One that was returned is in
// no queue: it is tried again, as others that are nacked.
func TestAPartialNackIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		partial, nacks bool
		want           []string
	}{
		"nacked, may be partial":   {true, true, []string{"refused 1: no queue, partly", "publish parked 1"}},
		"nacked, cannot be":        {false, true, []string{"publish 1"}},
		"returned, may be partial": {true, false, []string{"publish 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
				l.partial, l.nacks = map[uint64]bool{1: tc.partial}, tc.nacks
				l.refusing(1)
				_, end := l.start(t, relay.Relay{})
				l.deliver(1, 1)
				l.confirm(1)
				sleep(100 * time.Millisecond)
				l.expect(t, append([]string{"publish 1"}, tc.want...)...)
				l.confirm(2)
				if err := end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestStoppingFinishesMessagesInFlight(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		stop, end := l.start(t, relay.Relay{Grace: 10 * time.Second})
		l.deliver(1, 2)
		stop()
		synctest.Wait()
		l.expect(t, "publish 1", "publish 2", "cancel")
		l.confirm(1, 2)
		l.expect(t, "moved 1", "moved 2", "ack 2 true")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

func TestStoppingEndsAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{Grace: 10 * time.Second})
		l.deliver(1, 1)
		begin := time.Now()
		if err := end(); !errors.Is(err, relay.ErrGrace) {
			t.Errorf("Run gives %v", err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		l.expect(t, "publish 1", "cancel") // and no acknowledgement
	})
}

func TestAClosedChannelEndsTheRun(t *testing.T) {
	t.Parallel()
	for name, closing := range map[string]func(*line){
		"of the source": func(l *line) { close(l.deliveries) },
		"of the sink":   func(l *line) { l.closeSink() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
				_, end := l.start(t, relay.Relay{Grace: time.Second})
				l.deliver(1, 1)
				closing(l)
				if err := end(); err == nil || err.Error() != "closed by the broker" {
					t.Errorf("Run gives %v", err)
				}
				l.expect(t, "publish 1")
			})
		})
	}
}

// What was confirmed before the sink was closed is still acknowledged, or it would be duplicated.
func TestConfirmsBeforeAClosedSinkCount(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{Grace: time.Second})
		l.deliver(1, 3)
		l.mu.Lock()
		l.confirmed = []uint64{1, 2}
		l.mu.Unlock()
		l.closeSink()
		if err := end(); err == nil {
			t.Error("it goes on")
		}
		l.expect(t, "publish 1", "publish 2", "publish 3", "moved 1", "moved 2", "ack 2 true")
	})
}

// UntilEmpty: when nothing arrives any more the subscription ends, and what basic.get still finds
// is moved too.
func TestUntilEmpty(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		l.left = []amqp091.Delivery{{DeliveryTag: 2, MessageId: "2"}}
		_, end := l.start(t, relay.Relay{UntilEmpty: true})
		l.deliver(1, 1)
		sleep(time.Minute)
		l.expect(t, "publish 1") // in flight: it is not empty
		l.confirm(1)
		l.expect(t, "moved 1", "ack 1 true")
		sleep(time.Second)
		l.expect(t, "cancel", "publish 2", "resume")
		l.confirm(2)
		sleep(time.Second)
		l.expect(t, "moved 2", "ack 2 true", "cancel", "get: empty")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A broker that is slow to deliver does not make the relay fetch all messages one by one.
func TestASlowBrokerIsWaitedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		l.left = []amqp091.Delivery{{DeliveryTag: 1, MessageId: "1"}}
		_, end := l.start(t, relay.Relay{UntilEmpty: true})
		sleep(110 * time.Millisecond)
		l.expect(t, "cancel", "publish 1", "resume")
		l.confirm(1)
		sleep(150 * time.Millisecond) // longer than it waited the first time
		l.deliver(2, 4)
		l.expect(t, "moved 1", "ack 1 true", "publish 2", "publish 3", "publish 4")
		l.confirm(2, 3, 4)
		sleep(time.Second)
		l.expect(t, "moved 2", "moved 3", "moved 4", "ack 4 true", "cancel", "get: empty")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// Where a renewed subscription delivers nothing, as the messages that are held fill its prefetch,
// basic.get fetches the others.
func TestASubscriptionThatDeliversNothingIsNotRenewedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		for tag := uint64(1); tag <= 3; tag++ {
			l.left = append(l.left, amqp091.Delivery{DeliveryTag: tag, MessageId: fmt.Sprint(tag)})
		}
		_, end := l.start(t, relay.Relay{UntilEmpty: true})
		sleep(time.Second)
		l.expect(t, "cancel", "publish 1", "resume")
		l.confirm(1)
		sleep(time.Second)
		l.expect(t, "moved 1", "ack 1 true", "cancel", "publish 2")
		l.confirm(2)
		l.expect(t, "moved 2", "ack 2 true", "publish 3")
		l.confirm(3)
		l.expect(t, "moved 3", "ack 3 true", "get: empty")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// With Admit a message is taken in only once one is admitted, and a queue counts as empty only when
// another may be taken in.
func TestAdmitSetsThePace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		admit := make(chan struct{})
		_, end := l.start(t, relay.Relay{UntilEmpty: true, Admit: admit})
		go l.deliver(1, 2)
		sleep(time.Minute)
		l.expect(t) // nothing is admitted
		admit <- struct{}{}
		sleep(time.Minute)
		l.expect(t, "publish 1")
		l.confirm(1)
		sleep(time.Minute)
		l.expect(t, "moved 1", "ack 1 true") // the queue is not asked either
		admit <- struct{}{}
		sleep(time.Minute)
		l.expect(t, "publish 2")
		l.confirm(2)
		sleep(time.Minute)
		l.expect(t, "moved 2", "ack 2 true")
		admit <- struct{}{}
		sleep(time.Second)
		l.expect(t, "cancel", "get: empty")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// While nothing is admitted, messages that were delivered stay unacknowledged. The subscription is
// renewed before the broker takes them back (consumer_timeout).
func TestALongPauseRenewsTheSubscription(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{Admit: make(chan struct{})})
		go l.deliver(1, 2)
		sleep(9 * time.Minute)
		l.expect(t)
		sleep(2 * time.Minute)
		l.expect(t, "cancel")
		if err := end(); !errors.Is(err, relay.ErrAgain) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// Without room, messages wait in their order, and a run that is stopped leaves them to the broker.
func TestRoomKeepsTheOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		var places atomic.Int64
		places.Store(1)
		_, end := l.start(t, relay.Relay{Room: func() bool { return places.Add(-1) >= 0 || places.Add(1) > 0 }})
		l.deliver(1, 4)
		l.expect(t, "publish 1")
		l.confirm(1)
		sleep(time.Minute)
		l.expect(t, "moved 1", "ack 1 true")
		places.Add(2)
		sleep(time.Second)
		l.expect(t, "publish 2", "publish 3")
		l.confirm(2, 3)
		l.expect(t, "moved 2", "moved 3", "ack 3 true")
		if err := end(); err != nil {
			t.Error(err)
		}
		l.expect(t, "cancel")
	})
}

// A confirm that does not arrive, because the queue of that message has no leader: those behind it
// are acknowledged, and in the end the channel is abandoned.
func TestAMissingConfirmDelaysNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{ConfirmTimeout: time.Minute})
		l.deliver(1, 3)
		l.missing(1, 2)
		l.expect(t, "publish 1", "publish 2", "publish 3")
		sleep(2 * time.Second)
		l.expect(t, "moved 2", "ack 2 false")
		l.missing(1, 3)
		sleep(2 * time.Second)
		l.expect(t, "moved 3", "ack 3 false")
		l.missing(0)
		l.confirm(1)
		l.expect(t, "moved 1", "ack 1 true")
		l.confirm(2, 3) // confirmed twice; the second time has no effect
		l.expect(t)

		l.deliver(4, 4)
		l.missing(4)
		sleep(59 * time.Second)
		l.expect(t, "publish 4")
		sleep(3 * time.Second)
		if err := end(); !errors.Is(err, relay.ErrNoConfirm) {
			t.Errorf("Run gives %v", err)
		}
		l.expect(t)
	})
}

// A message for an exchange that does not exist waits, and is not published.
func TestAnAbsentExchangeDelaysNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		l.lacks("to 1", true)
		_, end := l.start(t, relay.Relay{Absent: l.isAbsent})
		l.deliver(1, 2)
		l.expect(t, "publish 2")
		l.confirm(1)
		l.expect(t, "moved 2", "ack 2 false")
		l.lacks("to 1", false)
		sleep(time.Second)
		l.expect(t, "publish 1")
		l.confirm(2)
		l.expect(t, "moved 1", "ack 1 true")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}
