package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// inTime is more than a drive needs to give up a silent connection, and less than the heartbeats of
// that connection.
const inTime = 30 * time.Second

// drives is a virtual host with a queue "from", whose messages a drive moves to the queue "to".
type drives struct {
	target brokertest.Target
	ch     *amqp091.Channel
	passes []error // how each ended
	// each is called with the id of each message that the drive is about to publish.
	each     func(id string)
	exchange string // to which it publishes
}

func newDrives(t *testing.T) *drives {
	t.Helper()
	x := brokertest.VHost(t)
	s := &drives{target: x, ch: x.Confirming(t), each: func(string) {}}
	for _, name := range []string{"from", "to"} {
		brokertest.Declare(t, s.ch, name, nil)
	}
	return s
}

// fill publishes messages with such an id and a number to the queue.
func (s *drives) fill(t *testing.T, id string, n int) {
	t.Helper()
	var messages []amqp091.Publishing
	for i := range n {
		messages = append(messages, amqp091.Publishing{MessageId: fmt.Sprintf("%s %d", id, i), Body: []byte("b")})
	}
	brokertest.PublishConfirmed(t, s.ch, "", "from", messages...)
}

// Move lets the broker close the channel over a message whose id begins with "deadly": no user may
// publish with the user-id of another.
func (s *drives) Move(d amqp091.Delivery) relay.Move {
	s.each(d.MessageId)
	m := relay.Republish(d, d.Headers)
	if strings.HasPrefix(d.MessageId, "deadly") {
		m.UserId = "another"
	}
	return relay.Move{Exchange: s.exchange, Key: "to", Message: m}
}

func (s *drives) Refused(_ amqp091.Delivery, m relay.Move, _ string) relay.Move { return m }
func (s *drives) Moved(amqp091.Delivery, relay.Move)                            {}

func endpoint(t *testing.T, x brokertest.Target) broker.Endpoint {
	t.Helper()
	e := managementtest.Endpoint(t, x)
	e.Heartbeat = time.Minute
	return e
}

// drive returns a drive of which few messages are in flight at once.
func (s *drives) drive(t *testing.T) relay.Drive {
	t.Helper()
	e := endpoint(t, s.target)
	return relay.Drive{
		Queue: "from", In: e, Out: e, Caution: &relay.Caution{Prefetch: 10, Bytes: 1 << 20},
		Relay:  relay.Relay{Handler: s, Grace: time.Second, UntilEmpty: true},
		Passed: func(err error) { s.passes = append(s.passes, err) },
	}
}

// proxied returns an endpoint behind a proxy.
func (s *drives) proxied(t *testing.T) (broker.Endpoint, *brokertest.Proxy) {
	t.Helper()
	target, wire := brokertest.NewProxy(t, s.target)
	return endpoint(t, target), wire
}

// holds waits until the queue "from" holds as many messages: those of a channel come back a moment
// after its end.
func (s *drives) holds(t *testing.T, n int) {
	t.Helper()
	brokertest.Eventually(t, fmt.Sprintf("%d messages in the queue", n),
		func() bool { return brokertest.Ready(t, s.ch, "from") == n })
}

// within returns what f returns, and fails the test if that takes too long.
func within(t *testing.T, f func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(inTime):
		t.Errorf("the drive has not ended after %s", inTime)
		return <-ended // before the brokers of the test are gone
	}
}

// Messages over which the broker closes the channel stay in the queue, and the others are moved,
// however many passes that takes: after one that says [relay.ErrAgain] the tries count anew.
func TestDriveHolds(t *testing.T) {
	t.Parallel()
	s := newDrives(t)
	const good, deadly = 15, 6
	s.fill(t, "deadly first", 1)
	s.fill(t, "good", good)
	s.fill(t, "deadly later", deadly)
	s.fill(t, "good last", good)
	if err := s.drive(t).Run(t.Context()); !errors.Is(err, relay.ErrHeld) {
		t.Fatalf("it ends with %v", err)
	}
	s.holds(t, 1+deadly)
	for id, n := range brokertest.Drain(t, s.ch, "from") {
		if !strings.HasPrefix(id, "deadly") || n != 1 {
			t.Errorf("%q is in the queue %d times", id, n)
		}
	}
	if moved := brokertest.Drain(t, s.ch, "to"); len(moved) != 2*good {
		t.Errorf("%d of %d messages were moved: %v", len(moved), 2*good, moved)
	}
	again, byMessage := 0, 0
	for _, err := range s.passes {
		why, closed := errors.AsType[*amqp.ClosedError](err)
		if errors.Is(err, relay.ErrAgain) {
			again++
		}
		if closed && why.ByMessage() {
			byMessage++
		}
	}
	if again == 0 || byMessage < 8 { // or the test shows nothing
		t.Errorf("%d passes say %v, and messages ended %d: %q", again, relay.ErrAgain, byMessage, s.passes)
	}
}

