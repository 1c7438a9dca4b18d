package processor_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/topology"
)

// fail does what docs/consumers.md asks of a consumer that says why it failed: it publishes the
// message to the exchange for failures and acknowledges it after the confirm.
func (s *stage) fail(t *testing.T, m amqp091.Delivery, said amqp091.Table) {
	t.Helper()
	s.sayOnly(t, m, said)
	if err := m.Ack(false); err != nil {
		t.Fatal(err)
	}
}

// sayOnly does so without the acknowledgement.
func (s *stage) sayOnly(t *testing.T, m amqp091.Delivery, said amqp091.Table) {
	t.Helper()
	h := maps.Clone(m.Headers)
	if h == nil {
		h = amqp091.Table{}
	}
	delete(h, "CC")
	if m.Exchange != "shop.return" {
		maps.DeleteFunc(h, func(name string, _ any) bool {
			return name == "x-death" || strings.HasPrefix(name, "retry-")
		})
	}
	if _, known := h["retry-routing-key"]; !known {
		h["retry-exchange"], h["retry-routing-key"] = m.Exchange, m.RoutingKey
	}
	maps.DeleteFunc(h, func(name string, _ any) bool {
		return strings.HasPrefix(name, "retry-error") || name == "retry-permanent"
	})
	maps.Copy(h, said)
	s.publish(t, "shop.failed", "@billing", amqp091.Publishing{Headers: h, MessageId: m.MessageId, Body: m.Body})
}

// forged are headers by which a publisher could claim a history, an error, or that no retry helps.
func forged() amqp091.Table {
	return amqp091.Table{
		"count": int32(2), "retry-queue": "billing", "retry-first-queue": "elsewhere", "retry-attempts": int64(2),
		"retry-exchange":    "elsewhere",
		"retry-routing-key": "other", "retry-error": "forged", "retry-error-type": "Forged", "retry-error-stack": "forged",
		"retry-permanent": true, "retry-first-failed-at": "2020-01-01T00:00:00.000Z",
		"retry-history": []any{amqp091.Table{"at": "2020-01-01T00:00:00.000Z", "attempt": int64(1), "reason": "forged"}},
	}
}

// A consumer that says why and copies the publisher's expiration loses nothing: what expires in the
// failed queue, while no processor runs, is a dead letter of its work queue.
func TestWhatExpiresInAFailedQueueIsADeadLetter(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, backoffFile(kind))
			const n = 20
			for i := range n {
				s.publish(t, "shop.failed", "@billing", amqp091.Publishing{
					MessageId: fmt.Sprint("m-", i), Expiration: "1", Headers: amqp091.Table{"retry-error": "no answer"},
				})
			}
			seen := map[string]bool{}
			for range n {
				m := s.bury(t, "billing.dead")
				seen[m.MessageId] = true
				if m.Headers["retry-error"] != "no answer" || m.RoutingKey != "@billing" || m.Expiration != "" {
					t.Errorf("the dead letter has the key %q, the expiration %q and the headers %v", m.RoutingKey, m.Expiration, m.Headers)
				}
			}
			if len(seen) != n {
				t.Errorf("%d of %d messages are dead letters", len(seen), n)
			}
		})
	}
}

