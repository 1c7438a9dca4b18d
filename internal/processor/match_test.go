package processor_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp10 "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// matchFile covers the queues of services by a pattern.
const matchFile = `
version: 1
name: shop
backoff: {quick: {tiers: [100ms, 0s, 100ms]}}
defaults: {backoff: quick}
exchanges: [{name: events, type: fanout}, {name: keys, type: topic}]
queues:
  - {name: billing, bindings: [{exchange: events}]}
  - {match: '^svc\.', external: true, owner: platform, severity: page}
`

// newMatchStage applies the file where the broker tells in which queue a message failed.
func newMatchStage(t *testing.T) *stage { t.Helper(); return newMatchStageOf(t, matchFile) }

// newMatchStageOf does so with another file.
func newMatchStageOf(t *testing.T, file string) *stage {
	t.Helper()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.0") {
		t.Skip("before 4.0, a publisher can forge in which queue a message failed, and match is refused")
	}
	return newStageOn(t, target, spec.Source{Name: "topology.yaml", Data: []byte(file)},
		func(string) (string, bool) { return "", false })
}

// declare declares a queue as a service does, and binds it to exchanges.
func (s *stage) declare(t *testing.T, queue, kind string, args amqp091.Table, exchanges ...string) {
	t.Helper()
	all := amqp091.Table{"x-queue-type": kind}
	maps.Copy(all, args)
	ch := s.target.Channel(t)
	brokertest.Declare(t, ch, queue, all)
	for _, exchange := range exchanges {
		brokertest.Bind(t, ch, queue, "#", exchange, nil)
	}
}

// A queue that a service declares after the apply, with nothing of dlxctl's, is retried like any
// other: the message comes back to it alone, with the exchange and the key of the publisher, and is
// a dead letter after its last tier. The log names the owner of the entry.
func TestAQueueThatAMatchCovers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{topology.Quorum, topology.Classic} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newMatchStage(t)
			p := s.processor(t)
			log := listen(t, p)
			run(t, p)
			s.declare(t, "svc.mine", kind, nil, "events")
			s.declare(t, "svc.other", kind, nil, "events")
			s.publish(t, "events", "order.placed", amqp091.Publishing{
				MessageId: "m-1", Headers: amqp091.Table{"CC": []any{"copy"}, "count": "mine"}, Expiration: "3600000",
			})
			for attempt := range 4 {
				m := s.take(t, "svc.mine")
				want := []string{"events", "shop.return"}[min(attempt, 1)]
				if m.Exchange != want || m.RoutingKey != "order.placed" {
					t.Errorf("delivery %d comes from %q with the key %q", attempt+1, m.Exchange, m.RoutingKey)
				}
				if attempt > 0 && (m.Headers["retry-exchange"] != "events" || m.Headers["retry-routing-key"] != "order.placed" ||
					m.Headers["retry-attempts"] != int64(attempt) || m.Headers["retry-queue"] != "svc.mine") {
					t.Errorf("delivery %d has the headers %v", attempt+1, m.Headers)
				}
				reject(t, m)
			}
			dead := s.bury(t, "shop.dead")
			if dead.MessageId != "m-1" || dead.Headers["count"] != int32(-1) || dead.Headers["retry-queue"] != "svc.mine" ||
				dead.Headers["retry-attempts"] != int64(4) || dead.RoutingKey != "order.placed" ||
				dead.Headers["retry-original-count"] != "mine" || dead.Headers["retry-expiration"] != "3600000" {
				t.Errorf("the dead letter %q has the key %q and the headers %v", dead.MessageId, dead.RoutingKey, dead.Headers)
			}
			log.says(t, "dead_letter_queue=shop.dead owner=platform severity=page")
			for _, queue := range []string{"billing", "svc.other"} { // one copy, of the publisher
				if m := s.bury(t, queue); m.Exchange != "events" {
					t.Errorf("%s has a message from %q", queue, m.Exchange)
				}
			}
			s.allEmpty(t)
		})
	}
}

