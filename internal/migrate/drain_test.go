package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// fill puts n messages of so many bytes into the old queue.
func (s *stage) fill(tb testing.TB, n, bytes int) {
	tb.Helper()
	ch := s.target.Confirming(tb)
	brokertest.Fill(tb, ch, "", "old", n, bytes)
}

// What waits is moved in its order, each message once, and told of.
func TestDrainInOrder(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			const n = 8_000
			s := newStage(t, typ, nil)
			s.fill(t, n, 100)
			r := s.runner(t)
			var told, total atomic.Int64
			r.Progress = func(messages int64) (step, finish func()) {
				total.Store(messages)
				return func() { told.Add(1) }, func() {}
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if told.Load() != n || total.Load() != n {
				t.Errorf("it told of %d of %d messages", told.Load(), total.Load())
			}
			ch := s.target.Channel(t)
			deliveries, err := ch.Consume("new", "order", true, true, false, false, nil) // alone, so in the queue's order
			if err != nil {
				t.Fatal(err)
			}
			timeout := time.After(time.Minute)
			for i := range n {
				select {
				case d := <-deliveries:
					if d.MessageId != fmt.Sprint(i) {
						t.Fatalf("message %d is %q", i, d.MessageId)
					}
				case <-timeout:
					t.Fatalf("message %d did not come within a minute", i)
				}
			}
			if err := ch.Cancel("order", false); err != nil {
				t.Fatal(err)
			}
			for d := range deliveries {
				t.Errorf("there is one more: %q", d.MessageId)
			}
			if _, more, err := ch.Get("new", true); more || err != nil {
				t.Errorf("there is one more: %t, %v", more, err)
			}
		})
	}
}

// A new queue that is full: what it does not take stays in the legacy queue, and
// is moved when there is room.
func TestDrainIntoAFullQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	file := strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "    replaces: old\n",
		"    replaces: old\n    arguments: {x-max-length: 10}\n", 1)
	// Given back more often than that, the broker would drop them: what comes while the
	// new queue is full already must not be taken at all.
	s := newStageIn(t, brokertest.VHost(t), file, "quorum", amqp091.Table{"x-delivery-limit": 2})
	const n = 3000 // more than are in flight at once: the broker looks at the length now and then
	s.fill(t, n, 10)
	for range 3 {
		r := s.runner(t)
		r.Wait = time.Second
		err := r.Run(t.Context())
		if !errors.Is(err, migrate.ErrWaiting) ||
			!strings.Contains(err.Error(), "new does not accept the messages of old, which stay there") {
			t.Errorf("it ends with %v", err)
		}
	}
	if !s.exists(t, "old") {
		t.Fatal("the legacy queue is gone")
	}
	stop := s.consume(t, "new")
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	confirmed := map[string]bool{}
	for i := range n {
		confirmed[fmt.Sprint(i)] = true
	}
	s.allArrive(t, confirmed)
	stop()
}

// A queue that drops its oldest messages when it is full, or dead-letters what it refuses, gets no
// more than it has room for, whether its messages come by a migration or by an abort: its consumers
// get all of them.
func TestDrainIntoAQueueThatDropsItsOldest(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 300
	sent := map[string]bool{}
	for i := range n {
		sent[fmt.Sprint(i)] = true
	}
	for _, overflow := range []string{"drop-head", "reject-publish-dlx"} {
		t.Run("migrate, "+overflow, func(t *testing.T) {
			t.Parallel()
			full := fmt.Sprintf("    replaces: old\n    arguments: {x-max-length: 10, x-overflow: %s}\n", overflow)
			file := strings.Replace(fmt.Sprintf(topologyFile, "classic"), "    replaces: old\n", full, 1)
			s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
			s.fill(t, n, 10)
			r := s.runner(t)
			r.Wait = time.Second
			err := r.Run(t.Context())
			if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "it is full, with 10 messages") {
				t.Errorf("without consumers it ends with %v", err)
			}
			stop := s.consumeAs(t, "new", 1, false, 2*time.Millisecond)
			if err := s.runner(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.allArrive(t, sent)
			if dead := s.ready(t, "shop.quick.failed"); dead > 0 {
				t.Errorf("%d dead letters were made", dead)
			}
			stop()
		})
	}
	t.Run("abort", func(t *testing.T) {
		t.Parallel()
		args := amqp091.Table{"x-max-length": 10}
		s := newStageIn(t, brokertest.VHost(t), fmt.Sprintf(topologyFile, "quorum"), "classic", args)
		r := s.runner(t)
		r.Until = migrate.Cutover
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		brokertest.Fill(t, s.target.Confirming(t), "f", "", n, 10)
		stop := s.consumeAs(t, "old", 1, false, 2*time.Millisecond)
		s.abort(t, s.runner(t))
		s.allArrive(t, sent)
		stop()
	})
}

