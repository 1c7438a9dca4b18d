package processor_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
)

const delayFile = `
version: 1
name: shop
exchanges: [{name: events}]
delays: [{name: shop.later, to: events, max: %s}]
queues: [{name: work, backoff: none, bindings: [{exchange: events, keys: [a, b]}]}]
`

// delayFileOf returns delayFile with a longest delay.
func delayFileOf(longest string) string { return fmt.Sprintf(delayFile, longest) }

// delayFiles returns delayFile with each engine that the broker has, by its name.
func delayFiles(tb testing.TB) map[string]string {
	tb.Helper()
	files := map[string]string{"levels": delayFile}
	if brokertest.VHost(tb).AtLeast("4.3") {
		files["native"] = strings.Replace(delayFile, "max:", "engine: native, max:", 1)
	}
	return files
}

// dueHeader is where the tests keep when a message is due, in milliseconds since 1970.
const dueHeader = "test-due"

// publishDelayed publishes n messages with random delays.
func (s *stage) publishDelayed(tb testing.TB, n int, longest time.Duration) {
	tb.Helper()
	s.publishDelayedFrom(tb, 0, n, longest)
}

// publishDelayedFrom does so with the numbers from first on as message-ids.
func (s *stage) publishDelayedFrom(tb testing.TB, first, n int, longest time.Duration) {
	tb.Helper()
	for i := first; i < first+n; i++ {
		delay := time.Duration(rand.Int64N(int64(longest/time.Millisecond))) * time.Millisecond
		due := time.Now().Add(delay)
		headers := amqp091.Table{"x-delay": delay.Milliseconds(), dueHeader: due.UnixMilli()}
		if i%3 == 0 {
			headers = amqp091.Table{"x-delay-until": due.UnixMilli(), dueHeader: due.UnixMilli()}
		}
		s.publish(tb, "shop.later", "a", amqp091.Publishing{
			MessageId: strconv.Itoa(i), Headers: headers, DeliveryMode: amqp091.Persistent,
		})
	}
}

// arrivals takes n messages from the work queue, and fails if one is early. It returns how often
// each came.
func (s *stage) arrivals(tb testing.TB, n int) map[string]int {
	tb.Helper()
	seen := map[string]int{}
	var late time.Duration
	brokertest.Eventually(tb, fmt.Sprintf("all %d messages in work", n), func() bool {
		for {
			m, ok, err := s.eyes.Get("work", true)
			if err != nil {
				tb.Fatal(err)
			}
			if !ok {
				return len(seen) == n
			}
			seen[m.MessageId]++
			due, _ := m.Headers[dueHeader].(int64)
			by := time.Since(time.UnixMilli(due))
			late = max(late, by)
			if by < 0 {
				tb.Errorf("message %s is %s early", m.MessageId, -by)
			}
			for name := range m.Headers {
				if name != dueHeader && name != "x-delay" && name != "x-delay-until" && name != "x-delivery-count" {
					tb.Errorf("message %s has the header %s", m.MessageId, name)
				}
			}
		}
	})
	tb.Logf("the latest of %d is %s late", n, late)
	return seen
}

// doubledOf waits until all messages have come and none is left on the way. It returns how many
// came again.
func (s *stage) doubledOf(t *testing.T, published int) int {
	t.Helper()
	copies := 0
	for _, n := range s.arrivals(t, published) {
		copies += n
	}
	for _, q := range s.topology.Queues {
		if q.Name != "work" {
			s.untilNothingIn(t, q.Name)
		}
	}
	for _, n := range s.drain(t, "work") { // doubles may come behind the last message
		copies += n
	}
	return copies - published
}