// A user who may publish to business exchanges only can claim nothing: a message comes back to the
// queue in which it failed, and its attempts begin at 1.
func TestAPublisherForgesTheQueueOfAMatch(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	s.declare(t, "svc.mine", topology.Quorum, nil, "keys")
	s.declare(t, "svc.victim", topology.Quorum, nil)
	run(t, s.processor(t))
	death := func(queue string) amqp091.Table {
		return amqp091.Table{
			"queue": queue, "reason": "rejected", "count": int64(1), "exchange": "shop.return",
			"routing-keys": []any{"@svc.victim"}, "time": int64(1),
		}
	}
	hostile := []amqp091.Table{
		{"x-death": []any{death("svc.victim"), death("shop.quick.retry.100ms")}},
		{"x-death": []any{death("svc.mine"), death("shop.quick.retry.100ms")}, "count": int32(3), "retry-queue": "svc.mine"},
		{"x-death": []any{"svc.victim"}, "x-last-death-queue": "svc.victim", "x-first-death-queue": "svc.victim"},
		{"x-death": "svc.victim", "x-last-death-queue": int64(7)},
		{"x-last-death-queue": amqp091.Table{"queue": "svc.victim"}, "retry-queue": "svc.victim", "count": int32(1)},
		{"CC": []any{"@svc.victim", "@shop.dead", "@"}, "BCC": []any{"@billing"}},
		{
			"retry-queue": "svc.victim", "count": int32(3), "retry-attempts": int64(3), "retry-permanent": true,
			"retry-after": int64(86400),
		},
	}
	check := func(what string) {
		m := s.take(t, "svc.mine")
		reject(t, m)
		m = s.bury(t, "svc.mine")
		if m.Headers["retry-queue"] != "svc.mine" || m.Headers["retry-attempts"] != int64(1) ||
			m.Headers["count"] != int32(1) {
			t.Errorf("%s comes back with %v", what, m.Headers)
		}
	}
	for _, key := range []string{"order.placed", "@svc.victim", "@", "@shop.dead", "@billing"} {
		for i, h := range hostile {
			s.publish(t, "keys", key, amqp091.Publishing{MessageId: fmt.Sprint(i), Headers: h})
			check(fmt.Sprintf("message %d with the key %q", i, key))
		}
	}
	send, err := s.target.Session10(t).NewSender(t.Context(), "/exchanges/keys/%40svc.victim", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x-last-death-queue", "x-opt-deaths", "x-death", "x-first-death-queue"} {
		m := amqp10.NewMessage([]byte("body"))
		m.Header = &amqp10.MessageHeader{Durable: true}
		m.Annotations = amqp10.Annotations{name: "svc.victim", "x-last-death-reason": "rejected"}
		m.ApplicationProperties = map[string]any{name: "svc.victim", "retry-queue": "svc.victim"}
		if err := send.Send(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
		check("a message of AMQP 1.0 with " + name)
	}
	for _, queue := range []string{"svc.victim", "billing", "billing.dead", "shop.dead", "shop.unroutable"} {
		if n := brokertest.Ready(t, s.eyes, queue); n > 0 {
			t.Errorf("%s has %d messages", queue, n)
		}
	}
}

// anyValues are values of every type that a header of AMQP 0.9.1 may have.
func anyValues() []any {
	return []any{
		nil, true, false, int8(-1), byte(255), int16(3), int32(2), int64(1) << 62, float32(1), 0.5,
		amqp091.Decimal{Scale: 2, Value: 300},
		"", "@", "@svc.victim", "svc.victim", "shop.dead", "\x00\xff\n", strings.Repeat("svc.victim", 100),
		[]byte("svc.victim"), time.Unix(1<<40, 0),
		[]any{},
		[]any{"svc.victim", nil, []any{int32(1)}},
		amqp091.Table{},
		amqp091.Table{"queue": "svc.victim", "reason": "rejected", "count": int64(1), "routing-keys": []any{"@svc.victim"}},
		[]any{amqp091.Table{"queue": "svc.victim", "exchange": "shop.return", "reason": int8(1), "routing-keys": "x"}},
	}
}

// Whatever values headers have, a message of a queue that a match covers comes back to it with one
// attempt. A consumer that publishes to the failed exchange itself reaches the queue that it names,
// or the unroutable queue, and no other.
func TestHeadersOfAnyTypeInAMatch(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	s.declare(t, "svc.mine", topology.Quorum, nil, "keys")
	s.declare(t, "svc.victim", topology.Quorum, nil)
	run(t, s.processor(t))
	names := []string{
		"x-death", "x-last-death-queue", "x-last-death-reason", "x-last-death-exchange", "x-first-death-queue",
		"x-opt-deaths", "count", "retry-queue", "retry-attempts", "retry-exchange", "retry-routing-key", "retry-history",
		"retry-first-queue",
		"retry-first-failed-at", "retry-reason", "retry-expiration", "retry-permanent", "retry-after", "retry-original-count",
	}
	for i, v := range anyValues() {
		h := amqp091.Table{}
		for _, name := range names {
			h[name] = v
		}
		s.publish(t, "keys", "order", amqp091.Publishing{MessageId: fmt.Sprint(i), Headers: h})
		reject(t, s.take(t, "svc.mine"))
		m := s.bury(t, "svc.mine")
		if m.MessageId != fmt.Sprint(i) || m.RoutingKey != "order" || m.Headers["retry-queue"] != "svc.mine" ||
			m.Headers["retry-attempts"] != int64(1) || m.Headers["count"] != int32(1) || m.Headers["retry-exchange"] != "keys" {
			t.Errorf("with %v (%T) it comes back as %s, key %q, with %v", v, v, m.MessageId, m.RoutingKey, m.Headers)
		}
	}
	for i, v := range anyValues() {
		h := amqp091.Table{}
		for _, name := range names {
			h[name] = v
		}
		s.publish(t, "shop.failed", "@", amqp091.Publishing{MessageId: fmt.Sprint(i), Headers: h})
		queue := "shop.unroutable"
		if fmt.Sprintf("%s", v) == "svc.victim" { // as by the key @svc.victim
			queue = "svc.victim"
		}
		if m := s.bury(t, queue); m.MessageId != fmt.Sprint(i) {
			t.Errorf("with %v (%T) %s has %s", v, v, queue, m.MessageId)
		}
	}
	s.allEmpty(t)
}

// A service that knows dlxctl may name its queue itself: by arguments, or as it says why a message
// failed. No apply has seen the queue. A queue that no match covers has no return path.
func TestAQueueThatNamesItself(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	run(t, s.processor(t))
	own := func(queue string) amqp091.Table {
		return amqp091.Table{"x-dead-letter-exchange": "shop.failed", "x-dead-letter-routing-key": "@" + queue}
	}
	s.declare(t, "svc.mine", topology.Quorum, own("svc.mine"))
	s.publish(t, "", "svc.mine", amqp091.Publishing{MessageId: "a"})
	reject(t, s.take(t, "svc.mine"))
	if m := s.bury(t, "svc.mine"); m.Headers["retry-attempts"] != int64(1) {
		t.Errorf("it comes back with %v", m.Headers)
	}

	s.declare(t, "svc.says", topology.Quorum, nil)
	s.publish(t, "", "svc.says", amqp091.Publishing{MessageId: "b"})
	m := s.take(t, "svc.says")
	s.publish(t, "shop.failed", "@svc.says", amqp091.Publishing{MessageId: "b", Headers: amqp091.Table{
		"retry-error": "no stock", "retry-exchange": m.Exchange, "retry-routing-key": m.RoutingKey,
	}})
	if err := m.Ack(false); err != nil {
		t.Fatal(err)
	}
	if m := s.bury(t, "svc.says"); m.Headers["retry-error"] != "no stock" || m.RoutingKey != "svc.says" {
		t.Errorf("it comes back with the key %q and %v", m.RoutingKey, m.Headers)
	}

	s.declare(t, "other", topology.Quorum, own("other"))
	s.publish(t, "", "other", amqp091.Publishing{MessageId: "c"})
	reject(t, s.take(t, "other"))
	if m := s.bury(t, "shop.unroutable"); m.MessageId != "c" {
		t.Errorf("shop.unroutable has %q", m.MessageId)
	}
	s.publish(t, "shop.failed", "@svc.gone", amqp091.Publishing{MessageId: "d"})
	if m := s.bury(t, "shop.unroutable"); m.Headers["retry-error"] != `the topology "shop" has no work queue "svc.gone"` {
		t.Errorf("shop.unroutable has %v", m.Headers)
	}
	s.allEmpty(t)
}

// A processor that may not bind queues logs it. What the service has bound itself is retried, and
// what nothing has bound ends in the unroutable queue.
func TestAProcessorThatMayNotBind(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, s.target.User(t, "", "^$", `^shop\..*$`, `^shop\.quick\.failed$`))
	log := listen(t, p)
	run(t, p)
	for _, queue := range []string{"svc.bound", "svc.unbound"} {
		s.declare(t, queue, topology.Quorum, nil)
	}
	brokertest.Bind(t, s.target.Channel(t), "svc.bound", "@svc.bound", "shop.return", nil)
	for _, queue := range []string{"svc.bound", "svc.unbound"} {
		s.publish(t, "", queue, amqp091.Publishing{MessageId: queue})
		reject(t, s.take(t, queue))
	}
	s.bury(t, "svc.bound")
	if m := s.bury(t, "shop.unroutable"); m.MessageId != "svc.unbound" || m.Headers["retry-attempts"] != int64(1) {
		t.Errorf("shop.unroutable has %q with %v", m.MessageId, m.Headers)
	}
	if !s.target.AtLeast("4.3") { // 4.3 does not even say that the queue exists
		log.says(t, `its retries go to the unroutable queue" queue=svc.unbound`)
	}
	s.allEmpty(t)
}