// A message whose headers the broker itself has made larger than it takes from
// any queue is moved without what the broker added, and holds up no other message.
func TestDrainHeadersTooLarge(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	ch := s.target.Channel(t)
	args := amqp091.Table{"x-message-ttl": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "old"}
	brokertest.Declare(t, ch, "before", args)
	big := strings.Repeat("x", 130_900)
	if err := ch.PublishWithContext(t.Context(), "", "before", true, false,
		amqp091.Publishing{
			MessageId: "big", DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{"big": big},
			Body: []byte("b"),
		}); err != nil {
		t.Fatal(err)
	}
	s.fill(t, 3, 10)
	var said strings.Builder
	r := s.runner(t)
	r.Report = func(format string, a ...any) { fmt.Fprintf(&said, format+"\n", a...) }
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := false
	for {
		d, ok, err := ch.Get("new", true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		found = found || d.MessageId == "big" && d.Headers["big"] == big && string(d.Body) == "b"
	}
	if !found || !strings.Contains(said.String(), "1 message lost the x-death header that the broker had added") {
		t.Errorf("the large message came: %t; it said:\n%s", found, &said)
	}
}

// A drain whose publish hangs, since the broker takes nothing during an alarm and the
// socket is full, ends anyway: when its wait is over, and when it is told to.
// Nothing is lost.
func TestDrainEndsDuringAnAlarm(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	const n = 300
	cases := map[string]struct {
		s       *stage
		stopped bool
		want    []error // any of them
	}{
		"the wait is over": {want: []error{migrate.ErrWaiting}},
		// the latter before it publishes
		"told to stop": {stopped: true, want: []error{relay.ErrGrace, context.Canceled}},
	}
	for name, tc := range cases {
		tc.s = newStageIn(t, node.VHost(t), fmt.Sprintf(topologyFile, "classic"), "classic", nil)
		tc.s.cutOver(t)
		tc.s.fill(t, n, 200_000) // no socket takes all of them
		cases[name] = tc
	}
	node.Alarm(t, true)
	var ended sync.WaitGroup
	for name, tc := range cases {
		r := tc.s.runner(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.Wait = time.Second
		begin := time.Now()
		if tc.stopped {
			r.Wait = time.Hour
		}
		ended.Go(func() {
			err := r.Run(ctx)
			if !slices.ContainsFunc(tc.want, func(want error) bool { return errors.Is(err, want) }) {
				t.Errorf("%s: it ends with %v", name, err)
			}
			if took := time.Since(begin); took > 2*time.Minute {
				t.Errorf("%s: it took %s", name, took)
			}
		})
		if tc.stopped {
			ch := tc.s.target.Channel(t)
			brokertest.Eventually(t, "the messages to be taken", func() bool {
				q, err := ch.QueueDeclarePassive("old", true, false, false, false, nil)
				return err == nil && q.Messages == 0
			})
			stop()
		}
	}
	ended.Wait()
	node.Alarm(t, false)
	for name, tc := range cases {
		if err := tc.s.runner(t).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := tc.s.count(t, "new")
		if len(got) != n || tc.s.exists(t, "old") {
			t.Errorf("%s: %d of %d messages came", name, len(got), n)
		}
	}
}

// What a full queue gives back too often, the broker drops from a quorum queue that has
// a delivery limit and no dead-letter exchange: that is said before, and which queue needs no
// migration.
func TestPreviewOfADeliveryLimit(t *testing.T) {
	t.Parallel()
	const limit, dlx = "x-delivery-limit", "x-dead-letter-exchange"
	for name, tc := range map[string]struct {
		typ  string
		args amqp091.Table
		said bool
		stay bool
	}{
		"a limit":                 {"quorum", amqp091.Table{limit: int64(3)}, true, false},
		"a limit, and a way out":  {"quorum", amqp091.Table{limit: int64(3), dlx: "amq.fanout"}, false, false},
		"so high that it is none": {"quorum", amqp091.Table{limit: topology.Unlimited}, false, false},
		"classic":                 {"classic", nil, false, false},
		"no arguments":            {"quorum", nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, tc.typ, tc.args)
			said, stay := false, false
			for _, o := range migrate.Previews(s.want, s.inspect(t), nil) {
				for _, n := range o.Notes {
					said = said || strings.Contains(n.Text, "requeued more often than the limit")
					stay = stay || strings.Contains(n.Text, "under its own name, without a migration")
				}
			}
			if said != tc.said && name != "no arguments" { // 4.0 and later have a limit by default
				t.Errorf("it is said: %t", said)
			}
			if stay != (tc.stay && s.target.AtLeast(topology.FirstNative)) {
				t.Errorf("that it can stay is said: %t", stay)
			}
		})
	}
}