// Each message of a delay comes once, with its key, and never early, while two processors share the
// work.
func TestDelays(t *testing.T) {
	t.Parallel()
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "24h"))
			p := s.processor(t)
			p.Monitor = monitor.New("")
			served := serve(t, p.Monitor)
			if _, why := served.get(t, "/readyz"); why != "no processor has started\n" {
				t.Errorf("before it runs: %s", why)
			}
			run(t, p)
			other := s.processor(t)
			other.Monitor = p.Monitor
			run(t, other)
			for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
				why := ""
				brokertest.Eventually(t, path+" to be well", func() bool {
					status := 0
					status, why = served.get(t, path)
					down := slices.ContainsFunc(s.topology.Delays[0].Read(), func(queue string) bool {
						up := `dlxctl_consumer_up{backoff="shop.later",queue="` + queue + `",topology="shop"} 1`
						return path == "/metrics" && !strings.Contains(why, up) // the other one may start just now
					})
					return status == http.StatusOK && !down
				}, &why)
			}
			const n = 300
			s.publishDelayed(t, n, 9*time.Second)
			for id, copies := range s.arrivals(t, n) {
				if copies != 1 {
					t.Errorf("message %s came %d times", id, copies)
				}
			}
			s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "at once"}) // it is not late
			s.bury(t, "work")
			s.allEmpty(t)
			brokertest.Eventually(t, "the times of all messages to be recorded", func() bool {
				late := served.scrape(t)["dlxctl_delayed_late_seconds"].GetMetric()
				count, sum := late[0].GetHistogram().GetSampleCount(), late[0].GetHistogram().GetSampleSum()
				if count > n || sum < 0 {
					t.Fatalf("%d messages were %fs late in all", count, sum)
				}
				return count == n && sum > 0
			})
		})
	}
}

// What says no time goes to the unroutable queue, with the reason and all that was published. The
// processor's own headers of a publisher mean nothing.
func TestDelaysWithBadHeaders(t *testing.T) {
	t.Parallel()
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "1h"))
			run(t, s.processor(t))
			far := time.Now().Add(2 * time.Hour)
			farText := far.Format(time.RFC3339)
			for name, tc := range map[string]struct {
				headers amqp091.Table
				want    string // what the reason begins with; empty: it comes at once
			}{
				"a text":              {amqp091.Table{"x-delay": "1000"}, `x-delay is "1000", not a number`},
				"null":                {amqp091.Table{"x-delay": nil}, "x-delay is null"},
				"a boolean":           {amqp091.Table{"x-delay": true}, "x-delay is true"},
				"a fraction":          {amqp091.Table{"x-delay": 1.5}, "x-delay is 1.5"},
				"a decimal":           {amqp091.Table{"x-delay": amqp091.Decimal{Scale: 1, Value: 15}}, "x-delay is a decimal"},
				"a list":              {amqp091.Table{"x-delay": []any{int32(1)}}, "x-delay is [1]"},
				"a table":             {amqp091.Table{"x-delay": amqp091.Table{"a": int32(1)}}, "x-delay is map[a:1]"},
				"binary":              {amqp091.Table{"x-delay": []byte{1}}, "x-delay is "},
				"a timestamp":         {amqp091.Table{"x-delay": time.Unix(1, 0)}, "x-delay is "},
				"negative":            {amqp091.Table{"x-delay": int32(-1)}, "x-delay is -1, which is negative"},
				"too long":            {amqp091.Table{"x-delay": int64(3_600_001)}, "x-delay is more than 1h ahead"},
				"the largest number":  {amqp091.Table{"x-delay": int64(1<<63 - 1)}, "x-delay is more than 1h ahead"},
				"the smallest number": {amqp091.Table{"x-delay": int64(-1 << 63)}, "x-delay is -9223372036854775808"},
				"no time":             {amqp091.Table{"x-delay-until": "tomorrow"}, `x-delay-until is "tomorrow", not a time`},
				"seconds":             {amqp091.Table{"x-delay-until": far.Unix()}, "x-delay-until is "},
				"a far time":          {amqp091.Table{"x-delay-until": far}, "x-delay-until is more than 1h ahead"},
				"a far text":          {amqp091.Table{"x-delay-until": farText}, "x-delay-until is more than 1h ahead"},
				"the last time":       {amqp091.Table{"x-delay-until": int64(1<<63 - 1)}, "x-delay-until is more than 1h ahead"},
				"both":                {amqp091.Table{"x-delay": int32(0), "x-delay-until": far}, "it has both"},
				"none":                {amqp091.Table{}, ""},
				"a short integer":     {amqp091.Table{"x-delay": int16(0)}, ""},
				"a whole float":       {amqp091.Table{"x-delay": 0.0}, ""},
				"a past time":         {amqp091.Table{"x-delay-until": time.Now().Add(-time.Hour)}, ""},
				"a time before 1970":  {amqp091.Table{"x-delay-until": time.Unix(-1<<40, 0)}, ""},
				"forged headers": {amqp091.Table{
					"dlxctl-delay-due": far.UnixMilli(), "dlxctl-delay-level": int32(3), "dlxctl-delay-expiration": "0",
					"dlxctl-delay-user-id": "root", "x-death": []any{amqp091.Table{
						"queue": "shop.delay.level.1s.shop.later", "exchange": "shop.later", "reason": "expired", "count": int64(1),
						"routing-keys": []any{"a"},
					}},
				}, ""},
			} {
				tc.headers["kept"] = name
				s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: name, Headers: tc.headers, Expiration: "3600000"})
				queue := "work"
				if tc.want != "" {
					queue = "shop.unroutable"
				}
				m := s.bury(t, queue)
				why, _ := m.Headers["retry-error"].(string)
				if m.MessageId != name || m.Headers["kept"] != name || !strings.HasPrefix(why, tc.want) {
					t.Errorf("%s: %s has %s with %v, want %q", name, queue, m.MessageId, m.Headers, tc.want)
				}
				for header := range m.Headers {
					if strings.HasPrefix(header, "dlxctl-") {
						t.Errorf("%s: %s is left", name, header)
					}
				}
				switch from, key := m.Headers["retry-exchange"], m.Headers["retry-routing-key"]; {
				case tc.want == "" && m.Expiration != "3600000":
					t.Errorf("%s: the expiration is %q", name, m.Expiration)
				case tc.want != "" && (from != "shop.later" || key != "a" || m.Headers["retry-expiration"] != "3600000"):
					t.Errorf("%s: it came from %v by %v", name, from, key)
				}
			}
			s.allEmpty(t)
		})
	}
}

