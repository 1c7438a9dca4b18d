package processor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// outageFile is a topology whose messages are dead after half a second, but for outages.
func outageFile(outage string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: standard}
backoff:
  standard: {tiers: [100ms, 300ms], outage: %s}
exchanges:
  - {name: events}
queues:
  - {name: billing, owner: team-billing, severity: page, bindings: [{exchange: events, key: "#"}]}
`, outage)
}

// service is a consumer of billing that works while its dependency does.
type service struct {
	down atomic.Bool
	// says makes it say why it fails, in place of rejecting.
	says bool

	mu     sync.Mutex
	done   map[string]int // by message-id
	at     []time.Time    // when each message was done
	poison map[string]bool
	forbid map[string]bool // those that no retry helps
}

// serve starts the service.
func (s *stage) serve(t *testing.T, v *service) *service {
	t.Helper()
	v.done = map[string]int{}
	ch := s.target.Channel(t)
	deliveries := brokertest.Consume(t, ch, "billing", 50)
	saying := s.target.Channel(t)
	go func() {
		for d := range deliveries {
			if v.handle(saying, d) != nil {
				return // the test is over
			}
		}
	}()
	return v
}

func (v *service) handle(ch *amqp091.Channel, d amqp091.Delivery) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	said := amqp091.Table{"retry-error": "no answer"}
	switch {
	case v.forbid[d.MessageId]:
		said = amqp091.Table{"retry-permanent": true}
	case !v.down.Load() && !v.poison[d.MessageId]:
		v.done[d.MessageId]++
		v.at = append(v.at, time.Now())
		return d.Ack(false)
	case !v.says:
		return d.Reject(false)
	}
	h := maps.Clone(d.Headers)
	if h == nil {
		h = amqp091.Table{}
	}
	delete(h, "CC")
	if _, known := h["retry-routing-key"]; !known {
		h["retry-exchange"], h["retry-routing-key"] = d.Exchange, d.RoutingKey
	}
	maps.Copy(h, said)
	copied := amqp091.Publishing{Headers: h, MessageId: d.MessageId}
	if err := ch.Publish("shop.failed", "@billing", true, false, copied); err != nil {
		return err
	}
	return d.Ack(false)
}

// handled returns how many messages are done, and how many more than once.
func (v *service) handled() (done, doubled int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range v.done {
		doubled += n - 1
	}
	return len(v.done), doubled
}

// send publishes messages with these ids.
func (s *stage) send(t *testing.T, ids ...string) {
	t.Helper()
	messages := make([]amqp091.Publishing, len(ids))
	for i, id := range ids {
		messages[i] = amqp091.Publishing{MessageId: id}
	}
	brokertest.PublishConfirmed(t, s.ch, "events", "order.placed", messages...)
}

// allDone waits until the service has handled n messages, and checks that none is a dead letter.
func (s *stage) allDone(t *testing.T, v *service, n int) {
	t.Helper()
	brokertest.Eventually(t, fmt.Sprintf("all %d messages to be done", n), func() bool {
		if dead := s.ready(t, "billing.dead"); dead > 0 {
			t.Fatalf("%d are dead letters", dead)
		}
		done, _ := v.handled()
		return done == n
	}, func() string { return s.holds(t) })
	_, doubled := v.handled()
	t.Logf("%d done, 0 lost, 0 dead, %d doubled", n, doubled)
	if doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	s.untilNothingIn(t, "shop.unroutable")
}

// hook is a webhook that keeps notices.
type hook struct {
	mu      sync.Mutex
	notices []notify.Notice
	texts   []string
}

func newHook(t *testing.T) (*hook, string) {
	t.Helper()
	h := &hook{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var p notify.Post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.notices, h.texts = append(h.notices, p.Notices...), append(h.texts, p.Text)
	}))
	t.Cleanup(server.Close)
	return h, server.URL
}

// of counts the notices of an event.
func (h *hook) of(event string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, notice := range h.notices {
		if notice.Event == event {
			n++
		}
	}
	return n
}

// Messages that are valid survive an outage of what their consumer needs, whether it is over before
// statistics can show it, or lasts. Of one that lasts, one notice tells the begin and one the end.
func TestAnOutageMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]bool{"rejecting": false, "saying why": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("for three seconds", func(t *testing.T) {
				t.Parallel()
				file := outageFile("{}")
				if says {
					file = strings.Replace(file, "defaults: {", "defaults: {type: classic, ", 1)
				}
				s := newStage(t, file)
				run(t, s.processor(t))
				v := s.serve(t, &service{says: says})
				v.down.Store(true)
				s.send(t, ids(0, 200)...)
				pause(t, 3*time.Second)
				v.down.Store(false)
				s.allDone(t, v, 200)
			})
			t.Run("for long", func(t *testing.T) {
				t.Parallel()
				s := newStage(t, outageFile("{}"))
				h, url := newHook(t)
				p, end := s.notified(t, url)
				log := listen(t, p)
				page := serve(t, p.Monitor)
				stop := run(t, p)
				v := s.serve(t, &service{says: says})
				v.down.Store(true)
				s.send(t, ids(0, 200)...)
				log.says(t, "work queue is in outage:")
				brokertest.Eventually(t, "the gauge to be 1", func() bool { // it is set after the line is written
					return page.scrape(t).sum("dlxctl_queue_in_outage", "queue", "billing", "owner", "team-billing") == 1
				})
				pause(t, 5*time.Second)
				v.down.Store(false)
				s.allDone(t, v, 200)
				begins := func() int { return len(log.with("work queue is in outage:")) }
				ends := func() int { return len(log.with("outage of a work queue has ended")) }
				brokertest.Eventually(t, "the outage to end", func() bool { return ends() == begins() })
				stop()
				end()
				// Counts that a busy node of a test is late with can show a second outage.
				if n, m := begins(), ends(); n > 3 || h.of("outage") != n || h.of("outage_end") != m || len(h.notices) != n+m {
					t.Errorf("notices: %+v", h.notices)
				}
				got := page.scrape(t)
				if got.sum("dlxctl_messages_retried_total", "queue", "billing", "tier", "outage") < 200 {
					t.Error("waiting is not counted")
				}
				t.Log(strings.Join(h.texts, "\n"))
			})
		})
	}
}

// RabbitMQ 4 counts no delivery to a consumer of AMQP 1.0. So of its queue nothing is known, also
// once a person has looked at it, and no message dies: the log and a gauge say so.
func TestConsumersThatAreNotCounted(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	s := newStage(t, outageFile("{failing: 80%, of: 10}"))
	if !s.target.AtLeast("4.0") {
		t.Skip("before 4.0, AMQP 1.0 needs a plugin")
	}
	p := s.processor(t)
	p.Monitor = monitor.New("")
	log := listen(t, p)
	page := serve(t, p.Monitor)
	run(t, p)
	consumer, err := s.target.Session10(t).NewReceiver(t.Context(), "/queues/billing", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			m, err := consumer.Receive(t.Context(), nil)
			if err != nil || consumer.RejectMessage(t.Context(), m, nil) != nil {
				return // the test is over
			}
		}
	}()
	s.send(t, ids(0, 20)...)
	log.says(t, "the broker does not count")
	d, found, err := s.ch.Get("billing", false)
	for ; err == nil && !found; d, found, err = s.ch.Get("billing", false) {
		s.send(t, "looked at")
	}
	if err != nil || d.Reject(true) != nil {
		t.Fatal("cannot look at a message", err)
	}
	pause(t, retry.Unsure(broker.Tick)+5*broker.Tick)
	if dead := s.ready(t, "billing.dead"); dead > 0 {
		t.Errorf("%d are dead letters", dead)
	}
	if lines := log.with("work queue is in outage:"); len(lines) > 0 {
		t.Errorf("the log says %q", lines)
	}
	if page.scrape(t).sum("dlxctl_statistics_unread", "backoff", "standard") != 1 {
		t.Error("the gauge is not 1")
	}
}

// Ten messages that always fail, among thousands that do not, become dead letters, and no outage.
func TestPoisonIsNotAnOutage(t *testing.T) {
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	p := s.processor(t)
	log := listen(t, p)
	run(t, p)
	v := &service{poison: map[string]bool{}}
	for i := range 10 {
		v.poison[ids(0, 2000)[i*200]] = true
	}
	s.serve(t, v)
	s.send(t, ids(0, 2000)...)
	brokertest.Eventually(t, "ten dead letters", func() bool { return s.ready(t, "billing.dead") == 10 })
	if done, doubled := v.handled(); done != 1990 || doubled > 0 {
		t.Errorf("%d done, %d doubled", done, doubled)
	}
	if lines := log.with("work queue is in outage:"); len(lines) > 0 {
		t.Errorf("the log says %q", lines)
	}
	for id := range s.drain(t, "billing.dead") {
		if !v.poison[id] {
			t.Errorf("%s is dead", id)
		}
	}
}

// child starts a second processor, in a process of its own, and returns what kills it.
func (s *stage) child(t *testing.T) (kill func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") //nolint:gosec // this test binary
	c.Env = append(os.Environ(), childURL+"="+s.target.URL, childAPI+"="+s.target.API, childFile+"="+s.file)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "two processors", func() bool { return s.consumers(t, "shop.standard.failed") == 2 })
	return func() {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
	}
}

// Of two processors one is killed during the outage, and another one starts. No message
// becomes a dead letter.
func TestProcessorsComeAndGoInAnOutage(t *testing.T) {
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	p := s.processor(t)
	log := listen(t, p)
	stop := run(t, p)
	kill := s.child(t)
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 200)...)
	log.says(t, "work queue is in outage:")
	kill()
	pause(t, 2*time.Second)
	stop()
	next := s.processor(t)
	log = listen(t, next)
	run(t, next)
	log.says(t, "work queue is in outage:") // it knows that again, by itself
	v.down.Store(false)
	brokertest.Eventually(t, "all messages to be done", func() bool { done, _ := v.handled(); return done == 200 })
	_, doubled := v.handled()
	if dead := s.ready(t, "billing.dead"); dead > 0 || doubled > prefetch {
		t.Errorf("%d are dead letters, %d doubled, more than can have been in flight at the kill", dead, doubled)
	}
	t.Logf("0 lost, %d doubled", doubled)
	log.says(t, "outage of a work queue has ended")
}

// The broker tells a user without any right, but for the tag monitoring, since when a work queue is
// in outage: while a processor lives that knows it, one more is killed, and until the outage is
// over. One that has started later says that it may have begun before.
func TestTheBrokerTellsSinceWhenAQueueIsInOutage(t *testing.T) {
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	eyes := managementtest.Client(t, s.target.User(t, "monitoring", "^$", "^$", "^$"))
	failed := []string{"shop.standard.failed"}
	tells := func(what string, ok func(began topology.Began, out bool) bool) (told topology.Began) {
		t.Helper()
		brokertest.Eventually(t, what, func() bool {
			all, err := eyes.InOutage(t.Context(), failed)
			if err != nil {
				t.Fatal(err)
			}
			began, out := all["billing"]
			told = began
			return len(all) <= 1 && ok(began, out)
		}, func() string { return fmt.Sprint(told) })
		return told
	}
	stop := run(t, s.processor(t))
	kill := s.child(t)
	v := s.serve(t, &service{})
	s.send(t, ids(0, 200)...)
	s.allDone(t, v, 200)
	brokertest.Eventually(t, "statistics of that", func() bool {
		all, err := eyes.Deliveries(t.Context(), []string{"billing"})
		if err != nil {
			t.Fatal(err)
		}
		return all["billing"].Acknowledged >= 200
	})
	pause(t, 8*broker.Tick) // both processors read them, also if some reads fail
	tells("no outage", func(_ topology.Began, out bool) bool { return !out })
	v.down.Store(true)
	begin := time.Now().Add(-time.Second) // what is told has no fractions
	s.send(t, ids(1000, 1200)...)
	told := tells("the begin", func(_ topology.Began, out bool) bool { return out })
	if told.AtLeast || told.At.Before(begin) || told.At.After(time.Now()) {
		t.Errorf("it has begun %+v, sent at %s", told, begin)
	}
	report := status.Make(s.topology, s.inspect(t, eyes), status.Options{
		At: told.At.Local(), InOutage: map[string]topology.Began{"billing": told},
	})
	if i := slices.IndexFunc(report.Problems, func(p status.Problem) bool { return p.Name == "outage" }); i < 0 ||
		!strings.HasPrefix(report.Problems[i].Text, "billing: in outage since "+told.At.Local().Format("15:04")) {
		t.Errorf("problems: %+v", report.Problems)
	} else {
		t.Log(report.Problems[i].Text)
	}
	const telling = "dlxctl process shop outages"
	brokertest.Eventually(t, "both to tell", func() bool { return len(named(t, eyes, telling)) == 2 })
	kill()
	brokertest.Eventually(t, "one processor", func() bool { return s.consumers(t, failed[0]) == 1 })
	s.reopens(t, eyes, telling)
	told = tells("the begin, by the other one", func(_ topology.Began, out bool) bool { return out })
	if told.AtLeast || told.At.Before(begin) {
		t.Errorf("the other one says %+v", told)
	}
	stop()
	run(t, s.processor(t))
	next := tells("the begin, by the next one", func(began topology.Began, out bool) bool {
		return out && began.AtLeast // statistics may still show the connection of the one before
	})
	if next.At.Before(told.At) {
		t.Errorf("the next one says %+v, the one before said %+v", next, told)
	}
	v.down.Store(false)
	brokertest.Eventually(t, "all messages to be done", func() bool { done, _ := v.handled(); return done == 400 })
	tells("the end", func(_ topology.Began, out bool) bool { return !out })
	if _, doubled := v.handled(); doubled > prefetch || s.ready(t, "billing.dead") > 0 {
		t.Errorf("%d doubled, more than can have been in flight at the kill, %d dead", doubled, s.ready(t, "billing.dead"))
	}
}

// A processor that cannot tell since when a queue is in outage says so once, and does all else that
// it does in an outage. It tells as soon as it can.
func TestAnOutageThatCannotBeTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	p, user := s.processor(t), s.target.User(t, "management", ".*", ".*", ".*")
	p.Endpoint = s.endpoint(t, user)
	log := listen(t, p)
	run(t, p)
	brokertest.Eventually(t, "a processor", func() bool { return s.consumers(t, "shop.standard.failed") == 1 })
	limit := "user-limits/" + p.Endpoint.AMQP.User + "/max-connections"
	s.target.Call(t, http.MethodPut, limit, map[string]int{"value": 0})
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 200)...)
	const line = "cannot announce outages to the broker"
	log.says(t, line)
	pause(t, 3*broker.Tick)
	if n := len(log.with(line)); n != 1 {
		t.Errorf("it says %d times that it cannot tell", n)
	}
	s.target.Call(t, http.MethodDelete, limit, nil)
	m := managementtest.Client(t, s.target)
	brokertest.Eventually(t, "the begin", func() bool {
		all, err := m.InOutage(t.Context(), []string{"shop.standard.failed"})
		if err != nil {
			t.Fatal(err)
		}
		return !all["billing"].At.IsZero()
	})
	v.down.Store(false)
	s.allDone(t, v, 200)
}

// named returns the open connections of this name.
func named(t *testing.T, m *management.Client, name string) (out []string) {
	t.Helper()
	all, err := m.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for address, n := range all {
		if n.String() == name {
			out = append(out, address)
		}
	}
	return out
}

// reopens closes the only connection of this name, and waits for another one.
func (s *stage) reopens(t *testing.T, m *management.Client, name string) {
	t.Helper()
	var before []string
	brokertest.Eventually(t, "one "+name, func() bool { before = named(t, m, name); return len(before) == 1 })
	s.target.Call(t, http.MethodDelete, "connections/"+url.PathEscape(before[0]), nil)
	brokertest.Eventually(t, "another "+name, func() bool {
		now := named(t, m, name)
		return len(now) == 1 && now[0] != before[0]
	})
}

// inspect reads the virtual host.
func (s *stage) inspect(t *testing.T, m *management.Client) topology.State {
	t.Helper()
	state, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// In an outage, what no retry helps is dead at once, and what waits longer than the file allows
// after that. Both keep their reasons.
func TestWhatDiesInAnOutage(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, outageFile("{until: 26s}"))
	p := s.processor(t)
	log := listen(t, p)
	run(t, p)
	v := s.serve(t, &service{forbid: map[string]bool{"m-500": true}})
	v.down.Store(true)
	s.send(t, ids(0, 100)...)
	log.says(t, "work queue is in outage:")
	s.send(t, "m-500")
	m := s.bury(t, "billing.dead")
	if m.MessageId != "m-500" || m.Headers["retry-reason"] != "permanent" || m.Headers["retry-attempts"] != int64(1) {
		t.Errorf("dead: %s with %v", m.MessageId, m.Headers)
	}
	for range 100 {
		m := s.bury(t, "billing.dead")
		first, _ := m.Headers["retry-first-failed-at"].(string)
		last, _ := m.Headers["retry-last-failed-at"].(string)
		begin, err := time.Parse(time.RFC3339, first)
		end, err2 := time.Parse(time.RFC3339, last)
		if err != nil || err2 != nil || end.Sub(begin) < 26*time.Second || m.Headers["retry-attempts"] != int64(3) ||
			m.Headers["retry-reason"] != "rejected" || m.Headers["retry-unsure-since"] != nil {
			t.Errorf("dead: %s with %v", m.MessageId, m.Headers)
		}
	}
}

// At most so many of the waiting messages return per second as the file says, also from one
// processor to the next.
func TestARateForWhatWaited(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, outageFile("{rate: 20/s, failing: 50%}"))
	p := s.processor(t)
	log := listen(t, p)
	stop := run(t, p)
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 200)...)
	log.says(t, "work queue is in outage:")
	stop()
	next := s.processor(t)
	run(t, next)
	v.down.Store(false)
	s.allDone(t, v, 200)
	for i := range v.at[100:] { // 100 in any five seconds, of which the broker or the service may rest two
		if took := v.at[i+100].Sub(v.at[i]); took < 3*time.Second {
			t.Errorf("messages %d to %d returned within %s", i, i+100, took)
			break
		}
	}
}

// A user who may not read statistics is refused at the start, and told what is missing.
func TestOutagesNeedStatistics(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, s.target.User(t, "", ".*", ".*", ".*"))
	for _, err := range []error{p.Run(t.Context()), p.Check(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "outage") || !strings.Contains(err.Error(), "dlxctl rights") {
			t.Errorf("error %v", err)
		}
	}
	p.Endpoint = s.endpoint(t, s.target.User(t, "management", "^$", `^shop\.`, `^shop\.`))
	log := listen(t, p)
	run(t, p)
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 100)...)
	log.says(t, "work queue is in outage:")
	v.down.Store(false)
	s.allDone(t, v, 100)
}

// While the management API does not answer the processor goes on, and says so once. The metric
// tells when it answers again.
func TestOutagesWithoutAnAnswer(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	p := s.processor(t)
	api, err := url.Parse(s.target.API)
	if err != nil {
		t.Fatal(err)
	}
	var answers atomic.Bool
	forward := httputil.NewSingleHostReverseProxy(api)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers.Load() {
			panic(http.ErrAbortHandler) // it ends the connection without an answer
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(broken.Close)
	target := s.target
	target.API = broken.URL
	p.Endpoint, p.Monitor = s.endpoint(t, target), monitor.New("")
	log := listen(t, p)
	run(t, p)
	s.send(t, "m-1")
	for range 3 {
		reject(t, s.take(t, "billing"))
	}
	if m := s.take(t, "billing"); m.Headers["retry-unsure-since"] == nil {
		t.Errorf("it waits with the headers %v", m.Headers)
	}
	if lines := log.with("cannot read statistics"); len(lines) != 1 {
		t.Errorf("the log says %q", lines)
	}
	web := serve(t, p.Monitor)
	unread := func() int { return web.scrape(t).sum("dlxctl_statistics_unread", "backoff", "standard") }
	if unread() != 1 {
		t.Error("the metric says that statistics are read")
	}
	answers.Store(true)
	brokertest.Eventually(t, "statistics", func() bool { return unread() == 0 })
	log.says(t, "reading statistics again")
}

// Without the exchange of outages a message that would wait is a dead letter, and all else goes on.
// Once it is there again, messages wait again.
func TestTheExchangeOfOutagesIsGone(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, outageFile("{}"))
	p := s.processor(t)
	log := listen(t, p)
	run(t, p)
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 100)...)
	log.says(t, "work queue is in outage:")
	gone := s.topology.Backoffs[0].Outage.Exchange()
	if err := s.eyes.ExchangeDelete(gone, false, false); err != nil { // what waits returns by another one
		t.Fatal(err)
	}
	dead := map[string]int{}
	brokertest.Eventually(t, "all to be dead letters", func() bool {
		for id, n := range s.drain(t, "billing.dead") {
			dead[id] += n
		}
		return len(dead) == 100
	}, func() string { return missing(ids(0, 100), dead) })
	for id, n := range dead {
		if n > 1 { // what was in flight when the channel closed
			t.Logf("%s is dead %d times", id, n)
		}
	}
	log.says(t, "messages die after their tiers")
	s.apply(t, s.topology)
	log.says(t, "the exchange can be published to again")
	s.send(t, ids(100, 200)...)
	brokertest.Eventually(t, "messages to wait again", func() bool { return s.ready(t, "shop.standard.retry.outage") > 0 })
	v.down.Store(false)
	s.allDone(t, v, 100)
}

// The key comes and goes by apply, under traffic and with messages that wait: each returns, and is
// done or a dead letter, once.
func TestTheKeyComesAndGoes(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	with := outageFile("{until: 1h}")
	without := strings.Replace(with, ", outage: {until: 1h}", "", 1)
	s := newStage(t, without)
	first := s.processor(t)
	first.Log = s.quiet()
	stop := run(t, first)
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 50)...)
	s.moved(t, "billing.dead", ids(0, 50)...)
	s.apply(t, mustCompile(t, with))
	next := s.processor(t)
	next.Topology = mustCompile(t, with)
	log := listen(t, next)
	stop()
	stop = run(t, next)
	published := brokertest.PublishEvery(t, s.ch, "events", "a", brokertest.Pause(2*time.Millisecond))
	log.says(t, "work queue is in outage:")
	brokertest.Eventually(t, "messages to wait", func() bool { return s.ready(t, "shop.standard.retry.outage") > 0 })
	s.change(t, mustCompile(t, without)) // while the processor has the previous file
	pause(t, time.Second)
	stop()
	last := s.processor(t)
	last.Topology, last.Log = mustCompile(t, without), s.quiet()
	run(t, last)
	pause(t, 2*time.Second)
	v.down.Store(false)
	n := published()
	dead := map[string]int{}
	var ends map[string]int // how often each message was done or a dead letter
	brokertest.Eventually(t, fmt.Sprintf("all %d messages", n), func() bool {
		for id, c := range s.drain(t, "billing.dead") {
			dead[id] += c
		}
		v.mu.Lock()
		ends = maps.Clone(v.done)
		v.mu.Unlock()
		for id, c := range dead {
			ends[id] += c
		}
		return len(ends) == n
	}, func() string { return missing(ids(0, n), ends) + "\n" + s.holds(t) })
	t.Logf("%d published, %d dead", n, len(dead))
	for id, c := range ends {
		if c > 1 {
			t.Errorf("%s ended %d times: dead %d times", id, c, dead[id])
		}
	}
	s.untilNothingIn(t, "shop.standard.retry.outage")
	s.change(t, mustCompile(t, without))
	brokertest.Eventually(t, "the queue to be deleted", func() bool {
		return !strings.Contains(s.holds(t), "shop.standard.retry.outage")
	})
}

func mustCompile(t *testing.T, file string) topology.Compiled {
	t.Helper()
	out, err := compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Of a queue that worked until its dependency failed no message dies, however soon its tiers are
// over, also where the dependency comes back for a moment, where two processors start again one
// after the other, and where a consumer says why it fails and they have unequal shares.
func TestAQueueThatWorkedMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		says, flaps, restarts bool
		prefetch              int // of a second processor. 0: there is none
	}{
		"steady":                       {},
		"flapping":                     {flaps: true},
		"restarts":                     {restarts: true, prefetch: prefetch},
		"saying why to unequal shares": {says: true, prefetch: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, outageFile("{}"))
			var stops []func()
			for _, n := range []int{prefetch, tc.prefetch} {
				if n == 0 {
					continue
				}
				p := s.processor(t)
				p.Prefetch, p.Log = n, s.quiet()
				stops = append(stops, run(t, p))
			}
			v := s.serve(t, &service{says: tc.says})
			published := brokertest.PublishEvery(t, s.ch, "events", "a", brokertest.Pause(20*time.Millisecond))
			pause(t, 6*time.Second)
			v.down.Store(true)
			pause(t, 2500*time.Millisecond)
			if tc.flaps {
				v.down.Store(false)
				pause(t, 400*time.Millisecond)
				v.down.Store(true)
			}
			for _, stop := range stops {
				pause(t, 2500*time.Millisecond)
				if tc.restarts {
					stop()
					p := s.processor(t)
					p.Log = s.quiet()
					run(t, p)
				}
			}
			pause(t, 10*time.Second)
			v.down.Store(false)
			s.allDone(t, v, published())
		})
	}
}

// However many queues are in outage, and however long their names are, what a connection tells fits
// the smallest frame. It tells the longest outages.
func TestManyQueuesInOutage(t *testing.T) {
	t.Parallel()
	const queues = 40
	file := outageFile("{of: 1}")
	long := strings.Repeat("x", 200)
	for i := range queues {
		file += fmt.Sprintf("  - {name: %s-%02d}\n", long, i)
	}
	s := newStage(t, file)
	m := managementtest.Client(t, s.target)
	p := s.processor(t)
	log := listen(t, p)
	run(t, p)
	ch := s.target.Channel(t)
	for i := range queues {
		name := fmt.Sprintf("%s-%02d", long, i)
		deliveries := brokertest.Consume(t, ch, name, 0)
		go func() {
			for d := range deliveries {
				if d.Reject(false) != nil {
					return // the test is over
				}
			}
		}()
		brokertest.PublishConfirmed(t, s.ch, "", name, amqp091.Publishing{MessageId: name})
	}
	brokertest.Eventually(t, "all to be in outage", func() bool {
		return len(log.with("work queue is in outage:")) == queues
	})
	told := 0
	brokertest.Eventually(t, "8 to be told", func() bool {
		all, err := m.InOutage(t.Context(), []string{"shop.standard.failed"})
		if err != nil {
			t.Fatal(err)
		}
		told = len(all)
		return told == 2000/(len(long)+len("-00")+len("2026-11-27T02:10:00Z")+6)
	}, func() string { return fmt.Sprint(told) })
	log.calm(t)
}

// A broker that keeps no statistics shows no outage, and kills no message. The log and the gauge
// say that it keeps none.
func TestABrokerWithoutStatisticsMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	s := onNode(t, node, outageFile("{}"))
	// As the setting management_agent.disable_metrics_collector, with which scripts/broker cannot see
	// that a node is up.
	node.Eval(t, "ok = application:set_env(rabbitmq_management_agent, disable_metrics_collector, true).")
	p := s.processor(t)
	p.Monitor = monitor.New("")
	log, page := listen(t, p), serve(t, p.Monitor)
	run(t, p)
	v := s.serve(t, &service{})
	v.down.Store(true)
	s.send(t, ids(0, 100)...)
	pause(t, retry.Unsure(broker.Tick)+2*management.StatisticsLag)
	if page.scrape(t).sum("dlxctl_statistics_unread", "backoff", "standard") != 1 {
		t.Error("the gauge says that statistics can be read")
	}
	if lines := log.with("the broker counts no deliveries of shop."); len(lines) != 1 {
		t.Errorf("the log says %q", lines)
	}
	m := managementtest.Client(t, s.target)
	if n, err := m.Delivered(t.Context(), "billing"); !errors.Is(err, management.ErrNoStatistics) {
		t.Errorf("billing has delivered %d: %v", n, err)
	}
	v.down.Store(false)
	s.allDone(t, v, 100)
}

// Of a queue that the processor does not know yet no message dies at once: of one that only a newer
// file has, and of one that a match covers, after a thousand names that do not exist.
func TestAnUnknownQueueMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	file := outageFile("{}")
	covered := "  - {match: '^svc[.]', external: true}\n"
	for queue, dead := range map[string]string{"later": "later.dead", "svc.last": "shop.dead"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			before, after := file, file+"  - {name: later}\n"
			if queue == "svc.last" {
				if !target.AtLeast("4.0") {
					t.Skip("before 4.0, match is refused")
				}
				before, after = file+covered, file+covered
			}
			s := newStageOn(t, target, spec.Source{Name: "topology.yaml", Data: []byte(before)},
				func(string) (string, bool) { return "", false })
			p := s.processor(t)
			p.Log = s.quiet()
			run(t, p)
			s.apply(t, mustCompile(t, after))
			if queue == "svc.last" {
				for i := range 1100 {
					s.publish(t, "shop.standard.failed", fmt.Sprint("@svc.", i), amqp091.Publishing{})
				}
				brokertest.Eventually(t, "all to be unroutable", func() bool { return s.ready(t, "shop.unroutable") == 1100 })
				s.declare(t, queue, topology.Quorum, nil)
			}
			s.publish(t, "", queue, amqp091.Publishing{MessageId: "m"})
			for range 3 {
				reject(t, s.take(t, queue))
			}
			brokertest.Eventually(t, "it to come back", func() bool {
				if s.ready(t, dead) > 0 {
					t.Fatal("it is a dead letter")
				}
				return s.ready(t, queue) == 1
			})
			if m := s.bury(t, queue); m.Headers["retry-unsure-since"] == nil || m.Headers["retry-attempts"] != int64(2) {
				t.Errorf("it comes back with %v", m.Headers)
			}
		})
	}
}
