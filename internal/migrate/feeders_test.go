package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// homeMade makes a chain of queues through which what the old queue rejects comes back to it by
// its name, as many teams have made it by hand: each but the last leads to the next.
func (s *stage) homeMade(t *testing.T, typ string, ttl time.Duration, chain ...string) {
	t.Helper()
	ch := s.target.Channel(t)
	for i, name := range chain {
		next := "old"
		if i+1 < len(chain) {
			next = chain[i+1]
		}
		args := amqp091.Table{
			"x-queue-type": typ, "x-message-ttl": ttl.Milliseconds(), "x-dead-letter-exchange": "",
			"x-dead-letter-routing-key": next,
		}
		brokertest.Declare(t, ch, name, args)
	}
}

// ahead returns what --dry-run says.
func (s *stage) ahead(t *testing.T) string {
	t.Helper()
	return s.aheadOf(t, s.runner(t))
}

// aheadOf returns what --dry-run says of the queues of a runner.
func (s *stage) aheadOf(t *testing.T, r *migrate.Runner) string {
	t.Helper()
	var out strings.Builder
	if err := r.WritePreviews(&out, s.inspect(t), migrate.Previews(s.want, s.inspect(t), r.Legacy)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// rejectAll rejects n messages of a queue.
func (s *stage) rejectAll(t *testing.T, queue string, n int) {
	t.Helper()
	ch := s.target.Channel(t)
	for range n {
		var d amqp091.Delivery
		brokertest.Eventually(t, "a message to reject", func() (ok bool) {
			var err error
			if d, ok, err = ch.Get(queue, false); err != nil {
				t.Fatal(err)
			}
			return ok
		})
		if err := d.Reject(false); err != nil { // it is dead-lettered
			t.Fatal(err)
		}
	}
}

// What waits in a retry queue that was made by hand, and comes back to the legacy queue by its
// name, is waited for: the legacy queue is deleted only when that queue is proved empty.
func TestHomeMadeRetryQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		for name, chain := range map[string][]string{"one queue": {"old.wait"}, "two queues": {"old.wait", "old.wait2"}} {
			t.Run(typ+" "+name, func(t *testing.T) {
				t.Parallel()
				const n = 50
				s := newStage(t, typ, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "old.wait"})
				s.homeMade(t, typ, 8*time.Second, chain...)
				s.fill(t, n, 10)
				s.rejectAll(t, "old", n)
				var said strings.Builder
				r := s.runner(t)
				r.Wait = 60 * time.Second
				r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
				notes := s.ahead(t)
				if !strings.Contains(notes, "the queue old.wait ") ||
					!strings.Contains(notes, " by its name: old is deleted only once it is proved empty") {
					t.Errorf("the check does not tell of the retry queue: %s", notes)
				}
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, queue := range chain {
					if !strings.Contains(said.String(), "retire: no queue dead-letters to "+queue+" any more; if no service") {
						t.Errorf("it said:\n%s", &said)
					}
					if _, err := s.target.Channel(t).QueueDelete(queue, false, false, false); err != nil {
						t.Error(err)
					}
				}
				if got := s.count(t, "new"); len(got) != n || s.exists(t, "old") {
					t.Errorf("%d of %d messages came; the legacy queue is there: %t; it said:\n%s", len(got), n, s.exists(t, "old"),
						&said)
				}
			})
		}
	}
}

