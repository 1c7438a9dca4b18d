package migrate_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }

// stage is a virtual host with a legacy queue that four kinds of exchanges lead
// to, under full load.
type stage struct {
	target   brokertest.Target // as the administrator sees it, for what is set up and looked at
	user     brokertest.Target // as the user does who migrates, with the tags that 'dlxctl rights' prints
	file     string
	want     topology.Compiled
	endpoint broker.Endpoint
	m        *management.Client

	declares string        // the queue that legacy makes. Empty: old
	rest     time.Duration // how long through waits before it reconnects. Zero: 100 ms

	mu       sync.Mutex
	seen     map[string]int // how often each message came, whichever queue it came from
	order    []string       // in which they came
	canceled int            // how often a consumer was
}

const topologyFile = `
version: 1
name: shop
defaults: {backoff: quick, type: %s}
backoff: {quick: {tiers: [100ms]}}
exchanges:
  - {name: t}
  - {name: d, type: direct}
  - {name: f, type: fanout}
  - {name: h, type: headers}
  - {name: up, type: direct}
queues:
  - name: new
    replaces: old
    bindings:
      - {exchange: t, keys: ["order.#", "*.placed"]}
      - {exchange: d, keys: [a, b]}
      - {exchange: f}
      - {exchange: h, match: any, headers: {format: pdf, pages: 2}}
`

// newStage makes the virtual host, with the old queue bound just as the new one is to be.
func newStage(tb testing.TB, legacyType string, legacyArgs amqp091.Table) *stage {
	tb.Helper()
	return newStageIn(tb, brokertest.VHost(tb), fmt.Sprintf(topologyFile, legacyType), legacyType, legacyArgs)
}

// newStageIn makes the same in a virtual host, for a file of its own; without a
// type it makes no legacy queue.
func newStageIn(tb testing.TB, target brokertest.Target, file, legacyType string, legacyArgs amqp091.Table) *stage {
	tb.Helper()
	s := &stage{target: target, file: file, seen: map[string]int{}}
	s.want = spectest.Compile(tb, s.file)
	s.connect(tb, target.Tool(tb, "policymaker"))
	if legacyType != "" {
		s.legacy(tb, legacyType, legacyArgs)
	}
	return s
}

// connect lets a user migrate.
func (s *stage) connect(tb testing.TB, user brokertest.Target) {
	tb.Helper()
	s.user = user
	s.endpoint, s.m = managementtest.Endpoint(tb, user), managementtest.Client(tb, user)
}

// legacy makes the old queue and what it is bound to.
func (s *stage) legacy(tb testing.TB, legacyType string, legacyArgs amqp091.Table) {
	tb.Helper()
	ch, queue := s.target.Channel(tb), cmp.Or(s.declares, "old")
	args := amqp091.Table{"x-queue-type": legacyType}
	maps.Copy(args, legacyArgs)
	brokertest.Declare(tb, ch, queue, args)
	for _, e := range s.want.Exchanges {
		if e.Label.Role == topology.RoleBusiness {
			brokertest.DeclareExchange(tb, ch, e.Name, e.Type, nil)
		}
	}
	if err := ch.ExchangeBind("d", "a", "up", false, nil); err != nil {
		tb.Fatal(err)
	}
	for _, b := range s.want.Bindings {
		if b.Destination == "new" && b.Label.Role == topology.RoleBusiness {
			brokertest.Bind(tb, ch, queue, b.Key, b.Source, amqp091.Table(b.Arguments.Without(topology.ArgManagedBy)))
		}
	}
}

// runner returns a runner with short waits, and with consent: many tests fill the legacy queue by
// its name.
func (s *stage) runner(tb testing.TB) *migrate.Runner {
	tb.Helper()
	return &migrate.Runner{
		Topology: s.want, Management: s.m, Endpoint: s.endpoint, Until: migrate.Retire, Settle: 200 * time.Millisecond,
		Wait: 30 * time.Second, Idle: time.Second, Report: func(string, ...any) {},
		Allow: plan.Allow(topology.DropsRouting),
	}
}

// cautious returns a runner without consent.
func (s *stage) cautious(tb testing.TB) *migrate.Runner {
	tb.Helper()
	r := s.runner(tb)
	r.Allow = nil
	return r
}

// publish publishes with confirms from four connections until stop, pausing after
// each batch of messages. stop gives what was confirmed.
func (s *stage) publish(t *testing.T, pause time.Duration) (stop func() map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	confirmed := map[string]bool{}
	var publishers sync.WaitGroup
	var failed []error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, err)
	}
	for p := range 4 {
		ch := s.target.Confirming(t)
		returned := ch.NotifyReturn(make(chan amqp091.Return, 10000))
		publishers.Go(func() {
			kinds := []struct {
				exchange, key string
				headers       amqp091.Table
			}{
				{"t", "order.placed", nil}, // by two of its bindings
				{"d", "a", nil},
				{"f", "", nil},
				{"h", "", amqp091.Table{"format": "pdf"}},
				{"up", "a", nil}, // through another exchange
			}
			window := brokertest.Load(50)
			for n := 0; ctx.Err() == nil; n += window {
				var waiting []*amqp091.DeferredConfirmation
				var ids []string
				for i := range window {
					k := kinds[(n+i)%len(kinds)]
					id := fmt.Sprintf("%d-%d", p, n+i)
					c, err := ch.PublishWithDeferredConfirm(k.exchange, k.key, true, false,
						amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: k.headers, Body: []byte(id)})
					if err != nil {
						fail(err)
						return
					}
					waiting, ids = append(waiting, c), append(ids, id)
				}
				for i, c := range waiting {
					if c.Wait() {
						mu.Lock()
						confirmed[ids[i]] = true
						mu.Unlock()
					}
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
				for len(returned) > 0 {
					r := <-returned
					fail(fmt.Errorf("message %s was returned: %s", r.MessageId, r.ReplyText))
				}
			}
		})
	}
	t.Cleanup(cancel)
	return func() map[string]bool {
		cancel()
		publishers.Wait()
		if len(failed) > 0 {
			t.Errorf("%d failures of publishers, the first: %v", len(failed), failed[0])
		}
		return confirmed
	}
}