// A message that waits keeps its key, CC, headers of every type and properties.
func TestADelayedMessageIsTheSame(t *testing.T) {
	t.Parallel()
	files := delayFiles(t)
	if native, has := files["native"]; has {
		files["native by levels"] = native
	}
	for engine, file := range files {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "24h"))
			run(t, s.processor(t))
			headers := amqp091.Table{
				"x-delay": int64(1500), "CC": []any{"b", "nowhere"}, "retry-queue": "mine", "count": int64(7),
				"byte": byte(1), "bool": true, "float": 1.5, "int8": int8(-1), "int16": int16(-2), "int32": int32(-3), "text": "ü",
				"binary": []byte{0, 255}, "null": nil, "time": time.Unix(1, 0), "decimal": amqp091.Decimal{Scale: 2, Value: 5},
				"list":  []any{int32(1), "a", nil, amqp091.Table{"b": true}},
				"table": amqp091.Table{"a": amqp091.Table{"b": int64(1)}},
			}
			if engine == "native" {
				delete(headers, "decimal") // with it the message waits in levels
			}
			sent := amqp091.Publishing{
				MessageId: "m", Headers: headers, ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: 2,
				Priority: 3, CorrelationId: "c", ReplyTo: "r", Expiration: "3600000",
				Timestamp: time.Unix(5, 0), Type: "t", AppId: "app", Body: []byte("body"),
			}
			sent.UserId, _, _ = strings.Cut(strings.TrimPrefix(s.target.URL, "amqp://"), ":")
			s.publish(t, "shop.later", "no queue", sent)
			m := s.bury(t, "work")
			if m.Headers["dlxctl-delay-user-id"] != sent.UserId {
				t.Errorf("the user is %v", m.Headers["dlxctl-delay-user-id"])
			}
			delete(m.Headers, "dlxctl-delay-user-id")
			if d := cmp.Diff(headers, m.Headers); d != "" {
				t.Errorf("the headers (-sent +came):\n%s", d)
			}
			m.Headers, sent.Headers, sent.UserId = nil, nil, ""
			if d := cmp.Diff(sent, relay.Republish(m, nil), cmpopts.IgnoreFields(sent, "Expiration")); d != "" {
				t.Errorf("the message (-sent +came):\n%s", d)
			}
			if m.RoutingKey != "no queue" || m.Exchange != "events" || m.Expiration != "3600000" {
				t.Errorf("it came by %s with %q, and expires after %q", m.Exchange, m.RoutingKey, m.Expiration)
			}
			soon := amqp091.Table{"x-delay": int32(1000)}
			s.publish(t, "shop.later", "nowhere", amqp091.Publishing{MessageId: "lost", Headers: soon})
			m = s.bury(t, "shop.unroutable")
			if why, _ := m.Headers["retry-error"].(string); m.MessageId != "lost" || !strings.Contains(why, "NO_ROUTE") {
				t.Errorf("shop.unroutable has %s: %s", m.MessageId, why)
			}
			s.allEmpty(t)
		})
	}
}

