package processor_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// journal keeps what a processor logs.
type journal struct {
	mu    sync.Mutex
	lines []string
	page  page // what its monitor serves; only with runs
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, strings.TrimSpace(string(p)))
	return len(p), nil
}

// with returns the lines that hold a text.
func (j *journal) with(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, l := range j.lines {
		if strings.Contains(l, text) {
			out = append(out, l)
		}
	}
	return out
}

// listen lets a processor log to a journal, which is printed if the test fails.
func listen(tb testing.TB, p *processor.Processor) *journal {
	tb.Helper()
	j := &journal{}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the processor logged:\n%s", strings.Join(j.with(""), "\n"))
		}
	})
	p.Log = slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelInfo}))
	return j
}

// runs runs a processor until the test ends, and gives its journal.
func (s *stage) runs(t *testing.T) *journal {
	t.Helper()
	p := s.processor(t)
	log := listen(t, p)
	p.Monitor = monitor.New("")
	log.page = serve(t, p.Monitor)
	run(t, p)
	return log
}

// held waits until the processor counts so many messages that it must leave in the failed queue.
func (j *journal) held(t *testing.T, queue, reason string, n int) {
	t.Helper()
	brokertest.Eventually(t, fmt.Sprint(n, " messages held: ", reason), func() bool {
		return j.page.scrape(t).sum("dlxctl_held_messages", "queue", queue, "reason", reason) == n
	})
}

// says waits for a line.
func (j *journal) says(t *testing.T, text string) {
	t.Helper()
	brokertest.Eventually(t, "the log to say "+text, func() bool { return len(j.with(text)) > 0 })
}

// calm checks that trouble was met with pauses, and not again and again.
func (j *journal) calm(t *testing.T) {
	t.Helper()
	// Pauses of 100 ms at least that double: 8 of them last for 12 seconds.
	if lines := j.with("reconnecting"); len(lines) > 15 {
		t.Errorf("%d tries in a short time:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// moved waits until all messages with these ids are in a queue, takes them out
// and returns how many were there twice.
func (s *stage) moved(t *testing.T, queue string, ids ...string) (doubled int) {
	t.Helper()
	seen := map[string]int{}
	brokertest.Eventually(t, "all messages in "+queue, func() bool {
		for id, n := range s.drain(t, queue) {
			seen[id] += n
		}
		for _, id := range ids {
			if seen[id] == 0 {
				return false
			}
		}
		return true
	}, func() string { return missing(ids, seen) + "\n" + s.holds(t) })
	if len(seen) != len(ids) {
		t.Errorf("%s held %d messages, want %d", queue, len(seen), len(ids))
	}
	for _, n := range seen {
		doubled += n - 1
	}
	return doubled
}

// missing tells which messages were not seen.
func missing(ids []string, seen map[string]int) string {
	out := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return seen[id] > 0 })
	return fmt.Sprintf("%d of %d are missing: %q", len(out), len(ids), out[:min(len(out), 10)])
}

// holds tells what each queue of the virtual host holds.
func (s *stage) holds(t *testing.T) string {
	t.Helper()
	columns := "?columns=name,state,leader,messages_ready,messages_unacknowledged,consumers"
	return string(s.target.Call(t, http.MethodGet, "queues/"+url.PathEscape(s.target.VHost)+columns, nil))
}

const twoQueues = retryInAnHour + "  - {name: other}\n"

func TestTheQueueIsDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, strings.Replace(retryInAnHour, "backoff: slow}", "backoff: slow, type: "+typ+"}", 1))
			log := s.runs(t)
			s.fill(t, 10)
			s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
			brokertest.Delete(t, s.eyes, "shop.slow.failed") // it is empty
			log.says(t, "the queue was deleted")
			log.says(t, "'dlxctl apply' with the same files and overlays creates it")
			s.apply(t, s.topology)
			s.leadInto(t, "shop.slow.failed")
			s.fill(t, 10)
			s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
			log.calm(t)
		})
	}
}

// Without the exchange to which everything goes the processor waits for it, and
// leaves the messages where they are.
func TestTheExchangeIsMissing(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	log := s.runs(t)
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
	if err := s.ch.ExchangeDelete("shop.slow.dlx", false, false); err != nil {
		t.Fatal(err)
	}
	s.fill(t, 500)
	log.says(t, "no exchange 'shop.slow.dlx'") // the broker closed the channel
	log.says(t, "not found: exchange shop.slow.dlx; 'dlxctl apply' with the same files and overlays creates it")
	log.says(t, "waiting for the topology to be applied")
	brokertest.Eventually(t, "all messages to be back in their queue",
		func() bool { return s.ready(t, "shop.slow.failed") == 500 })
	s.apply(t, s.topology)
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 500)...); doubled > 0 {
		t.Errorf("%d are doubled, though nothing was taken anywhere", doubled)
	}
	log.calm(t)
}