// While such a queue holds messages for longer than migrate waits, or others put messages there,
// the legacy queue is kept, and what comes goes on to the new queue.
func TestHomeMadeRetryQueueInUse(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	s.homeMade(t, "classic", time.Hour, "old.wait")
	ch := s.target.Channel(t)
	if err := ch.Publish("", "old.wait", true, false, amqp091.Publishing{MessageId: "m"}); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the message to be counted", func() bool { return s.inspect(t).Usage["old.wait"].Ready == 1 })
	r := s.runner(t)
	r.Wait = 2 * time.Second
	if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) ||
		!strings.Contains(err.Error(), "the queue old.wait holds 1 message and dead-letters to old by its name") {
		t.Errorf("while it holds a message, it ends with %v", err)
	}
	if _, err := ch.QueuePurge("old.wait", false); err != nil {
		t.Fatal(err)
	}
	brokertest.Bind(t, ch, "old.wait", "late", "d", nil)
	r = s.runner(t)
	r.Wait = 10 * time.Second
	if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) ||
		!strings.Contains(err.Error(), "can still get messages: the exchange d routes messages to it") {
		t.Errorf("while others put messages there, it ends with %v", err)
	}
	if !s.exists(t, "old") {
		t.Fatal("the legacy queue is gone")
	}
	if notes := s.ahead(t); !strings.Contains(notes, "until these stop; let it dead-letter to new") {
		t.Errorf("the check does not say what to do: %s", notes)
	}
	if _, err := ch.QueueDelete("old.wait", false, true, false); err != nil {
		t.Fatal(err)
	}
	args := amqp091.Table{
		"x-message-ttl": int64(500), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "new",
	}
	brokertest.Declare(t, ch, "old.wait", args)
	brokertest.Bind(t, ch, "old.wait", "late", "d", nil)
	s.send(t, "d", "late", "before", nil)
	if err := s.runner(t).Run(t.Context()); err != nil || s.exists(t, "old") {
		t.Errorf("when it dead-letters to the successor, it ends with %v", err)
	}
	s.send(t, "d", "late", "after", nil)
	s.collect(t, "new", 2)
}

// comeBack rejects the messages of a retry queue, one after the other with a pause: they leave it
// as if their time were over, by no clock. stop rejects those that are left at once.
func (s *stage) comeBack(t *testing.T, queue string, pause time.Duration) (stop func()) {
	t.Helper()
	ch := s.target.Channel(t)
	one := func() bool {
		d, ok, err := ch.Get(queue, false)
		return err == nil && ok && d.Reject(false) == nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for one() {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Retries that come back for longer than --wait are not taken for messages of a publisher that uses
// the name of the legacy queue. Where others can put messages there too, these never end.
func TestHomeMadeRetryQueueReturnsLater(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 500 // for more than a minute
	s := newStage(t, "classic", amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "old.wait"})
	s.homeMade(t, "classic", time.Hour, "old.wait")
	s.fill(t, n, 10)
	s.cutOver(t)
	s.rejectAll(t, "old", n)
	stop := s.comeBack(t, "old.wait", 150*time.Millisecond)
	s.until(t, migrate.Drain) // they do not keep it
	r := s.cautious(t)
	r.Idle, r.Wait = 3*time.Second, time.Second // a slow broker is quiet for a while, too
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) || strings.Contains(err.Error(), "publisher") ||
		!strings.Contains(err.Error(), "messages still come back to old by its name from old.wait") ||
		!strings.HasSuffix(err.Error(), "run it again, or with --wait 2h2m") {
		t.Errorf("it ends with %v", err)
	}
	ch := s.target.Channel(t)
	brokertest.Bind(t, ch, "old.wait", "late", "d", nil)
	if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) ||
		!strings.Contains(err.Error(), "can still get messages: the exchange d routes messages to it") {
		t.Errorf("while an exchange leads to it, it ends with %v", err)
	}
	brokertest.Unbind(t, ch, "old.wait", "late", "d", nil)
	stop()
	if err := s.cautious(t).Run(t.Context()); err != nil || s.exists(t, "old") {
		t.Errorf("the next one ends with %v", err)
	}
	s.collect(t, "new", n)
}

// A publisher that lets messages wait in a queue by its name, from which they come to the legacy
// queue, is known by one of them, and told of before. The legacy queue is kept until the user
// consents.
func TestPublisherThroughAHomeMadeDelay(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	s.homeMade(t, "classic", time.Second, "old.wait")
	if notes := s.ahead(t); !strings.Contains(notes, "no queue dead-letters to it: a publisher that sends to old.wait by its name must send to a queue that dead-letters to new") {
		t.Errorf("the check says:\n%s", notes)
	}
	s.send(t, "", "old.wait", "delayed", nil)
	var said strings.Builder
	r := s.cautious(t)
	r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "through a queue in which they waited") {
		t.Fatalf("it ends with %v", err)
	}
	r.Allow = plan.Allow(topology.DropsRouting)
	if err := r.Run(t.Context()); err != nil || s.exists(t, "old") {
		t.Fatalf("with consent, it ends with %v", err)
	}
	if !strings.Contains(said.String(),
		"retire: no queue dead-letters to old.wait any more; if no service publishes to it by its name, you may delete it\n") {
		t.Errorf("it says:\n%s", &said)
	}
	s.collect(t, "new", 1)
}