// A message whose expiration ends before a processor reads it still waits.
func TestADelayedMessageThatExpires(t *testing.T) {
	t.Parallel()
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "24h"))
			s.publish(t, "shop.later", "a", amqp091.Publishing{
				MessageId: "m", Expiration: "200", Headers: amqp091.Table{"x-delay": int32(1000)},
			})
			s.untilNothingIn(t, "shop.delay.in.shop.later")
			run(t, s.processor(t))
			m := s.bury(t, "work.dead") // it expires again, where its publisher wants that
			deaths, _ := m.Headers["x-death"].([]any)
			death, _ := deaths[0].(amqp091.Table)
			if m.MessageId != "m" || death["queue"] != "work" || death["original-expiration"] != "200" || len(deaths) != 1 {
				t.Errorf("work.dead has %s with %v", m.MessageId, m.Headers)
			}
			s.allEmpty(t)
		})
	}
}

// A message that its level or the timer does not accept is due when it was: the delay does not
// begin anew.
func TestALevelIsMissing(t *testing.T) {
	t.Parallel()
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "24h"))
			run(t, s.processor(t))
			s.publishDelayed(t, 1, time.Second)
			s.arrivals(t, 1)
			for _, queue := range s.topology.Delays[0].Read() { // then it looks for the levels no more
				brokertest.Eventually(t, queue+" to be read", func() bool { return s.consumers(t, queue) == 1 })
			}
			missing := "shop.delay.level.1s.shop.later"
			if engine == "native" {
				missing = "shop.delay.timer.shop.later"
			}
			brokertest.Delete(t, s.eyes, missing)
			const n = 30
			s.publishDelayed(t, n, 1500*time.Millisecond)
			for id, copies := range s.arrivals(t, n) {
				if copies != 1 {
					t.Errorf("message %s came %d times", id, copies)
				}
			}
		})
	}
}