// A consumer that says why it fails is counted as one that rejects: after as many attempts the
// message is a dead letter, with what it said last, and with the exchange and the key of the
// publisher, whose own headers of these names mean nothing.
func TestAConsumerSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	sent := forged()
	sent["x-death"] = []any{amqp091.Table{"queue": "shop.standard.retry.100ms", "reason": "expired", "count": int64(1)}}
	sent["mine"] = "yes"
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1", Headers: sent, Body: []byte("b")})
	for attempt := range 4 {
		m := s.take(t, "billing")
		if m.RoutingKey != "order.placed" {
			t.Errorf("attempt %d sees the routing key %q", attempt+1, m.RoutingKey)
		}
		switch attempt {
		case 1:
			s.fail(t, m, amqp091.Table{"retry-error": "bad row 7", "retry-error-type": "ValueError"})
		case 2:
			reject(t, m)
		default:
			s.fail(t, m, amqp091.Table{
				"retry-error": "no answer", "retry-error-type": "PaymentTimeout", "retry-error-stack": "at pay()",
			})
		}
	}
	m := s.bury(t, "billing.dead")
	want := amqp091.Table{
		"count": int32(-1), "CC": []any{"@billing"}, "mine": "yes", "retry-original-count": int32(2),
		"retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
		"retry-reason": "rejected", "retry-attempts": int64(4), "retry-error": "no answer",
		"retry-error-type": "PaymentTimeout", "retry-error-stack": "at pay()",
		"retry-first-failed-at": m.Headers["retry-first-failed-at"],
		"retry-last-failed-at":  m.Headers["retry-last-failed-at"],
		"retry-history":         m.Headers["retry-history"],
	}
	if d := cmp.Diff(want, m.Headers); d != "" || string(m.Body) != "b" {
		t.Errorf("the dead letter %q (-want +got):\n%s", m.Body, d)
	}
	past := ""
	for _, v := range m.Headers["retry-history"].([]any) {
		entry, _ := v.(amqp091.Table)
		past += fmt.Sprintln(entry["attempt"], entry["reason"], entry["error-type"], entry["tier"])
		if at, err := time.Parse(topology.HeaderTime, fmt.Sprint(entry["at"])); err != nil || time.Since(at) > time.Hour {
			t.Errorf("the history has %v", entry)
		}
	}
	if past != "1 rejected PaymentTimeout 200ms\n2 rejected ValueError 500ms\n"+
		"3 rejected <nil> 500ms\n4 rejected PaymentTimeout <nil>\n" {
		t.Errorf("the history is\n%s", past)
	}
	if first, _ := m.Headers["retry-first-failed-at"].(string); strings.HasPrefix(first, "2020") {
		t.Errorf("it first failed at %s", first)
	}
	s.allEmpty(t)
}

// A message that the desk sends back comes by the exchange of retries, as one that has not failed.
// It keeps the publisher's key when its consumer says why it failed.
func TestAReplayedMessageSaysWhy(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "shop.return", "order.placed", amqp091.Publishing{
		MessageId: "m-1", Headers: amqp091.Table{"CC": []any{"@billing"}},
	})
	s.fail(t, s.take(t, "billing"), amqp091.Table{"retry-error": "no answer"})
	if m := s.take(t, "billing"); m.RoutingKey != "order.placed" || m.Headers["retry-attempts"] != int64(1) {
		t.Errorf("the retry has the key %q and the headers %v", m.RoutingKey, m.Headers)
	}
}

// What was said about one attempt is not claimed of the next one, which the consumer only rejects.
func TestARejectionSaysNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	s.fail(t, s.take(t, "billing"), amqp091.Table{"retry-error": "no answer", "retry-error-type": "PaymentTimeout"})
	waited := s.take(t, "billing")
	if waited.Headers["retry-error"] != "no answer" {
		t.Errorf("the retry has the headers %v", waited.Headers)
	}
	reject(t, waited)
	again := s.take(t, "billing")
	for name := range again.Headers {
		if strings.HasPrefix(name, "retry-error") {
			t.Errorf("after a rejection the message has %s: %v", name, again.Headers[name])
		}
	}
	if again.Headers["retry-attempts"] != int64(2) {
		t.Errorf("the retry has the headers %v", again.Headers)
	}
}

// A failure that no retry would help is a dead letter at once.
func TestAPermanentFailure(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	s.fail(t, s.take(t, "billing"), amqp091.Table{"retry-error": "no such customer", "retry-permanent": true})
	m := s.bury(t, "billing.dead")
	_, flagged := m.Headers["retry-permanent"]
	if m.Headers["retry-reason"] != "permanent" || m.Headers["retry-attempts"] != int64(1) ||
		m.Headers["retry-error"] != "no such customer" || m.Headers["retry-exchange"] != "events" || flagged {
		t.Errorf("the dead letter has the headers %v", m.Headers)
	}
	s.allEmpty(t)
}