// A retry queue that dead-letters to an exchange with a name needs no word: its way moves along.
func TestRetryQueueWithANamedExchange(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	ch := s.target.Channel(t)
	args := amqp091.Table{"x-message-ttl": int64(4000), "x-dead-letter-exchange": "d", "x-dead-letter-routing-key": "a"}
	brokertest.Declare(t, ch, "old.wait", args)
	for i := range 10 {
		if err := ch.Publish("", "old.wait", true, false, amqp091.Publishing{MessageId: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if notes := s.ahead(t); strings.Contains(notes, "old.wait") {
		t.Errorf("the check tells of it: %s", notes)
	}
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	brokertest.Eventually(t, "all messages", func() bool {
		for id, n := range s.count(t, "new") {
			got[id] += n
		}
		return len(got) == 10
	})
}

// Abort leaves a migration alone that is finished: what its successor uses stays.
func TestAbortLeavesWhatIsFinished(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	file := fmt.Sprintf(topologyFile, "classic") + "  - {name: b2, replaces: b, bindings: [{exchange: d, key: b}]}\n"
	s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
	ch := s.target.Channel(t)
	brokertest.Declare(t, ch, "b", nil)
	brokertest.Bind(t, ch, "b", "b", "d", nil)
	finish := func(names ...string) *migrate.Runner {
		r := s.runner(t)
		r.Legacy = names
		return r
	}
	if err := finish("old").Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	finished := s.target.Definitions(t)
	r := finish("b")
	r.Until = migrate.Cutover
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := finish("old").Abort(t.Context(), s.without(t)); !errors.Is(err, migrate.ErrRefused) ||
		!strings.Contains(err.Error(), "old is done: its legacy queue is deleted") {
		t.Errorf("named, it ends with %v", err)
	}
	var said strings.Builder
	r = finish()
	r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	s.abort(t, r)
	if !strings.Contains(said.String(), "old is done: its legacy queue is deleted, and there is nothing to roll back") {
		t.Errorf("it said:\n%s", &said)
	}
	for _, o := range finished {
		found := false
		for _, now := range s.target.Definitions(t) {
			found = found || now == o
		}
		if !found {
			t.Errorf("gone: %s", o)
		}
	}
	if s.exists(t, "b2") {
		t.Error("the successor of the other is still there")
	}
	// A service that still declares the legacy queue does not make it undone.
	brokertest.Declare(t, ch, "old", nil)
	if err := finish().Abort(t.Context(), s.without(t)); err != nil || !s.exists(t, "new") {
		t.Errorf("once the legacy queue was declared again, it ends with %v; the successor exists: %t", err,
			s.exists(t, "new"))
	}
}

// An abort keeps the successor while a queue that dead-letters to it by its name holds messages.
func TestAbortWithAHomeMadeRetryQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	s.until(t, migrate.Drain)
	ch := s.target.Channel(t)
	args := amqp091.Table{
		"x-message-ttl": int64(3_600_000), "x-dead-letter-exchange": "",
		"x-dead-letter-routing-key": "new",
	}
	brokertest.Declare(t, ch, "new.wait", args)
	for i := range 10 {
		if err := ch.Publish("", "new.wait", true, false, amqp091.Publishing{MessageId: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	brokertest.Eventually(t, "the messages to be counted",
		func() bool { return s.inspect(t).Usage["new.wait"].Ready == 10 })
	if err := s.runner(t).Abort(t.Context(), s.without(t)); !errors.Is(err, migrate.ErrWaiting) ||
		!strings.Contains(err.Error(), "the queue new.wait holds 10 messages and dead-letters to new by its name") {
		t.Errorf("it ends with %v", err)
	}
	for range 10 { // they leave by rejection: a TTL may end before the abort has looked
		d, ok, err := ch.Get("new.wait", false)
		if err != nil || !ok {
			t.Fatalf("no message came: %t, %v", ok, err)
		}
		if err := d.Reject(false); err != nil {
			t.Fatal(err)
		}
	}
	s.abort(t, s.runner(t))
	if got := s.count(t, "old"); len(got) != 10 || s.exists(t, "new") {
		t.Errorf("%d of 10 messages came; the successor exists: %t", len(got), s.exists(t, "new"))
	}
}
