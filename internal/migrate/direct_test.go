package migrate_test

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// publishByName publishes to the legacy queue by its name, once per interval, and waits for the
// confirms. stop gives how many were confirmed.
func (s *stage) publishByName(t *testing.T, every time.Duration, most int) (stop func() int) {
	t.Helper()
	ch := s.target.Confirming(t)
	returned := ch.NotifyReturn(make(chan amqp091.Return, 1000))
	quit, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n - len(returned) }()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n < most {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			c, err := ch.PublishWithDeferredConfirm("", "old", true, false,
				amqp091.Publishing{MessageId: fmt.Sprintf("direct-%d", n), DeliveryMode: amqp091.Persistent})
			if err != nil || !c.Wait() {
				return
			}
			n++
		}
		<-quit
	}()
	return func() int { close(quit); return <-done }
}

// count empties a queue and counts what was in it, by message-id.
func (s *stage) count(t *testing.T, queue string) map[string]int {
	t.Helper()
	return brokertest.Drain(t, s.target.Channel(t), queue)
}

// While a publisher sends to the legacy queue by its name, it is kept, and what
// comes goes on to the new queue: nothing is lost.
func TestPublishersByName(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		for name, tc := range map[string]struct {
			every time.Duration
			most  int
		}{
			"hundreds a second":      {brokertest.Pause(200 * time.Microsecond), 1 << 30},
			"every few milliseconds": {5 * time.Millisecond, 1 << 30},
			"every second":           {time.Second, 1 << 30},
		} {
			t.Run(typ+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, typ, nil)
				r := s.cautious(t)
				r.Idle, r.Wait = 5*time.Second, 4*time.Second // no pause of a busy machine is that long
				stop := s.publishByName(t, tc.every, tc.most)
				err := r.Run(t.Context())
				if !errors.Is(err, migrate.ErrWaiting) || !s.exists(t, "old") {
					t.Errorf("it ends with %v; the legacy queue exists: %t", err, s.exists(t, "old"))
				}
				published := stop() // from here on, the user may consent
				if err := s.runner(t).Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := s.count(t, "new")
				if len(got) != published || s.exists(t, "old") {
					t.Errorf("%d of %d messages came", len(got), published)
				}
				s.tidy(t)
			})
		}
	}
}

// With --forward the broker itself hands on what comes by name.
func TestForward(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "quorum", nil)
	stop := s.forwarding(t, 2*time.Second)
	if err := s.runner(t).Run(t.Context()); err != nil || !s.exists(t, "old") {
		t.Errorf("a second run ends with %v", err)
	}
	published := stop()
	if got := s.collect(t, "new", published); len(got) != published {
		t.Errorf("%d of %d messages came", len(got), published)
	}
	// When the service is changed at last, an operator deletes the queue, and the rest is removed.
	brokertest.Delete(t, s.target.Channel(t), "old")
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.tidy(t)
}

// A forwarder whose creation was interrupted, or that a foreign policy overrides, is
// put into effect by the next run, and forwards what has come meanwhile.
func TestForwarderNotInEffect(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			stop := s.forwarding(t, 5*time.Second)
			vhost := url.PathEscape(s.target.VHost)
			s.target.Call(t, "PUT", "policies/"+vhost+"/foreign", map[string]any{
				"pattern": "^old$", "apply-to": "queues", "priority": 7001, "definition": map[string]any{"max-length": 1000000},
			})
			ch := s.target.Channel(t)
			brokertest.Eventually(t, "messages to pile up", func() bool {
				q, err := ch.QueueDeclarePassive("old", true, false, false, false, nil)
				return err == nil && q.Messages > 3
			})
			var said strings.Builder
			r := s.runner(t)
			r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			brokertest.Eventually(t, "the policy to be seen, which statistics tell", func() bool {
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				return strings.Contains(said.String(), "stays and forwards to new")
			})
			published := stop()
			if got := s.collect(t, "new", published); len(got) != published {
				t.Errorf("%d of %d messages came", len(got), published)
			}
			if p := s.inspect(t); p.QueuePolicies["old"] != topology.SwitchPolicyName("shop", "old")+".forward" {
				t.Errorf("in effect is %q", p.QueuePolicies["old"])
			}
		})
	}
}

// An argument of the queue beats every policy: there is no forwarder then.
func TestNoForwarder(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", amqp091.Table{"x-dead-letter-exchange": "amq.fanout"})
	r := s.runner(t)
	r.Idle, r.Wait, r.Forward = 5*time.Second, time.Second, true
	stop := s.publishByName(t, 100*time.Millisecond, 1<<30)
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) ||
		!strings.Contains(err.Error(), "it cannot forward, as it was declared with x-dead-letter-exchange") {
		t.Errorf("it ends with %v", err)
	}
	published := stop()
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.count(t, "new"); len(got) != published {
		t.Errorf("%d of %d messages came", len(got), published)
	}
}

// What waits is moved as it is, in its order: every property, header types, the
// routing key.
func TestDrainKeepsMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", amqp091.Table{"x-max-priority": int64(5)})
	ch := s.target.Channel(t)
	sent := amqp091.Publishing{
		Headers: amqp091.Table{
			"i8": int8(1), "i16": int16(2), "i32": int32(3), "i64": int64(4), "f": 1.5, "t": true,
			"n": nil, "s": "x", "list": []any{int32(1), "a"}, "table": amqp091.Table{"k": int64(1)},
		},
		ContentType: "text/plain", ContentEncoding: "none", DeliveryMode: amqp091.Persistent, Priority: 3, CorrelationId: "c",
		ReplyTo:    "r",
		Expiration: "600000", MessageId: "m", Timestamp: time.Unix(1700000000, 0), Type: "t", AppId: "a",
		UserId: s.target.Username, Body: []byte("body"),
	}
	for n := range 3 {
		sent.MessageId = fmt.Sprintf("m-%d", n)
		if err := ch.Publish("t", "order.placed", true, false, sent); err != nil {
			t.Fatal(err)
		}
	}
	r := s.runner(t)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		d, ok, err := ch.Get("new", true)
		if err != nil || !ok {
			t.Fatalf("message %d is not there: %v", n, err)
		}
		got := amqp091.Publishing{
			Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
			Priority:      d.Priority,
			CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
			Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
		}
		want := sent
		want.MessageId, want.UserId = fmt.Sprintf("m-%d", n), ""
		want.Headers = amqp091.Table{"retry-user-id": s.target.Username}
		maps.Copy(want.Headers, sent.Headers)
		if diff := cmp.Diff(want, got); diff != "" || d.RoutingKey != "order.placed" {
			t.Errorf("message %d, key %s (-want +got):\n%s", n, d.RoutingKey, diff)
		}
	}
}