// A consumer that dies between its copy and its acknowledgement gets the message again. Both are
// counted as one that rejects: each has failed once when it waits.
func TestAConsumerDiesAfterItsCopy(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	ch := s.target.Channel(t)
	m, ok, err := ch.Get("billing", false)
	if err != nil || !ok {
		t.Fatalf("no message: %v", err)
	}
	s.sayOnly(t, m, amqp091.Table{"retry-error": "first"})
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[any]int{}
	for range 2 { // the message again, without a count, and its copy after the tier
		m := s.take(t, "billing")
		attempts := m.Headers["retry-attempts"]
		seen[attempts]++
		if attempts == nil {
			s.fail(t, m, amqp091.Table{"retry-error": "second"})
		} else if err := m.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	last := s.take(t, "billing")
	seen[last.Headers["retry-attempts"]]++
	if err := last.Ack(false); err != nil {
		t.Fatal(err)
	}
	if seen[nil] != 1 || seen[int64(1)] != 2 || len(seen) != 2 {
		t.Errorf("deliveries by retry-attempts: %v", seen)
	}
	s.allEmpty(t)
}

// Who may publish to business exchanges only can forge nothing: after a rejection all that the
// publisher set under these names is gone, whatever its type.
func TestAPublisherForgesWhatConsumersSay(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	for i, v := range []any{
		true, "true", int32(1), int64(-1), 2.5, []byte("x"), nil,
		[]any{"a", int32(1)},
		amqp091.Table{"a": "b"},
		strings.Repeat("x", 20_000),
	} {
		sent := forged()
		sent["x-death"] = []any{amqp091.Table{"queue": "shop.standard.retry.200ms", "reason": "expired", "count": int64(1)}}
		for _, name := range []string{
			"retry-error", "retry-error-type", "retry-error-stack", "retry-permanent", "retry-history", "retry-after",
		} {
			sent[name] = v
		}
		s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1", Headers: sent})
		reject(t, s.take(t, "billing"))
		m := s.take(t, "billing")
		if err := m.Ack(false); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"retry-error", "retry-error-type", "retry-error-stack", "retry-permanent", "retry-after",
		} {
			if got, ok := m.Headers[name]; ok {
				t.Errorf("value %d: the retry has %s: %v", i, name, got)
			}
		}
		past, _ := m.Headers["retry-history"].([]any)
		if len(past) != 1 || past[0].(amqp091.Table)["reason"] != "rejected" {
			t.Errorf("value %d: the retry has the history %v", i, m.Headers["retry-history"])
		}
		if m.Headers["count"] != int32(1) || m.Headers["retry-attempts"] != int64(1) ||
			m.Headers["retry-reason"] != "rejected" || m.Headers["retry-exchange"] != "events" ||
			m.Headers["retry-routing-key"] != "order.placed" || m.RoutingKey != "order.placed" {
			t.Errorf("value %d: the retry has the headers %v", i, m.Headers)
		}
	}
	s.allEmpty(t)
}

// The log and the notice of a dead letter say why, masked by the rules of its queue.
func TestTheLogSaysWhy(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	posts := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- string(body)
	}))
	defer hook.Close()
	s := newStage(t, backoffFile("quorum"))
	var log bytes.Buffer
	p, end := s.notified(t, hook.URL)
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	p.Show = func(m notify.Message) notify.Shown {
		return notify.Shown{ID: m.ID, Error: strings.ReplaceAll(m.Error, "4711", "***"), ErrorType: m.ErrorType}
	}
	stop := run(t, p)
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	s.fail(t, s.take(t, "billing"), amqp091.Table{
		"retry-error": "card 4711 is unknown\nsecond line", "retry-error-type": "CardError", "retry-after": "after 4711",
	})
	s.fail(t, s.take(t, "billing"), amqp091.Table{
		"retry-error": "card 4711 is unknown\nsecond line", "retry-error-type": "CardError", "retry-permanent": true,
		"retry-after": "after 4711",
	})
	s.bury(t, "billing.dead")
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-2", Headers: amqp091.Table{
		"x-opt-error": "card 4711 is unknown\nsecond line", "x-opt-error-type": "CardError",
	}})
	for range 4 {
		reject(t, s.take(t, "billing"))
	}
	s.bury(t, "billing.dead")
	stop()
	end()
	if got := log.String(); !strings.Contains(got, `annotated_error_type=CardError annotated_error="card *** is unknown"`) {
		t.Errorf("the log is:\n%s", got)
	}
	if got := log.String(); !strings.Contains(got, `reason=permanent attempts=2`) ||
		!strings.Contains(got, `error_type=CardError error="card *** is unknown"`) ||
		!strings.Contains(got, "ignored a retry-after") || strings.Count(got, `retry_after_unread="after ***"`) != 2 {
		t.Errorf("the log is:\n%s", got)
	}
	if post := <-posts; !strings.Contains(post, "card *** is unknown") || strings.Contains(post, "4711") ||
		!strings.Contains(post, `"errorType":"CardError"`) {
		t.Errorf("the notice is %s", post)
	}
}