// Once messages have ended eight passes in a row, the drive ends. It pauses between them.
func TestDriveEndsAtTheEighthTry(t *testing.T) {
	t.Parallel()
	s := newDrives(t)
	s.fill(t, "good", 3)
	d := s.drive(t)
	d.Out, s.exchange = endpoint(t, s.target.User(t, "", "", "", "")), "amq.direct" // the user may not publish to it
	begin := time.Now()
	err := d.Run(t.Context())
	if why, closed := errors.AsType[*amqp.ClosedError](err); !closed || !why.ByMessage() || len(s.passes) != 8 {
		t.Errorf("it ends with %v after %d passes: %q", err, len(s.passes), s.passes)
	}
	if took := time.Since(begin); took < 7*200*time.Millisecond {
		t.Errorf("8 passes took %s", took)
	}
	s.holds(t, 3)
}

// A pass that no message has ended is the last. What is in flight then is finished.
func TestDriveMakesOnePass(t *testing.T) {
	t.Parallel()
	broken, noRight := errors.New("broken"), &amqp.ClosedError{Broker: true, Code: amqp091.AccessRefused}
	fails := func(err error) func(*testing.T, *drives, *relay.Drive, func()) {
		return func(_ *testing.T, s *drives, d *relay.Drive, _ func()) {
			began := make(chan struct{}, 3)
			s.each = func(string) { began <- struct{}{} }
			d.Relay.UntilEmpty = false
			d.Meanwhile = func(context.Context) error { <-began; return err }
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, s *drives, d *relay.Drive, stop func())
		want   error // nil: none, or that of a closed channel or connection
		closed bool
	}{
		"the queue is empty": {change: func(*testing.T, *drives, *relay.Drive, func()) {}},
		"it is told to stop": {func(_ *testing.T, s *drives, d *relay.Drive, stop func()) {
			d.Relay.UntilEmpty = false
			s.each = func(string) { stop() }
		}, context.Canceled, false},
		"it is told to stop when a message ends it": {func(t *testing.T, s *drives, d *relay.Drive, stop func()) {
			t.Helper()
			s.fill(t, "deadly", 1)
			passed := d.Passed
			d.Passed = func(err error) { passed(err); stop() }
		}, nil, true},
		"what runs meanwhile ends":  {change: fails(nil)},
		"what runs meanwhile fails": {fails(broken), broken, false},
		"and closes a channel":      {fails(noRight), noRight, false},
		"it fails as it is ended": {change: func(_ *testing.T, _ *drives, d *relay.Drive, _ func()) {
			d.Meanwhile = func(ctx context.Context) error { <-ctx.Done(); return broken }
		}},
		"Open fails": {func(_ *testing.T, _ *drives, d *relay.Drive, _ func()) {
			d.Open = func(context.Context, *amqp.Conn, *amqp.Conn) error { return broken }
		}, broken, false},
		"the user may not consume": {func(t *testing.T, s *drives, d *relay.Drive, _ func()) {
			t.Helper()
			d.In = endpoint(t, s.target.User(t, "", ".*", ".*", ""))
		}, broker.ErrForbidden, false},
		"there is no such queue": {func(_ *testing.T, _ *drives, d *relay.Drive, _ func()) {
			d.Queue = "another"
		}, broker.ErrNotFound, false},
		"the connection is lost": {func(t *testing.T, s *drives, d *relay.Drive, _ func()) {
			t.Helper()
			var wire *brokertest.Proxy
			d.Out, wire = s.proxied(t)
			s.each = func(string) { wire.Cut() }
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDrives(t)
			s.fill(t, "good", 3)
			d := s.drive(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			tc.change(t, s, &d, stop)
			err := within(t, func() error { return d.Run(ctx) })
			_, closed := errors.AsType[*amqp.ClosedError](err)
			if tc.closed != closed && tc.want == nil || !tc.closed && !errors.Is(err, tc.want) {
				t.Errorf("it ends with %v", err)
			}
			if len(s.passes) != 1 {
				t.Errorf("it makes %d passes: %q", len(s.passes), s.passes)
			}
		})
	}
}

// watched is a source whose cancellation another goroutine may ask for.
type watched struct {
	relay.Source

	mu sync.Mutex
}

func (w *watched) Canceled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Source.Canceled()
}