// A message that no level accepts waits in the processor, which says so, and comes when it is due.
func TestNoLevelAccepts(t *testing.T) {
	t.Parallel()
	s := newStage(t, delayFileOf("24h"))
	for _, b := range s.topology.Bindings {
		if strings.HasPrefix(b.Destination, "shop.delay.level.") {
			brokertest.Unbind(t, s.eyes, b.Destination, b.Key, b.Source, amqp091.Table(b.Arguments))
		}
	}
	lines := make(chan string, 100)
	p := s.processor(t)
	p.Log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		select {
		case lines <- string(line):
		default: // it was said
		}
		return len(line), nil
	}), nil))
	run(t, p)
	m := waiting("m")
	m.Headers = amqp091.Table{"x-delay": int32(5000), dueHeader: time.Now().Add(5 * time.Second).UnixMilli()}
	s.publish(t, "shop.later", "a", m)
	deadline := time.After(time.Minute)
	for said := false; !said; {
		select {
		case line := <-lines:
			said = strings.Contains(line, "no level of the delay accepts the message, which waits")
		case <-deadline:
			t.Fatal("nothing was logged")
		}
	}
	for id, copies := range s.arrivals(t, 1) {
		if copies != 1 {
			t.Errorf("message %s came %d times", id, copies)
		}
	}
}

// writerFunc is a function that writes.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A message that ends each session of AMQP 1.0 to which it is delivered holds up no other one: a
// decimal ends it. One with a decimal that is published to the delay never comes to the timer. The
// processor needs no rights for all that but those that 'dlxctl rights' prints.
func TestPoisonStopsNoTimer(t *testing.T) {
	t.Parallel()
	file, has := delayFiles(t)["native"]
	if !has {
		t.Skip("RabbitMQ before 4.3 has no timer")
	}
	s := newStage(t, fmt.Sprintf(file, "24h"))
	p := s.processor(t)
	for _, g := range generate.Rights(s.topology) {
		if g.User == "processor" {
			p.Endpoint = s.endpoint(t, s.target.User(t, strings.Join(g.Tags, ","),
				generate.Expression(g.Configure), generate.Expression(g.Write), generate.Expression(g.Read)))
		}
	}
	p.Monitor = monitor.New("")
	log, unready := listen(t, p), make(chan string, 1)
	p.Log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte("cannot read the timer")) {
			select {
			case unready <- strings.Join(p.Monitor.Unready(), "\n"): // soon it reads again
			default:
			}
		}
		return log.Write(line)
	}), nil))
	run(t, p)
	const n = 100
	due := time.Now().Add(5 * time.Second)
	decimal := amqp091.Decimal{Scale: 2, Value: 5}
	headers := amqp091.Table{"x-delay": int32(5000), dueHeader: due.UnixMilli(), "decimal": decimal}
	s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "decimal", Headers: headers})
	m := s.bury(t, "work")
	if early := time.Until(due); early > 0 || m.Headers["decimal"] != decimal {
		t.Errorf("it came %s early with %v", early, m.Headers)
	}
	if got := log.with("cannot read the timer"); len(got) > 0 {
		t.Errorf("a message of the delay has ended the session: %v", got)
	}
	poison := amqp091.Table{"dlxctl-delay-due": due.UnixMilli(), "x-poison": decimal}
	s.publish(t, "", "shop.delay.timer.shop.later", amqp091.Publishing{MessageId: "poison", Headers: poison})
	brokertest.Eventually(t, "the session to end", func() bool { return len(log.with("cannot read the timer")) > 0 })
	if why := <-unready; !strings.Contains(why, "queue of a delay shop.delay.timer.shop.later is not consumed: ") {
		t.Errorf("the session has ended, and what is not ready is %q", why)
	}
	s.publishDelayedFrom(t, n, n, 9*time.Second)
	for id, copies := range s.arrivals(t, n) {
		if copies != 1 {
			t.Errorf("message %s came %d times", id, copies)
		}
	}
	if m := s.bury(t, "shop.unroutable"); m.MessageId != "poison" {
		t.Errorf("shop.unroutable has %s", m.MessageId)
	}
	brokertest.Eventually(t, "the timer to be read again", func() bool { // poison ends several sessions
		return len(log.with("reading the timer of a delay again")) > 0 && len(p.Monitor.Unready()) == 0
	})
	s.allEmpty(t)
}

