package processor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// deadAtOnce is a topology whose failures are dead notices at their first, as
// nothing is retried that comes without a reason the file names.
const deadAtOnce = `
version: 1
name: shop
defaults: {backoff: slow}
backoff:
  slow: {tiers: [1h], retryOn: [rejected]}
queues:
  - {name: work, owner: team-work, severity: page}
`

// misplace puts n messages into the failed queue whose queue the processor does not know.
func (s *stage) misplace(t *testing.T, n int) {
	t.Helper()
	s.topology.WorkQueues = nil // the processor takes @work for unknown
	s.fill(t, n)
}

// expire lets a message fail by its age.
func (s *stage) expire(t *testing.T, queue, id string) {
	t.Helper()
	s.publish(t, "", queue, amqp091.Publishing{MessageId: id, Expiration: "1"})
}

// notified returns a processor that tells a webhook.
func (s *stage) notified(t *testing.T, webhook string) (*processor.Processor, func()) {
	t.Helper()
	p := s.processor(t)
	p.Monitor, p.Log = monitor.New(""), s.quiet()
	target, err := notify.ParseWebhook(webhook)
	if err != nil {
		t.Fatal(err)
	}
	p.Notifier = notify.New([]notify.Target{target}, false, s.quiet(),
		func(name string) notify.Counter { return p.Monitor.Notices("", name) })
	ctx, end := context.WithCancel(t.Context())
	var told sync.WaitGroup
	told.Go(func() { p.Notifier.Run(ctx) })
	return p, func() { end(); told.Wait() }
}

// A webhook that hangs, or fails each time, changes nothing for the messages.
func TestADeadWebhookHoldsUpNoMessage(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"fails": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body json.RawMessage
				_ = json.NewDecoder(r.Body).Decode(&body) // the server sees the end of a request only once it is read
				answer(w, r)
			}))
			defer hook.Close()
			s := newStage(t, retryInAnHour)
			const n = 3000
			s.misplace(t, n)
			p, end := s.notified(t, hook.URL)
			web := serve(t, p.Monitor)
			untilEmpty(t, p)
			if got := s.ready(t, "shop.unroutable"); got != n {
				t.Errorf("%d of %d messages are parked", got, n)
			}
			end()
			seen := web.scrape(t)
			if sent, dropped := seen.sum("dlxctl_notices_sent_total"), seen.sum("dlxctl_notices_dropped_total"); sent != 0 ||
				dropped != n {
				t.Errorf("%d notices sent and %d dropped of %d", sent, dropped, n)
			}
		})
	}
}

// Each dead letter is told, once, with whom to call. Those that fail alike within a minute share a
// notice, but for the first.
func TestNoticesEqualDeadLetters(t *testing.T) {
	t.Parallel()
	type told struct {
		Notices []notify.Notice `json:"notices"`
	}
	var mu sync.Mutex
	var got []notify.Notice
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var p told
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, p.Notices...)
	}))
	defer hook.Close()
	s := newStage(t, deadAtOnce)
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		s.expire(t, "work", id)
	}
	s.publish(t, "shop.slow.failed", "@unknown", amqp091.Publishing{MessageId: "m-4"})
	p, end := s.notified(t, hook.URL)
	brokertest.Eventually(t, "the failures", func() bool { return s.ready(t, "shop.slow.failed") == 4 })
	untilEmpty(t, p)
	end()
	notices, messages := map[string]notify.Notice{}, int64(0)
	for _, n := range got {
		notices[n.MessageID] = n
		messages += n.Messages
	}
	// The first at once, the two that failed alike in one notice, and the unroutable one.
	if len(got) != 3 || messages != 4 || notices["m-2"].Messages != 2 {
		t.Fatalf("told of %d messages: %+v", messages, got)
	}
	first := notices["m-1"]
	if first.FirstFailure == "" {
		t.Error("a notice without the time of the first failure")
	}
	first.FirstFailure = ""
	if want := (notify.Notice{
		Event: "dead_letter", Topology: "shop", Queue: "work", MovedTo: "work.dead", MessageID: "m-1",
		Messages: 1, Reason: "expired", Attempts: 1, Owner: "team-work", Severity: "page",
	}); first != want {
		t.Errorf("told %+v, want %+v", first, want)
	}
	if parked := notices["m-4"]; parked.Event != "unroutable" || parked.MovedTo != "shop.unroutable" ||
		parked.Reason != "unknown_queue" || parked.Error == "" || parked.Severity != "" {
		t.Errorf("told %+v", parked)
	}
}

// What a delay moves to the unroutable queue is told, too: what does not say when it is due, and
// what no queue takes.
func TestNoticesOfADelay(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]notify.Notice{}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var p notify.Post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range p.Notices {
			got[n.MessageID] = n
		}
	}))
	defer hook.Close()
	s := newStage(t, delayFileOf("1h"))
	p, end := s.notified(t, hook.URL)
	s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "bad", Headers: amqp091.Table{"x-delay": "soon"}})
	s.publish(t, "shop.later", "nowhere", amqp091.Publishing{MessageId: "nowhere"})
	untilEmpty(t, p)
	end()
	for id, reason := range map[string]string{"bad": "bad_delay", "nowhere": "refused"} {
		if n := got[id]; n.Event != "unroutable" || n.Topology != "shop" || n.MovedTo != "shop.unroutable" ||
			n.Messages != 1 || n.Reason != reason || n.Error == "" || n.Severity != "" {
			t.Errorf("of %q it told %+v", id, n)
		}
	}
}

// Log, metrics and notice of a message have the severity of the first rule that fits it.
func TestSeverityDependsOnTheMessage(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]string{}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var p notify.Post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range p.Notices {
			got[n.MessageID] = n.Severity
		}
	}))
	defer hook.Close()
	s := newStage(t, `
version: 1
name: shop
defaults: {backoff: slow}
backoff:
  slow: {tiers: [1h], retryOn: [rejected]}
exchanges: [{name: events}]
queues:
  - name: work
    bindings: [{exchange: events, key: "#"}]
    severity: {rules: [{key: "campaign.*", severity: page}, {header: {type: refund}, severity: info}]}
`)
	want := map[string]string{"m-1": "page", "m-2": "info", "m-3": "ticket"}
	s.publish(t, "events", "campaign.sale", amqp091.Publishing{MessageId: "m-1", Expiration: "1"})
	s.publish(t, "events", "order", amqp091.Publishing{
		MessageId: "m-2", Expiration: "1", Headers: amqp091.Table{"type": "refund"},
	})
	s.publish(t, "events", "order", amqp091.Publishing{MessageId: "m-3", Expiration: "1"})
	brokertest.Eventually(t, "the failures", func() bool { return s.ready(t, "shop.slow.failed") == 3 })
	p, end := s.notified(t, hook.URL)
	web := serve(t, p.Monitor)
	var log bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	untilEmpty(t, p)
	end()
	seen := web.scrape(t)
	for id, severity := range want {
		if got[id] != severity {
			t.Errorf("the notice of %s has the severity %q, not %s", id, got[id], severity)
		}
		if n := seen.sum("dlxctl_messages_dead_lettered_total", "queue", "work", "severity", severity); n != 1 {
			t.Errorf("%d dead letters of the severity %s are counted", n, severity)
		}
		if line := regexp.MustCompile("message_id=" + id + " .*severity=" + severity); !line.MatchString(log.String()) {
			t.Errorf("the log does not say that %s has the severity %s:\n%s", id, severity, &log)
		}
	}
}