// What a message brings into the log is masked in all lines, by what its body says: its id, its
// key, the queue that it claims to be of, and the error that quotes them.
func TestLinesOfTheLogAreMasked(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, deadAtOnce+`
exchanges: [{name: events, type: topic}]
delays: [{name: shop.later, to: events, max: 1h}]
`)
	posts := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- string(body)
	}))
	defer hook.Close()
	var log bytes.Buffer
	p, end := s.notified(t, hook.URL)
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	p.Show = func(m notify.Message) notify.Shown { // what the body says
		hide := func(s string) string {
			return strings.ReplaceAll(s, string(m.Body), "***")
		}
		return notify.Shown{
			ID: hide(m.ID), Queue: hide(m.Queue), Key: hide(m.Key), Error: hide(m.Error), ErrorType: hide(m.ErrorType),
		}
	}
	body := []byte("ann@example.com")
	s.publish(t, "", "work", amqp091.Publishing{MessageId: "1-ann@example.com", Expiration: "1", Body: body})
	s.publish(t, "shop.slow.failed", "mail.ann@example.com",
		amqp091.Publishing{MessageId: "2-ann@example.com", Body: body})
	s.publish(t, "shop.slow.failed", "@ann@example.com", amqp091.Publishing{MessageId: "3-ann@example.com", Body: body})
	s.publish(t, "shop.later", "mail.ann@example.com", amqp091.Publishing{
		MessageId: "4-ann@example.com", Headers: amqp091.Table{"x-delay": "ann@example.com"}, Body: body,
	})
	brokertest.Eventually(t, "the failures", func() bool { return s.ready(t, "shop.slow.failed") == 3 })
	untilEmpty(t, p)
	end()
	close(posts)
	got := log.String()
	for post := range posts {
		got += post
	}
	if strings.Contains(got, "ann@") || strings.Count(got, "message_id=") != 4 ||
		!strings.Contains(got, "routing_key=mail.***") || !strings.Contains(got, "queue=***") {
		t.Errorf("the log and the notices are:\n%s", got)
	}
}

// With two processors and many messages at once each one fails as often as it would by rejections,
// and is then one dead letter.
func TestMessagesThatSayWhyAreNotDoubled(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	run(t, s.processor(t))
	const n = 100
	brokertest.Fill(t, s.ch, "events", "order.placed", n, 100)
	ch := s.target.Channel(t)
	deliveries := brokertest.Consume(t, ch, "billing", 20)
	attempts := map[string]int{}
	for range 4 * n {
		select {
		case m := <-deliveries:
			attempts[m.MessageId]++
			s.fail(t, m, amqp091.Table{"retry-error": "no answer", "retry-error-type": "PaymentTimeout"})
		case <-time.After(patience):
			t.Fatalf("%d messages were seen", len(attempts))
		}
	}
	dead := map[string]int{}
	for len(dead) < n {
		m := s.bury(t, "billing.dead")
		dead[m.MessageId]++
		if m.Headers["retry-error-type"] != "PaymentTimeout" || m.Headers["retry-attempts"] != int64(4) {
			t.Fatalf("a dead letter has the headers %v", m.Headers)
		}
	}
	s.allEmpty(t)
	for id, seen := range attempts {
		if seen != 4 || dead[id] != 1 {
			t.Errorf("%s was delivered %d times, and is %d dead letters", id, seen, dead[id])
		}
	}
}

// A consumer that asks for a wait gets the message no sooner, by the shortest tier that is long
// enough. Asking for more than any tier costs no attempts, until retryUntil has passed.
func TestAConsumerAsksForAWait(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff:
  standard: {tiers: [100ms, 1s], retryUntil: 5s}
exchanges:
  - {name: events, type: topic}
queues:
  - {name: billing, bindings: [{exchange: events, key: "order.*"}]}
`)
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	s.fail(t, s.take(t, "billing"), amqp091.Table{"retry-after": int32(1)})
	failed := time.Now()
	m := s.take(t, "billing")
	if waited := time.Since(failed); waited < time.Second || m.Headers["count"] != int32(2) ||
		m.Headers["retry-attempts"] != int64(1) {
		t.Errorf("it came back after %s, with the headers %v", waited, m.Headers)
	}
	asked := 0
	for ; m.Headers["retry-attempts"] == int64(1); asked++ {
		s.fail(t, m, amqp091.Table{"retry-after": "1h"})
		m = s.take(t, "billing")
	}
	if first, err := time.Parse(topology.HeaderTime, m.Headers["retry-first-failed-at"].(string)); err != nil ||
		time.Since(first) < 5*time.Second || asked < 2 || m.Headers["retry-attempts"] != int64(2) {
		t.Errorf("after %d long waits it has the headers %v, %v", asked, m.Headers, err)
	}
	s.fail(t, m, amqp091.Table{"retry-after": "1h"})
	if dead := s.bury(t, "billing.dead"); dead.Headers["retry-attempts"] != int64(3) {
		t.Errorf("the dead letter has the headers %v", dead.Headers)
	}
	s.allEmpty(t)
}
