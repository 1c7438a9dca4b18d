package migrate_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// shared makes queues that are bound to the exchange work by their names. Those that retry
// dead-letter through the exchange retry to one queue, shared, which returns each message to the
// queue that its key names. The file replaces those of legacy. The type may be at-least-once:
// quorum queues, of which shared dead-letters so.
func shared(t *testing.T, typ string, ttl time.Duration, retry, lose, legacy []string) *stage {
	t.Helper()
	args := amqp091.Table{"x-message-ttl": ttl.Milliseconds(), "x-dead-letter-exchange": ""}
	if typ == "at-least-once" {
		typ, args["x-dead-letter-strategy"], args["x-overflow"] = "quorum", typ, "reject-publish"
	}
	args["x-queue-type"] = typ
	file := "version: 1\nname: shop\ndefaults: {backoff: quick, type: " + typ + "}\nbackoff: {quick: {tiers: [100ms]}}\n" +
		"exchanges: [{name: work, type: direct}]\nqueues:\n"
	for _, q := range legacy {
		file += fmt.Sprintf("  - {name: %s.v2, replaces: %s, bindings: [{exchange: work, key: %s}]}\n", q, q, q)
	}
	s := newStageIn(t, brokertest.VHost(t), file, "", nil)
	ch := s.target.Channel(t)
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(ch.ExchangeDeclare("work", "direct", true, false, false, false, nil))
	must(ch.ExchangeDeclare("retry", "headers", true, false, false, false, nil))
	_, err := ch.QueueDeclare("shared", true, false, false, false, args)
	must(err)
	must(ch.QueueBind("shared", "", "retry", false, nil))
	for _, q := range slices.Concat(retry, lose) {
		args := amqp091.Table{"x-queue-type": typ}
		if slices.Contains(retry, q) {
			args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "retry", q
		}
		_, err := ch.QueueDeclare(q, true, false, false, false, args)
		must(err)
		must(ch.QueueBind(q, q, "work", false, nil))
	}
	return s
}

// fail rejects whatever comes to a queue, until the test ends: its messages come back without end.
// It counts in s.seen how often each has come.
func (s *stage) fail(t *testing.T, queue string) {
	t.Helper()
	deliveries := brokertest.Consume(t, s.target.Channel(t), queue, 0)
	go func() {
		for d := range deliveries {
			s.mu.Lock()
			s.seen[d.MessageId]++
			s.mu.Unlock()
			_ = d.Reject(false)
		}
	}()
}

// goOn waits until messages have come to a queue of fail once more each.
func (s *stage) goOn(t *testing.T, ids ...string) {
	t.Helper()
	came := func(id string) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.seen[id]
	}
	for _, id := range ids {
		before := came(id)
		brokertest.Eventually(t, "another delivery of "+id, func() bool { return came(id) > before })
	}
}

// once fails the test unless each of n messages of a queue is in another one exactly once.
func (s *stage) once(t *testing.T, queue, to string, n int) {
	t.Helper()
	got := s.collect(t, to, n)
	for i := range n {
		if id := fmt.Sprint(queue, "-", i); got[id] != 1 {
			t.Errorf("%s came %d times", id, got[id])
		}
	}
	if len(got) != n || s.exists(t, queue) {
		t.Errorf("%s: %d of %d messages came; the legacy queue is there: %t", queue, len(got), n, s.exists(t, queue))
	}
}

// quantity returns n names with a prefix.
func quantity(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i))
	}
	return out
}

// listen returns a runner without consent, and what it says.
func (s *stage) listen(t *testing.T) (*migrate.Runner, *strings.Builder) {
	t.Helper()
	var said strings.Builder
	r := s.cautious(t)
	r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	return r, &said
}

