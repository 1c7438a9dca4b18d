package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
)

// With consumers that stay, migrate waits as long as --wait says, and then asks to be run again:
// also with an exclusive consumer, which allows no other.
func TestWaitIsKept(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, exclusive := range map[string]bool{"a consumer": false, "an exclusive consumer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			s.fill(t, 50, 10)
			ch := s.target.Channel(t)
			if err := ch.Qos(5, 0, false); err != nil {
				t.Fatal(err)
			}
			if _, err := ch.Consume("old", "", false, exclusive, false, false, nil); err != nil {
				t.Fatal(err)
			}
			r := s.runner(t)
			r.DrainNow, r.Wait = true, 3*time.Second
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // far longer than it needs on a busy machine
			defer cancel()
			err := r.Run(ctx)
			if !errors.Is(err, migrate.ErrWaiting) {
				t.Errorf("it ends with %v", err)
			}
			if exclusive && !strings.Contains(fmt.Sprint(err), "the queue old has an exclusive consumer") {
				t.Errorf("it does not name the cause: %v", err)
			}
			if !s.exists(t, "old") {
				t.Error("the legacy queue is gone")
			}
		})
	}
}

// A client that binds its queue at each publish, or each time it starts, keeps no run busy for much
// longer than --wait.
func TestBoundAgainAndAgain(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		queue       string
		every, idle time.Duration
	}{
		"at each publish": {"old", 20 * time.Millisecond, time.Second},
		"at each start":   {"old", 3 * time.Second, 4 * time.Second},
		"of an abort":     {"new", 20 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			aborts := tc.queue == "new"
			if aborts {
				s.cutOver(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ch := s.target.Channel(t)
			var service sync.WaitGroup
			service.Go(func() {
				for tick := time.Tick(tc.every); ctx.Err() == nil; <-tick {
					if err := ch.QueueBind(tc.queue, "", "f", false, nil); err != nil {
						t.Error(err)
					}
				}
			})
			r := s.runner(t)
			r.Wait, r.Idle = 2*time.Second, tc.idle
			run := r.Run
			if aborts {
				run = func(ctx context.Context) error { return r.Abort(ctx, s.without(t)) }
			}
			err := run(ctx)
			cancel()
			service.Wait()
			if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), tc.queue+" again and again") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A legacy queue that deletes itself, with messages, while migrate runs: it says so, and what the
// queue held. Once that is empty, nothing is lost.
func TestLegacyQueueVanishes(t *testing.T) {
	t.Parallel()
	for name, messages := range map[string]int{"with messages": 50, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			if messages > 0 {
				s.fill(t, messages, 10)
				brokertest.Eventually(t, "the messages to be counted",
					func() bool { return s.inspect(t).Usage["old"].Ready == int64(messages) })
			}
			var said strings.Builder
			r := s.runner(t)
			deleted := false
			r.Report = func(format string, args ...any) {
				fmt.Fprintf(&said, format+"\n", args...)
				if strings.HasPrefix(said.String()[strings.LastIndex(strings.TrimSpace(said.String()), "\n")+1:],
					"cutover: delete the switch") && !deleted {
					deleted = true
					if _, err := s.target.Channel(t).QueueDelete("old", false, false, false); err != nil {
						t.Error(err)
					}
				}
			}
			err := r.Run(t.Context())
			if !deleted {
				t.Fatalf("it did not come to the step:\n%s", &said)
			}
			if messages > 0 && (!errors.Is(err, migrate.ErrVanished) ||
				!strings.Contains(err.Error(), "it last held 50 messages")) {
				t.Errorf("it ends with %v, and said:\n%s", err, &said)
			}
			if messages == 0 && (err != nil ||
				!strings.Contains(said.String(), "the queue old was deleted while migrate ran, but not by migrate")) {
				t.Errorf("it ends with %v, and said:\n%s", err, &said)
			}
			s.tidy(t)
			if err := s.runner(t).Run(t.Context()); err != nil {
				t.Errorf("the next run ends with %v", err)
			}
		})
	}
}

// A history that no broker writes does not get into the new queue; one that a broker has written
// stays, whatever else the message has.
func TestDrainTakesOutMalformedHistory(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	ch := s.target.Channel(t)
	args := amqp091.Table{"x-message-ttl": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "old"}
	brokertest.Declare(t, ch, "before", args)
	if err := ch.Publish("", "before", true, false,
		amqp091.Publishing{MessageId: "true", Headers: amqp091.Table{"own": "kept"}}); err != nil {
		t.Fatal(err)
	}
	made := map[string]amqp091.Table{
		"text": {"x-death": "once"},
		"list": {"x-death": []any{"once"}},
		"count": {"x-death": []any{amqp091.Table{
			"queue": "new", "reason": "rejected", "exchange": "",
			"routing-keys": []any{"k"}, "time": time.Now(), "count": "1",
		}}},
		"float": {"x-death": []any{amqp091.Table{
			"queue": "new", "reason": "rejected", "exchange": "",
			"routing-keys": []any{"k"}, "time": time.Now(), "count": 1.5,
		}}},
		"first": {"x-first-death-queue": int32(1)},
		"bare":  {"x-death": []any{amqp091.Table{"queue": "new", "reason": "rejected", "count": int64(1)}}},
		"empty": {"x-death": []any{}},
		"none":  {"x-death": nil},
	}
	for id, headers := range made {
		headers["own"] = "kept"
		if err := ch.Publish("", "old", true, false, amqp091.Publishing{MessageId: id, Headers: headers}); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	r := s.runner(t)
	r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(made)+1; n++ {
		d, ok, err := ch.Get("new", true)
		if err != nil || !ok {
			t.Fatalf("%d of %d messages came: %v", n, len(made)+1, err)
		}
		_, has := d.Headers["x-death"]
		_, first := d.Headers["x-first-death-queue"]
		if d.Headers["own"] != "kept" || (has || first) != (d.MessageId == "true") {
			t.Errorf("message %s came with %v", d.MessageId, d.Headers)
		}
	}
	if want := fmt.Sprintf("the x-death of %d messages was not written by RabbitMQ",
		len(made)); !strings.Contains(said.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, &said)
	}
}