// RabbitMQ 4.3 cancels a consumer of a quorum queue that has not acknowledged in time, and delivers
// anew what it had. A drive that waits for its admission meanwhile publishes none of it twice.
func TestDriveIsCanceledWhileItWaits(t *testing.T) {
	t.Parallel()
	s := newDrives(t)
	if !s.target.AtLeast("4.3") {
		t.Skip("the broker closes the channel there")
	}
	const queue, n = "slow", 20
	args := amqp091.Table{"x-queue-type": "quorum", "x-consumer-timeout": int32(3000)}
	brokertest.Declare(t, s.ch, queue, args)
	var messages []amqp091.Publishing
	for i := range n {
		messages = append(messages, amqp091.Publishing{MessageId: fmt.Sprint(i), Body: []byte("b")})
	}
	brokertest.PublishConfirmed(t, s.ch, "", queue, messages...)
	d := s.drive(t)
	d.Queue = queue
	var taken atomic.Int32
	s.each = func(string) { taken.Add(1) }
	var admit chan struct{}
	var source *watched
	canceled := false
	d.Start = func(r *relay.Relay) {
		admit, source = make(chan struct{}), &watched{Source: r.Source}
		r.Admit, r.Source = admit, source
	}
	d.Meanwhile = func(ctx context.Context) error {
		for ctx.Err() == nil {
			for !canceled && taken.Load() > 2 && ctx.Err() == nil {
				canceled = source.Canceled()
				<-time.After(10 * time.Millisecond)
			}
			select {
			case admit <- struct{}{}:
			case <-ctx.Done():
			}
		}
		return nil
	}
	if err := within(t, func() error { return d.Run(t.Context()) }); err != nil || !canceled || len(s.passes) < 2 {
		t.Errorf("%v after %d passes", err, len(s.passes))
	}
	if got := brokertest.Ready(t, s.ch, "to"); got != n {
		t.Errorf("%d messages of %d have arrived", got, n)
	}
}

// When the broker has not answered for the grace period, whatever is in flight is in doubt: the
// error says so next to why the drive was to end, and the messages are in the queue again.
func TestDriveEndsInDoubt(t *testing.T) {
	t.Parallel()
	for name, inToo := range map[string]bool{"where it publishes": false, "everywhere": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDrives(t)
			s.fill(t, "good", 3)
			d := s.drive(t)
			out, wire := s.proxied(t)
			d.Out = out
			if inToo {
				d.In = out
			}
			silent, over := make(chan struct{}, 3), errors.New("the time is over")
			s.each = func(string) { wire.Hold(); silent <- struct{}{} }
			d.Meanwhile = func(context.Context) error { <-silent; return over }
			err := within(t, func() error { return d.Run(t.Context()) })
			if !errors.Is(err, over) || !errors.Is(err, relay.ErrGrace) || len(s.passes) != 1 {
				t.Errorf("it ends with %v after %d passes", err, len(s.passes))
			}
			if !inToo { // the broker does not hear that the other connection is closed
				s.holds(t, 3)
			}
		})
	}
}

// holding is a source whose connection falls silent once the subscription has ended.
type holding struct {
	relay.Source

	wire *brokertest.Proxy
}

func (h holding) Stop() error {
	err := h.Source.Stop()
	h.wire.Hold()
	return err
}

// A drive over connections that live longer closes its channels. On a silent connection that may
// hang: it ends with the grace period, and is not an error of a drive that had nothing in flight.
func TestDriveOverASilentConnection(t *testing.T) {
	t.Parallel()
	s := newDrives(t)
	d := s.drive(t)
	e, wire := s.proxied(t)
	in, out := connect(t, e, endpoint(t, s.target))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	d.Relay.UntilEmpty = false
	d.Start = func(r *relay.Relay) {
		r.Source = holding{r.Source, wire}
		stop()
	}
	err := within(t, func() error { return d.Over(ctx, in, out) })
	if !errors.Is(err, context.Canceled) || errors.Is(err, relay.ErrGrace) {
		t.Errorf("it ends with %v", err)
	}
}

// A broker that does not confirm may not hear either that a channel is closed: the connection is
// closed first. That over which the messages come lives on.
func TestDriveOverWithoutConfirms(t *testing.T) {
	t.Parallel()
	s := newDrives(t)
	s.fill(t, "good", 3)
	d := s.drive(t)
	e, wire := s.proxied(t)
	in, out := connect(t, endpoint(t, s.target), e)
	d.Relay.ConfirmTimeout = time.Second
	s.each = func(string) { wire.Hold() }
	if err := within(t, func() error { return d.Over(t.Context(), in, out) }); !errors.Is(err, relay.ErrNoConfirm) {
		t.Errorf("it ends with %v", err)
	}
	if !out.Closed() || in.Closed() {
		t.Errorf("closed: the connection that publishes %t, the other %t", out.Closed(), in.Closed())
	}
	s.holds(t, 3)
}

// Of a drive over connections that live longer no channel is left.
func TestDriveOverClosesItsChannels(t *testing.T) {
	t.Parallel()
	s := newDrives(t)
	s.fill(t, "good", 3)
	e := endpoint(t, s.target)
	in, out := connect(t, e, e)
	if err := s.drive(t).Over(t.Context(), in, out); err != nil {
		t.Error(err)
	}
	var channels []struct{ Name string }
	brokertest.Eventually(t, "only the channel of the test", func() bool {
		answer := s.target.Call(t, http.MethodGet, "vhosts/"+url.PathEscape(s.target.VHost)+"/channels", nil)
		return json.Unmarshal(answer, &channels) == nil && len(channels) == 1
	})
	if in.Closed() || out.Closed() {
		t.Error("it closes a connection")
	}
}

// connect opens connections that are closed when the test ends.
func connect(t *testing.T, consume, publish broker.Endpoint) (in, out *amqp.Conn) {
	t.Helper()
	in, err := amqp.DialToConsume(t.Context(), consume)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() }) // the drive may have closed it
	if out, err = amqp.Dial(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return in, out
}