// A processor that starts waits for the tiers of its file: without one of them it would dead-letter
// what should wait there. A tier that goes later does not stop it.
func TestATierIsMissingAtTheStart(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	longer, err := compile(strings.Replace(retryInAnHour, "[1h]", "[1h, 2h]", 1))
	if err != nil {
		t.Fatal(err)
	}
	s.fill(t, 10)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, s.target.User(t, "", "^$", // as 'dlxctl rights' prints
		`^shop\.(slow\.(dlx|retry\..*)|unroutable)$`, `^shop\.slow\.failed$`))
	p.Topology, p.UntilEmpty = longer, true
	listen(t, p)
	if err := p.Run(t.Context()); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("with UntilEmpty it ends with %v", err)
	}
	p.UntilEmpty = false
	log := listen(t, p)
	run(t, p)
	log.says(t, "waiting for the topology to be applied")
	log.says(t, "no queue 'shop.slow.retry.2h'")
	if n := s.ready(t, "shop.slow.failed"); n != 10 {
		t.Errorf("%d of 10 messages are left", n)
	}
	s.change(t, longer)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)

	s.change(t, s.topology)
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
	log.calm(t)
}

// Without the exchange for what is unroutable, what must be parked waits; all
// else goes on.
func TestTheExchangeForTheUnroutableIsMissing(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	log := s.runs(t)
	if err := s.ch.ExchangeDelete("shop.unroutable", false, false); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids(0, prefetch/2) {
		s.publish(t, "shop.slow.failed", "@gone", amqp091.Publishing{MessageId: "gone " + id})
	}
	s.fill(t, 500)
	s.moved(t, "shop.slow.retry.1h", ids(0, 500)...)
	log.says(t, "unroutable messages wait")
	s.apply(t, s.topology)
	m := s.bury(t, "shop.unroutable")
	if why := m.Headers["retry-error"]; why != `the topology "shop" has no work queue "gone"` {
		t.Errorf("it was parked because %v", why)
	}
	brokertest.Eventually(t, "the others to be parked",
		func() bool { return s.ready(t, "shop.unroutable") == prefetch/2-1 })
	log.calm(t)
}

// deleteTargets deletes the queues where a message of the queue work can go, so that it finds no
// tier, no dead-letter queue and no place for the unroutable, once the processor has begun.
func (s *stage) deleteTargets(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, "the processor to consume", func() bool { return s.consumers(t, "shop.slow.failed") == 1 })
	for _, queue := range []string{"shop.slow.retry.1h", "work.dead", "shop.unroutable"} {
		brokertest.Delete(t, s.eyes, queue) // they are empty
	}
}

// A message that no queue takes, whichever way it is sent, is tried on, and those
// behind it pass.
func TestAReturnedMessage(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, twoQueues)
	log := s.runs(t)
	s.deleteTargets(t)
	s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: "stuck", Body: []byte("b")})
	for _, id := range ids(0, 300) {
		s.publish(t, "shop.slow.failed", "@other", amqp091.Publishing{MessageId: id})
	}
	if doubled := s.moved(t, "other.dead", ids(0, 300)...); doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	s.apply(t, s.topology)
	// Where it is by then depends on which of the queues is there when it is tried: a message whose
	// tier is missing is a dead letter.
	brokertest.Eventually(t, "the message to be somewhere", func() bool {
		return s.ready(t, "shop.slow.retry.1h")+s.ready(t, "work.dead")+s.ready(t, "shop.unroutable") == 1
	})
	log.calm(t)
}