// consume consumes from a queue until stop, acknowledging each message once it
// is counted.
func (s *stage) consume(t *testing.T, queue string) (stop func()) {
	t.Helper()
	ch := s.target.Channel(t)
	if err := ch.Qos(200, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "c", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for d := range deliveries {
			s.mu.Lock()
			s.seen[d.MessageId]++
			s.mu.Unlock()
			_ = d.Ack(false) // counted; if this fails the count says so
		}
	})
	return func() {
		if err := ch.Cancel("c", false); err != nil {
			t.Error(err)
		}
		done.Wait()
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
	}
}

// account compares what was confirmed with what came, once all has come or no
// more comes. It looks at each message only when enough have come: while it looks,
// the consumers stand still.
func (s *stage) account(tb testing.TB, confirmed map[string]bool) (lost, doubled int) {
	tb.Helper()
	for came, end := -1, time.Now(); ; wait(tb, 50*time.Millisecond) {
		s.mu.Lock()
		if n := len(s.seen); n > came {
			came, end = n, time.Now().Add(20*time.Second)
		}
		over := time.Now().After(end)
		if came >= len(confirmed) || over {
			lost, doubled = s.compare(confirmed)
			over = over || lost == 0
		}
		s.mu.Unlock()
		if over {
			return lost, doubled
		}
	}
}

// allArrive fails the test unless each message that was confirmed has come, and none twice.
func (s *stage) allArrive(t *testing.T, confirmed map[string]bool) {
	t.Helper()
	lost, doubled := s.account(t, confirmed)
	if lost > 0 || doubled > 0 {
		t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
		s.where(t, confirmed)
	}
	t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
}

// compare counts what was confirmed and did not come, and what came too often. Its
// caller holds s.mu.
func (s *stage) compare(confirmed map[string]bool) (lost, doubled int) {
	for id := range confirmed {
		if s.seen[id] == 0 {
			lost++
		}
	}
	for _, n := range s.seen {
		doubled += n - 1
	}
	return lost, doubled
}

// where says what the queues hold, to find what did not come.
func (s *stage) where(t *testing.T, confirmed map[string]bool) {
	t.Helper()
	state := s.inspect(t)
	for _, q := range state.Have.Queues {
		t.Logf("%s: %+v", q.Name, state.Usage[q.Name])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id := range confirmed {
		if s.seen[id] == 0 && n < 20 {
			n++
			t.Logf("missing: %s", id)
		}
	}
	n = 0
	for id, times := range s.seen {
		if times > 1 && n < 20 {
			n++
			t.Logf("came %d times: %s", times, id)
		}
	}
}

// inspect returns what the broker has.
func (s *stage) inspect(t *testing.T) topology.State {
	t.Helper()
	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// exists reports whether a queue exists.
func (s *stage) exists(t *testing.T, queue string) bool {
	t.Helper()
	return slices.ContainsFunc(s.inspect(t).Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
}

// Under full load, through every type of exchange, each message goes to exactly
// one of the two queues: none is lost and none doubled, and the legacy queue goes.
func TestMigrateUnderLoad(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			stopOld := s.consume(t, "old")
			published := s.publish(t, 0)
			stopNew := s.consumeThrough(t, "new")
			wait(t, 300*time.Millisecond)
			r := s.runner(t)
			r.Until = migrate.Cutover
			var said []string
			r.Report = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wait(t, 300*time.Millisecond)
			stopOld()
			r = s.runner(t)
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			s.allArrive(t, confirmed)
			stopNew()
			if s.exists(t, "old") {
				t.Error("the legacy queue is still there")
			}
			s.tidy(t)
			t.Logf("steps:\n%s", strings.Join(said, "\n"))
		})
	}
}

// The same with bindings in place of the switch, as a control: first bound to the
// new queue, then taken from the old one, messages come twice.
func TestBindThenUnbindDoubles(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	ch := s.target.Channel(t)
	brokertest.Declare(t, ch, "new", nil)
	stopOld, stopNew := s.consume(t, "old"), s.consume(t, "new")
	published := s.publish(t, 0)
	wait(t, 300*time.Millisecond)
	for _, b := range s.want.Bindings {
		if b.Destination != "new" || b.Label.Role != topology.RoleBusiness {
			continue
		}
		args := amqp091.Table(b.Arguments.Without(topology.ArgManagedBy))
		brokertest.Bind(t, ch, "new", b.Key, b.Source, args)
		wait(t, 100*time.Millisecond)
		brokertest.Unbind(t, ch, "old", b.Key, b.Source, args)
	}
	confirmed := published()
	lost, doubled := s.account(t, confirmed)
	stopOld()
	stopNew()
	if lost > 0 || doubled == 0 {
		t.Errorf("%d of %d messages were lost, %d doubled: the other tests prove nothing", lost, len(confirmed), doubled)
	}
	t.Logf("%d published, %d doubled", len(confirmed), doubled)
}

// wait lets the load run on for a while.
func wait(tb testing.TB, d time.Duration) {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