// Queues that share a retry queue with one that stays, and queues without one. The retry queue is
// never empty, and holds messages of the former at the beginning. All migrations end, no message
// is lost or doubled, and the queue that stays retries as before: the advice is to do nothing.
func TestSharedRetryQueueStays(t *testing.T) {
	t.Parallel()
	for _, typ := range brokertest.Share([]string{"classic", "quorum"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			retry, lose := quantity("r", 7), quantity("x", 3)
			legacy := slices.Concat(retry, lose)
			s := shared(t, typ, 3*time.Second, append(slices.Clone(retry), "stays"), lose, legacy)
			for i := range 20 {
				s.send(t, "work", "stays", fmt.Sprint("stays-", i), nil)
			}
			s.fail(t, "stays")
			for _, q := range legacy {
				for i := range 10 {
					s.send(t, "work", q, fmt.Sprint(q, "-", i), nil)
				}
			}
			for _, q := range retry {
				s.rejectAll(t, q, 5)
			}
			note := "shared stays: 1 other queue retries through it (stays). Nothing to do."
			r, said := s.listen(t)
			r.Legacy = []string{"r00"}
			if notes := s.aheadOf(t, r); strings.Contains(notes, "delete it") ||
				!strings.Contains(notes, "shared stays: 7 other queues retry through it (r01, r02 and 5 more). Nothing to do.") {
				t.Errorf("the check says:\n%s", notes)
			}
			r.Legacy = nil
			if err := r.Run(t.Context()); err != nil {
				t.Fatalf("it ends with %v:\n%s", err, said)
			}
			if strings.Count(said.String(), note) != 1 || strings.Contains(said.String(), "delete it") {
				t.Errorf("it says:\n%s", said)
			}
			for _, q := range legacy {
				s.once(t, q, q+".v2", 10)
			}
			s.send(t, "work", "stays", "late", nil)
			s.goOn(t, "stays-0", "stays-19", "late", "late")
		})
	}
}

// Where another queue retries through the same queue as a legacy one, migrate names the rights for
// canaries before it writes anything, and with those it ends.
func TestSharedRetryQueueRights(t *testing.T) {
	t.Parallel()
	s := shared(t, "quorum", time.Second, []string{"r00", "other"}, nil, []string{"r00"})
	s.send(t, "work", "other", "other-0", nil)
	s.fail(t, "other")
	for i := range 10 {
		s.send(t, "work", "r00", fmt.Sprint("r00-", i), nil)
	}
	s.rejectAll(t, "r00", 5)
	dlxctl, own := brokertest.Program(t), `shop\..*|r00.*|work|retry|shared|other`
	run := func(write string) (string, error) {
		s.user = s.target.User(t, "management,policymaker", "^("+own+")$", "^("+own+write+")$", "^("+own+")$")
		c, out := s.command(t, dlxctl, "r00", "--yes", "--settle", "50ms", "--idle", "1s")
		err := c.Run()
		return out.String(), err
	}
	before := s.target.Definitions(t)
	named := "nothing was written:\n  write: exchange \"amq.default\"\n"
	if out, err := run(""); err == nil || !strings.Contains(out, named) {
		t.Errorf("without the right it ends with %v:\n%s", err, out)
	}
	if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
		t.Errorf("definitions (-before +after):\n%s", d)
	}
	if out, err := run(`|amq\.default`); err != nil {
		t.Fatalf("it ends with %v:\n%s", err, out)
	}
	s.once(t, "r00", "r00.v2", 10)
}

// A retry queue that no other queue uses becomes empty without a canary: a user who may not send
// one reads for what the run waits.
func TestRetryQueueWithoutCanaries(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := shared(t, "classic", 15*time.Second, []string{"old"}, nil, []string{"old"})
	s.send(t, "work", "old", "old-0", nil)
	s.rejectAll(t, "old", 1)
	s.connect(t, s.target.User(t, "management,policymaker", `^(?!shop\.verify)`, ".*", ".*"))
	r, said := s.listen(t)
	if err := r.Run(t.Context()); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if !strings.Contains(said.String(), ", as the queue shared holds 1 message and ") {
		t.Errorf("it says:\n%s", said)
	}
	s.once(t, "old", "old.v2", 1)
}

// When all queues that shared a retry queue are migrated, the advice is to delete it, and doing so
// loses nothing.
func TestSharedRetryQueueIsLeft(t *testing.T) {
	t.Parallel()
	legacy := quantity("r", 3)
	s := shared(t, "quorum", 2*time.Second, legacy, nil, legacy)
	for _, q := range legacy {
		for i := range 10 {
			s.send(t, "work", q, fmt.Sprint(q, "-", i), nil)
		}
		s.rejectAll(t, q, 5)
	}
	r, said := s.listen(t)
	if err := r.Run(t.Context()); err != nil {
		t.Fatalf("it ends with %v:\n%s", err, said)
	}
	if !strings.Contains(said.String(), "retire: no queue dead-letters to shared any more; if no service publishes to the exchange retry, you may delete it once it is empty\n") {
		t.Errorf("it says:\n%s", said)
	}
	if n := s.ready(t, "shared"); n > 0 {
		t.Errorf("%d messages are in the retry queue", n)
	}
	if _, err := s.target.Channel(t).QueueDelete("shared", false, false, false); err != nil {
		t.Error(err)
	}
	for _, q := range legacy {
		s.send(t, "work", q, q+"-10", nil)
		s.once(t, q, q+".v2", 11)
	}
}