// A tier that is full refuses: what it does not take is parked with the reason,
// once trying again has not helped, and those for other places pass.
func TestAFullTierNacks(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, strings.Replace(twoQueues, "backoff: slow}", "backoff: slow, type: "+typ+"}", 1))
			s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/full", map[string]any{
				"pattern": `^shop\.slow\.retry`, "apply-to": "queues",
				"definition": map[string]any{"max-length": 10, "overflow": "reject-publish"},
			})
			brokertest.Eventually(t, "the policy to hold",
				func() bool { return s.target.Queue(t, "shop.slow.retry.1h")["policy"] == "full" })
			p := s.processor(t)
			listen(t, p)
			stop := run(t, p)
			var parked int
			for n := 1; n <= 2; n++ { // a quorum queue says that it is full only after it was
				s.fill(t, 30)
				brokertest.Eventually(t, "every message in its place", func() bool {
					parked = s.ready(t, "shop.unroutable")
					return parked+s.ready(t, "shop.slow.retry.1h") == n*30
				})
			}
			if parked == 0 || parked > 50 {
				t.Errorf("%d of 60 were parked, though the tier takes 10", parked)
			}
			if m := s.bury(t, "shop.unroutable"); !strings.Contains(m.Headers["retry-error"].(string), "a queue is full") {
				t.Errorf("it was parked because %v", m.Headers["retry-error"])
			}
			s.publish(t, "shop.slow.failed", "@gone", amqp091.Publishing{MessageId: "behind"})
			brokertest.Eventually(t, "the one behind", func() bool { return s.drain(t, "shop.unroutable")["behind"] == 1 })

			// The full tier nacks while the place of others has not confirmed yet.
			stop()
			const n = 300
			for i := range n {
				s.publish(t, "shop.slow.failed", []string{"@work", "@gone"}[i%2], amqp091.Publishing{MessageId: fmt.Sprint(i)})
			}
			p = s.processor(t)
			listen(t, p)
			run(t, p)
			if doubled := s.moved(t, "shop.unroutable", ids(0, n)...); doubled > 0 {
				t.Errorf("%d are doubled", doubled)
			}
		})
	}
}

// Rights that are taken away close the channel with an exception; the processor
// waits until it has them again.
func TestAChannelException(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	user := s.target.User(t, "", "^$", "^nothing$", ".*")
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, user)
	log := listen(t, p)
	run(t, p)
	s.fill(t, 300)
	log.says(t, "ACCESS_REFUSED")
	permissions := "permissions/" + url.PathEscape(s.target.VHost) + "/" + url.PathEscape(user.Username)
	s.target.Call(t, "PUT", permissions, map[string]any{"configure": "^$", "write": ".*", "read": ".*"})
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 300)...); doubled > 0 {
		t.Errorf("%d are doubled, though nothing was taken anywhere", doubled)
	}
	log.calm(t)
}

// A connection that is refused something is replaced once the password file has changed: the
// previous password may be an OAuth 2 token that has expired.
func TestAChangedPasswordFile(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	user := s.target.User(t, "", "^$", "^nothing$", ".*")
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(user.Password)
	p := s.processor(t)
	var err error
	if p.Endpoint, err = (broker.Config{URL: user.URL, API: user.API, PasswordFile: file}).Resolve(); err != nil {
		t.Fatal(err)
	}
	log := listen(t, p)
	run(t, p)
	s.fill(t, 1)
	log.says(t, "may not publish to exchange shop.slow.dlx")
	s.target.Call(t, "PUT", "users/"+url.PathEscape(user.Username), map[string]any{"password": "new", "tags": ""})
	write("new")
	log.says(t, "the password file has changed")
}

// One that may not see the tiers, which RabbitMQ 4.3 shows only to users with a right on them, goes
// on, and says so.
func TestTiersThatAreNotSeen(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	if !s.target.AtLeast("4.3") {
		t.Skip("before 4.3, any user sees which queues exist")
	}
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, s.target.User(t, "", "^$", `^shop\.(slow\.dlx|unroutable)$`, `^shop\.slow\.failed$`))
	log := listen(t, p)
	run(t, p)
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
	log.says(t, "whether the tiers exist is not known")
}

// A user without any right: RabbitMQ only says that configure access is refused, and the log says
// what grants it.
func TestAUserWithoutRights(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	if !s.target.AtLeast("4.3") {
		t.Skip("before 4.3, any user sees which queues exist")
	}
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, s.target.User(t, "", "^$", "^$", "^$"))
	const fix = "'dlxctl rights' prints the commands that grant what is missing"
	if err := p.Check(t.Context()); err == nil || !strings.HasSuffix(err.Error(), fix) {
		t.Fatalf("the check: %v", err)
	}
	log := listen(t, p)
	run(t, p)
	log.says(t, fix)
}

// A connection that says no more, and does not end either, is found out by its
// heartbeat.
func TestASilentConnection(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	target, wire := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, target)
	p.Endpoint.Heartbeat = time.Second
	log := listen(t, p)
	run(t, p)
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
	wire.Hold()
	s.fill(t, 300)
	log.says(t, "reconnecting")
	log.says(t, "not even a heartbeat")
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 300)...); doubled > prefetch {
		t.Errorf("%d are doubled, more than were in flight", doubled)
	}
	if n := wire.Connections(); n > 10 {
		t.Errorf("it connected %d times", n)
	}
}

// ids returns the message-ids of fill.
func ids(from, to int) []string {
	out := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}