// Processors are killed again and again, and the node at last. Each message comes, none is early,
// and there are no more doubles than messages were in flight.
func TestDelaysSurviveKills(t *testing.T) {
	t.Parallel()
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			node := brokertest.Node(t)
			s := onNode(t, node, fmt.Sprintf(file, "24h"))
			pause(t, time.Second) // see Kill
			const rounds, each = 12, 40
			published := 0
			for range rounds {
				s.publishDelayedFrom(t, published, each, 6*time.Second)
				published += each
				s.killOne(t)
			}
			run(t, s.processor(t))
			s.publishDelayedFrom(t, published, each, 6*time.Second)
			published += each
			node.Kill(t)
			node.Start(t)
			s.reconnect(t)
			run(t, s.processor(t))
			doubled := s.doubledOf(t, published)
			if doubled > (rounds+1)*prefetch {
				t.Errorf("%d doubled, more than the %d that can have been in flight", doubled, (rounds+1)*prefetch)
			}
			t.Logf("%d published, 0 lost, %d doubled", published, doubled)
		})
	}
}

// The nodes of a cluster are taken away in turn, in good order and by SIGKILL.
func TestDelaysOnThreeNodes(t *testing.T) {
	t.Parallel()
	if brokertest.Rounds(0, 1) == 0 {
		t.Skip("it restarts three nodes; it runs each night")
	}
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			nodes := brokertest.Cluster(t)
			s := onNode(t, nodes[0], fmt.Sprintf(file, "24h"))
			front, wire := brokertest.NewProxy(t, s.target, nodes[1].See(t, s.target), nodes[2].See(t, s.target))
			p := s.processor(t)
			p.Endpoint = s.endpoint(t, front)
			run(t, p)
			const each = 100
			published := 0
			for i, down := range []func(testing.TB){nodes[0].Stop, nodes[1].Kill, nodes[2].Stop} {
				s.target = nodes[(i+1)%len(nodes)].See(t, s.target) // it stays
				s.reconnect(t)
				s.publishDelayedFrom(t, published, each, 12*time.Second)
				published += each
				down(t)
				s.publishDelayedFrom(t, published, each, 12*time.Second)
				published += each
				nodes[i].Start(t)
			}
			doubled := s.doubledOf(t, published)
			t.Logf("%d published, 0 lost, %d doubled, over %d connections", published, doubled, wire.Connections())
		})
	}
}

// A day of messages with delays of up to a day, of which a minute lasts an eighth of a second.
func TestADayOfDelays(t *testing.T) {
	t.Parallel()
	if brokertest.Rounds(0, 1) == 0 {
		t.Skip("six minutes; it runs each night")
	}
	const day, messages = 3 * time.Minute, 9_000
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "24h"))
			run(t, s.processor(t))
			run(t, s.processor(t))
			deliveries, err := s.target.Channel(t).Consume("work", "", true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			all := make(chan map[string]int, 1)
			go func() {
				seen := map[string]int{}
				for len(seen) < messages {
					m, ok := <-deliveries
					if !ok {
						break
					}
					seen[m.MessageId]++
					if due, _ := m.Headers[dueHeader].(int64); time.Now().UnixMilli() < due {
						t.Errorf("message %s is early", m.MessageId)
					}
				}
				all <- seen
			}()
			began := time.Now()
			for i := range messages {
				pause(t, time.Until(began.Add(day*time.Duration(i)/messages)))
				s.publishDelayedFrom(t, i, 1, day)
			}
			var seen map[string]int
			select {
			case seen = <-all:
			case <-time.After(day + 2*time.Minute):
				t.Fatal("some messages have not come")
			}
			if len(seen) < messages {
				t.Fatalf("%d messages came", len(seen))
			}
			for id, copies := range seen {
				if copies != 1 {
					t.Errorf("message %s came %d times", id, copies)
				}
			}
			if left := s.drain(t, "work"); len(left) > 0 {
				t.Errorf("these came again: %v", left)
			}
			s.allEmpty(t)
		})
	}
}