// A processor that is stopped while it looks for the queue of a first failure finishes that: the
// queue is bound before the message has waited, or it would end in the unroutable queue.
func TestStoppedWhileItLooksForAQueue(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	p := s.processor(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var looks atomic.Bool // the next connection is for that
	p.Endpoint = s.endpoint(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		if looks.Load() {
			stop()
		}
		_, _ = io.Copy(server, client)
	}))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	brokertest.Eventually(t, "it to consume", func() bool {
		q, err := s.eyes.QueueDeclarePassive("shop.quick.failed", true, false, false, false, nil)
		return err == nil && q.Consumers == 1
	})
	looks.Store(true)
	s.declare(t, "svc.0", topology.Quorum, nil)
	s.publish(t, "", "svc.0", amqp091.Publishing{MessageId: "m-1"})
	reject(t, s.take(t, "svc.0"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.comesBack(t, "svc.0")
}

// comesBack waits until a message comes back to its queue after its first failure.
func (s *stage) comesBack(t *testing.T, queue string) {
	t.Helper()
	brokertest.Eventually(t, "the message to come back", func() bool {
		return brokertest.Ready(t, s.eyes, queue)+brokertest.Ready(t, s.eyes, "shop.unroutable") > 0
	}, func() string { return s.holds(t) })
	if n := brokertest.Ready(t, s.eyes, "shop.unroutable"); n > 0 {
		t.Fatal("the message is in the unroutable queue")
	}
	if m := s.bury(t, queue); m.Headers["retry-attempts"] != int64(1) {
		t.Errorf("the message has %v", m.Headers)
	}
}

// A processor that cannot open the connection by which it looks for the queue of a first failure
// says so, and binds the queue while the message waits in its tier, or it would end in the
// unroutable queue.
func TestAQueueThatCouldNotBeLookedFor(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newMatchStageOf(t, strings.Replace(matchFile, "[100ms,", "[4s,", 1))
	p, user := s.processor(t), s.target.User(t, "", ".*", ".*", ".*")
	p.Endpoint = s.endpoint(t, user)
	limit := "user-limits/" + user.Username + "/max-connections"
	s.target.Call(t, http.MethodPut, limit, map[string]int{"value": 2}) // to consume and to publish
	log := listen(t, p)
	run(t, p)
	s.declare(t, "svc.0", topology.Quorum, nil)
	s.fails(t, "svc.0")
	log.says(t, "connection limit (2) is reached")
	log.once(t, "cannot look for a queue that a match covers")
	s.target.Call(t, http.MethodDelete, limit, nil)
	s.comesBack(t, "svc.0")
	s.fails(t, "svc.0") // over the connection that there is now
	s.comesBack(t, "svc.0")
	s.allEmpty(t)
}

// fails publishes a message to a queue and rejects it.
func (s *stage) fails(t *testing.T, queue string) {
	t.Helper()
	s.publish(t, "", queue, amqp091.Publishing{MessageId: queue})
	reject(t, s.take(t, queue))
}

// A service declares its queue anew, as a deployment does, and the return binding went with the
// queue: what fails then still comes back. So it does in a queue that was not there a moment ago.
func TestAQueueThatIsDeclaredAnew(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	run(t, s.processor(t))
	s.publish(t, "shop.failed", "@svc.later", amqp091.Publishing{MessageId: "early"})
	if m := s.bury(t, "shop.unroutable"); m.MessageId != "early" {
		t.Errorf("shop.unroutable has %q", m.MessageId)
	}
	for range 3 { // a tier is as long as an answer about a queue is believed
		s.declare(t, "svc.0", topology.Classic, nil)
		s.fails(t, "svc.0")
		s.comesBack(t, "svc.0")
		brokertest.Delete(t, s.eyes, "svc.0") // it is empty
	}
	s.declare(t, "svc.later", topology.Quorum, nil)
	s.fails(t, "svc.later")
	s.comesBack(t, "svc.later")
	s.allEmpty(t)
}

// What failed to be bound is bound at the next failure: here as the right comes.
func TestTheRightToBindComes(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	p := s.processor(t)
	user := s.target.User(t, "", "^$", `^(shop|svc)\..*$`, `^(shop\.quick\.failed|svc\..*)$`)
	p.Endpoint = s.endpoint(t, user)
	log := listen(t, p)
	run(t, p)
	s.declare(t, "svc.0", topology.Quorum, nil)
	s.fails(t, "svc.0")
	s.bury(t, "shop.unroutable")
	log.says(t, `its retries go to the unroutable queue" queue=svc.0`)
	s.target.Call(t, "PUT", "permissions/"+url.PathEscape(s.target.VHost)+"/"+url.PathEscape(user.Username),
		map[string]any{"configure": "^$", "write": `^(shop|svc)\..*$`, "read": `^(shop\.(quick\.failed|return)|svc\..*)$`})
	s.fails(t, "svc.0")
	s.comesBack(t, "svc.0")
	s.allEmpty(t)
}

// Undisturbed, nothing is lost and nothing doubled: each message is delivered four times, and is
// one dead letter. Some of the queues appear in the middle, and in each second run the processor is
// stopped and another one started.
func TestNothingIsLostInQueuesThatAMatchCovers(t *testing.T) {
	t.Parallel()
	const messages = 300
	for n := range brokertest.Load(20) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := newMatchStage(t)
			stop := run(t, s.processor(t))
			queues := []string{"svc.0", "svc.1", "svc.2"}
			var mu sync.Mutex
			delivered := map[string]int{}
			ch := s.target.Channel(t)
			for i, queue := range queues {
				s.declare(t, queue, []string{topology.Quorum, topology.Classic}[i%2], nil)
				deliveries := brokertest.Consume(t, ch, queue, 0)
				go func() {
					for m := range deliveries {
						mu.Lock()
						delivered[m.MessageId]++
						mu.Unlock()
						_ = m.Reject(false) // the test counts what comes of it
					}
				}()
				var all []amqp091.Publishing
				for k := range messages / len(queues) {
					all = append(all, amqp091.Publishing{MessageId: fmt.Sprintf("%s/%d", queue, k), DeliveryMode: amqp091.Persistent})
				}
				brokertest.PublishConfirmed(t, s.ch, "", queue, all...)
			}
			if n%2 == 1 { // as by Ctrl-C
				stop()
				run(t, s.processor(t))
			}
			brokertest.Eventually(t, "all to be dead letters", func() bool {
				return brokertest.Ready(t, s.eyes, "shop.dead") >= messages
			}, func() string { return s.holds(t) })
			dead := brokertest.Drain(t, s.eyes, "shop.dead")
			mu.Lock()
			defer mu.Unlock()
			want, once := map[string]int{}, map[string]int{}
			for id := range dead {
				want[id], once[id] = 4, 1
			}
			if len(dead) != messages {
				t.Errorf("%d messages are dead letters, not %d", len(dead), messages)
			}
			if d := cmp.Diff(once, dead); d != "" {
				t.Errorf("dead letters (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want, delivered); d != "" {
				t.Errorf("deliveries (-want +got):\n%s", d)
			}
			if n := brokertest.Ready(t, s.eyes, "shop.unroutable"); n > 0 {
				t.Errorf("shop.unroutable has %d messages", n)
			}
		})
	}
}