// A run is killed while its canaries wait in a shared retry queue, behind messages of the legacy
// queue. The next one waits until all messages are back, of whatever priority. The canaries of both
// reach no other queue, and their own one is deleted.
func TestSharedRetryQueueIsSlow(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for _, typ := range brokertest.Share([]string{"classic", "at-least-once"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			const n, wait = 12, 15 * time.Second
			s := shared(t, typ, wait, []string{"old", "stays"}, nil, []string{"old"})
			s.send(t, "work", "stays", "stays-0", nil)
			s.fail(t, "stays")
			for i := range n {
				m := amqp091.Publishing{MessageId: fmt.Sprint("old-", i), Priority: uint8(i)}
				if err := s.target.Channel(t).PublishWithContext(t.Context(), "work", "old", true, false, m); err != nil {
					t.Fatal(err)
				}
			}
			back := time.Now().Add(wait) // when the first message comes back
			s.rejectAll(t, "old", n)
			flags := []string{"--yes", "--settle", "50ms", "--idle", "1s", "--wait", "60s"}
			var told strings.Builder
			log := func(line string) { fmt.Fprintln(&told, line) }
			if !s.killAt(t, dlxctl, flags, "retire: waiting up to 1m, as other queues use shared too", func() {}, log) {
				t.Fatalf("it sends no canary:\n%s", &told)
			}
			early := time.Now().Before(back)
			if homes := s.homes(t); len(homes) != 1 {
				t.Errorf("queues of canaries: %v", homes)
			}
			r, said := s.listen(t)
			r.Wait = 2 * time.Minute
			if err := r.Run(t.Context()); err != nil {
				t.Fatalf("it ends with %v:\n%s", err, said)
			}
			if early {
				s.once(t, "old", "old.v2", n)
			} else if got := s.collect(t, "old.v2", n); len(got) != n { // a kill doubles what is on its way
				t.Errorf("%d of %d messages came: %v", len(got), n, got)
			}
			if homes := s.homes(t); len(homes) > 0 {
				t.Errorf("it leaves %v", homes)
			}
			s.goOn(t, "stays-0")
			s.onlySaw(t, "stays-0")
		})
	}
}

// From RabbitMQ 4.3 on, messages expire apart by priority, and those that were requeued apart from
// all others. A canary overtakes none of them, also where a policy has shortened how long messages
// wait since they came.
func TestSharedRetryQueueWithPriorities(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, shorter := range map[string]int{"as declared": 0, "shortened": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t, "quorum", 20*time.Second, []string{"old", "stays"}, nil, []string{"old"})
			// Spring, Java and Celery write this priority, and amqp091-go cannot.
			s.target.Call(t, "POST", "exchanges/"+url.PathEscape(s.target.VHost)+"/work/publish", map[string]any{
				"routing_key": "old", "payload": "", "payload_encoding": "string",
				"properties": map[string]any{"priority": 0, "message_id": "old-0"},
			})
			ch := s.target.Confirming(t)
			brokertest.PublishConfirmed(t, ch, "work", "old", amqp091.Publishing{MessageId: "old-1", Priority: 7},
				amqp091.Publishing{MessageId: "old-2", Priority: 31})
			brokertest.PublishConfirmed(t, ch, "work", "stays", amqp091.Publishing{MessageId: "stays-0", Priority: 7})
			s.cutOver(t)
			s.fail(t, "stays")
			s.rejectAll(t, "old", 3)
			if err := brokertest.Take(t, ch, "shared").Nack(false, true); err != nil { // as who looks at one
				t.Fatal(err)
			}
			if shorter > 0 {
				s.operate(t, "^shared$", map[string]any{"message-ttl": shorter})
			}
			// The statistics may come too late for that: those of old expire after 20 seconds.
			brokertest.Eventually(t, "all messages in shared", func() bool { return s.ready(t, "shared") == 4 })
			r, said := s.listen(t)
			r.Wait = 2 * time.Minute
			if err := r.Run(t.Context()); err != nil {
				t.Fatalf("it ends with %v:\n%s", err, said)
			}
			s.once(t, "old", "old.v2", 3)
		})
	}
}