// The longest delay changes, or the engine, while messages wait, and a processor with the previous
// file still runs: none is lost, doubled or early, and none is unroutable.
func TestADelayChanges(t *testing.T) {
	t.Parallel()
	ways := [][2]string{{"16s", "2s"}, {"2s", "16s"}}
	if len(delayFiles(t)) > 1 {
		ways = append(ways, [2]string{"16s", "16s, engine: native"}, [2]string{"16s, engine: native", "16s"})
	}
	for _, way := range ways {
		t.Run(way[0]+" to "+way[1], func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(delayFile, way[0]))
			run(t, s.processor(t))
			const n = 60
			first, _, _ := strings.Cut(way[0], ",")
			longest, err := time.ParseDuration(first)
			if err != nil {
				t.Fatal(err)
			}
			s.publishDelayedFrom(t, 0, n, longest)
			s.untilNothingIn(t, intake) // what the next one reads there may be longer than its longest delay
			want, err := compile(fmt.Sprintf(delayFile, way[1]))
			if err != nil {
				t.Fatal(err)
			}
			s.change(t, want)
			s.publishDelayedFrom(t, n, n, 2*time.Second) // the previous processor may take any
			next := s.processor(t)
			next.Topology = want
			run(t, next)
			for id, copies := range s.arrivals(t, 2*n) {
				if copies != 1 {
					t.Errorf("message %s came %d times", id, copies)
				}
			}
			if left := s.drain(t, "shop.unroutable"); len(left) > 0 {
				t.Errorf("%d messages are in shop.unroutable", len(left))
			}
		})
	}
}

// What is due waits while the exchange that it goes to does not exist, and is not unroutable. It
// counts as held.
func TestDelaysWaitForTheirExchange(t *testing.T) {
	t.Parallel()
	for engine, file := range delayFiles(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(file, "24h"))
			if err := s.eyes.ExchangeDelete("events", false, false); err != nil {
				t.Fatal(err)
			}
			p := s.processor(t)
			p.Monitor = monitor.New("")
			page := serve(t, p.Monitor)
			held := func() int { return page.scrape(t).sum("dlxctl_held_messages", "reason", "refused") }
			log := listen(t, p)
			run(t, p)
			s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "m", Headers: amqp091.Table{"x-delay": int32(1000)}})
			brokertest.Eventually(t, "the processor to say what is missing", func() bool {
				return len(log.with("nothing can be published to the exchange of a delay")) > 0
			})
			brokertest.Eventually(t, "the message to be held", func() bool { return held() == 1 })
			s.apply(t, s.topology)
			if m := s.bury(t, "work"); m.MessageId != "m" {
				t.Errorf("work has %s", m.MessageId)
			}
			s.allEmpty(t)
			if n := held(); n != 0 {
				t.Errorf("%v messages are held", n)
			}
		})
	}
}

// So it does for a while after the exchange is created: apply binds it in later steps.
func TestDelaysWaitForTheBindingsOfTheirExchange(t *testing.T) {
	t.Parallel()
	s := newStage(t, delayFileOf("24h"))
	if err := s.eyes.ExchangeDelete("events", false, false); err != nil {
		t.Fatal(err)
	}
	front, wire := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, front)
	log := listen(t, p)
	run(t, p)
	log.says(t, "nothing can be published to the exchange of a delay")
	s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "m"})
	brokertest.DeclareExchange(t, s.ch, "events", "topic", nil)
	log.says(t, "the exchange can be published to again")
	wire.Cut()
	s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "n"})
	began := time.Now()
	brokertest.Eventually(t, "each to be returned several times", func() bool {
		return time.Since(began) > 6*time.Second || s.ready(t, "shop.unroutable") > 0
	})
	if n := s.ready(t, "shop.unroutable"); n > 0 {
		t.Fatalf("%d messages are unroutable", n)
	}
	s.apply(t, s.topology)
	for range 2 {
		s.bury(t, "work")
	}
	s.allEmpty(t)
}