// Messages come back through two retry queues that others share, later than --wait ends. The run
// says which --wait is enough, and the next one goes on.
func TestSharedRetryQueuesInARow(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := shared(t, "quorum", 6*time.Second, []string{"old", "stays"}, nil, []string{"old"})
	ch := s.target.Channel(t)
	brokertest.DeclareExchange(t, ch, "onward", "fanout", nil)
	brokertest.Declare(t, ch, "first", amqp091.Table{
		"x-message-ttl": 6000, "x-dead-letter-exchange": "onward",
	})
	for _, err := range []error{
		ch.QueueBind("first", "", "retry", false, nil), ch.QueueUnbind("shared", "", "retry", nil),
		ch.QueueBind("shared", "", "onward", false, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.send(t, "work", "stays", "stays-0", nil)
	s.fail(t, "stays")
	for i := range 5 {
		s.send(t, "work", "old", fmt.Sprint("old-", i), nil)
	}
	s.rejectAll(t, "old", 5)
	r, said := s.listen(t)
	r.Wait = 2 * time.Second
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) ||
		!strings.Contains(err.Error(), "other queues use first, shared too, from where messages come to old by its name: those that wait there come back within 12s, before a canary that migrate sent at ") ||
		!strings.HasSuffix(err.Error(), "run it again, or with --wait 2m") {
		t.Fatalf("it ends with %v", err)
	}
	r.Wait = time.Minute
	if err := r.Run(t.Context()); err != nil {
		t.Fatalf("it ends with %v:\n%s", err, said)
	}
	s.once(t, "old", "old.v2", 5)
	if s.target.AtLeast("4.0") { // 3.10.8 drops a message on its second way through two such queues, without dlxctl
		s.goOn(t, "stays-0")
	}
	s.onlySaw(t, "stays-0")
}

// homes returns the queues of canaries.
func (s *stage) homes(t *testing.T) []string {
	t.Helper()
	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, q := range state.Have.Queues {
		if topology.IsVerifyQueue("shop", q) {
			out = append(out, q.Name)
		}
	}
	return out
}

// onlySaw fails the test if the queues of fail have had other messages.
func (s *stage) onlySaw(t *testing.T, ids ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.seen {
		if !slices.Contains(ids, id) {
			t.Errorf("a consumer got %q", id)
		}
	}
}

// A publisher that lets messages wait in a queue, from which they come to the legacy queue by its
// name, is known by one of them. The legacy queue is kept until the user consents.
func TestPublisherThroughADelay(t *testing.T) {
	t.Parallel()
	s := shared(t, "quorum", time.Second, nil, []string{"old"}, []string{"old"})
	s.send(t, "retry", "old", "delayed", nil)
	r, said := s.listen(t)
	if notes := s.aheadOf(t, r); !strings.Contains(notes, "a publisher that sends messages with the key old there must send them with the key old.v2") {
		t.Errorf("the check says:\n%s", notes)
	}
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "through a queue in which they waited") {
		t.Fatalf("it ends with %v:\n%s", err, said)
	}
	s.send(t, "retry", "old.v2", "later", nil) // as the publisher now does
	r.Allow = plan.Allow(topology.DropsRouting)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.send(t, "retry", "old.v2", "last", nil)
	if got := s.collect(t, "old.v2", 3); len(got) != 3 || s.exists(t, "old") {
		t.Errorf("%v came", got)
	}
}

// Where a binding leads messages with the name of the legacy queue through a delay queue, the
// advice is to give them another key.
func TestBindingThroughADelay(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := shared(t, "quorum", time.Second, nil, []string{"old"}, []string{"old"})
	ch := s.target.Channel(t)
	brokertest.Bind(t, ch, "shared", "old", "work", nil) // and at once, through work
	r, _ := s.listen(t)
	if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(),
		"the exchange work routes messages to it; let the messages for old come to it with the routing key old.v2") {
		t.Errorf("it ends with %v", err)
	}
	brokertest.Bind(t, ch, "shared", "old.v2", "work", nil)
	brokertest.Unbind(t, ch, "shared", "old", "work", nil)
	s.send(t, "work", "old.v2", "before", nil)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.send(t, "work", "old.v2", "after", nil)
	if got := s.collect(t, "old.v2", 2); len(got) != 2 || s.exists(t, "old") {
		t.Errorf("%v came", got)
	}
}
