package processor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/wait"
)

// unreadable returns the outages of a file with a match, whose statistics cannot be read.
func unreadable(t *testing.T) *outages {
	t.Helper()
	c, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(`
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1s], outage: {}}}
queues: [{name: billing}, {match: '^svc\.', external: true}]
`)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	e, err := broker.Config{URL: "amqp://127.0.0.1:1", API: "http://127.0.0.1:1"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	p := Processor{Topology: c, Endpoint: e, Log: slog.New(slog.DiscardHandler)}
	o, err := p.newOutages(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.api.Close)
	return o
}

// A queue of which nothing is known is never taken for one that works, however many there are, and
// also if only a newer file has it.
func TestWhatIsNotKnownOfAQueue(t *testing.T) {
	t.Parallel()
	o := unreadable(t)
	for i := range mostAnswers + 10 {
		o.failed(retry.Decision{Queue: fmt.Sprint("svc.", i), Evidence: retry.Evidence{Failed: true}}, o.Topology.Backoffs[0])
	}
	for _, queue := range []string{"billing", "svc.0", fmt.Sprint("svc.", mostAnswers+5), "other"} {
		if state, since := o.state(queue); state != retry.NotKnown || !since.IsZero() {
			t.Errorf("%s: state %d since %s", queue, state, since)
		}
	}
	if n := len(o.queues); n != mostAnswers+1 {
		t.Errorf("%d queues are looked at", n)
	}
}

// What waits for the end of an outage waits behind what came before it: the rules know how long.
func TestTheQueueForOutagesIsKnown(t *testing.T) {
	t.Parallel()
	o := unreadable(t)
	b, now := o.Topology.Backoffs[0], time.Now()
	if got := o.queued(b); got != 0 {
		t.Errorf("nothing waits, for %s", got)
	}
	first := retry.Decision{Queue: "billing", Wait: time.Hour}
	o.wait(first, now)
	if got := o.queued(b); got > time.Hour || got < time.Hour-time.Minute {
		t.Errorf("the next one waits for %s behind one that waits for an hour", got)
	}
}

// Queues that the statistics no longer have leave room for others after a minute. Those of the file
// stay, and what is unroutable takes no room.
func TestDeletedQueuesAreForgotten(t *testing.T) {
	t.Parallel()
	o := unreadable(t)
	names := len(o.names)
	failed := func(queue string, outcome retry.Outcome) {
		o.failed(retry.Decision{Queue: queue, Outcome: outcome}, o.Topology.Backoffs[0])
	}
	for _, queue := range []string{"svc.gone", "svc.there", "later"} {
		failed(queue, retry.Retried)
	}
	failed("svc.never", retry.Unroutable)
	there := map[string]management.Deliveries{"svc.there": {Delivered: 1}}
	now := time.Now()
	o.count(t.Context(), there, now)
	if len(o.queues) != 4 {
		t.Errorf("after a moment %d queues are looked at", len(o.queues))
	}
	o.count(t.Context(), there, now.Add(2*time.Minute))
	if _, ok := o.queues["svc.there"]; !ok || len(o.queues) != 2 || len(o.names) != names+1 {
		t.Errorf("after two minutes: %v", o.names)
	}
}

// The outage of a queue of the file ends with the queue.
func TestADeletedQueueIsInNoOutage(t *testing.T) {
	t.Parallel()
	o := unreadable(t)
	q, now := o.queues["billing"], time.Now()
	for i := range 6 {
		for range 100 {
			q.window.Failed(retry.Evidence{Failed: true})
		}
		now = now.Add(broker.Tick)
		o.count(t.Context(), map[string]management.Deliveries{"billing": {Delivered: int64(i+1) * 100}}, now)
	}
	for _, deleted := range []bool{false, true} {
		if q.since.IsZero() != deleted {
			t.Errorf("deleted %t: in outage since %s", deleted, q.since)
		}
		o.count(t.Context(), nil, now.Add(2*retry.Unsure(broker.Tick)))
	}
}

// A broker keeps no statistics if it counts nothing of what the processor consumed, for longer than
// they are late. One that has lost its counts when it started again, or with a queue that was made
// anew, keeps some.
func TestABrokerThatKeepsNoStatistics(t *testing.T) {
	t.Parallel()
	const queue = "shop.standard.failed"
	o := unreadable(t)
	b, now := o.Topology.Backoffs[0], time.Now()
	none, some := map[string]management.Deliveries{queue: {}}, map[string]management.Deliveries{queue: {Delivered: 1}}
	expect := func(what string, counted map[string]management.Deliveries, after time.Duration, fails bool) {
		t.Helper()
		if err := o.uncounted(counted, now.Add(after)); (err != nil) != fails {
			t.Errorf("%s: error %v", what, err)
		}
	}
	expect("nothing has failed", none, time.Hour, false)
	o.failed(retry.Decision{Queue: "billing"}, b)
	expect("they may be late", none, management.StatisticsLag, false)
	expect("they lack it", none, management.StatisticsLag+time.Second, true)
	expect("it is counted", some, time.Hour, false)
	expect("the counts are lost", none, 2*time.Hour, false)
	o.failed(retry.Decision{Queue: "billing"}, b)
	o.consuming(queue)
	expect("the connection was lost", none, 2*time.Hour, false)
}

// Messages wait for an exchange for as long as it is missing, and for a while after that.
func TestAnExchangeThatStaysMissing(t *testing.T) {
	t.Parallel()
	long := &shared{unavailable: map[string]time.Time{"events": time.Now().Add(-2 * bindTime)}}
	u := &unavailable{failedQueue: &failedQueue{}, exchange: "events"}
	if all := (unavailables{u}); !all.unbound("events", long) || all.unbound("other", long) {
		t.Error("while it is missing, its messages do not wait")
	}
	u.available = true
	if all := (unavailables{u}); all.unbound("events", long) {
		t.Error("its messages wait long after it was created")
	}
	if long.sawUnavailable("events"); !(unavailables{}).unbound("events", long) {
		t.Error("a queue that has connected since does not let its messages wait")
	}
}

// What the broker lacks is looked for less and less often, by a queue and for a changed file: it
// may be missing for days, and the broker logs each connection.
func TestWhatIsMissingIsLookedForWithPauses(t *testing.T) {
	t.Parallel()
	o := unreadable(t)
	front, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var dialed atomic.Int32
	go func() {
		for {
			conn, err := front.Accept()
			if err != nil {
				return // the test is over
			}
			dialed.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = front.Close() })
	config := broker.Config{URL: "amqp://" + front.Addr().String(), API: "http://127.0.0.1:1"}
	if o.Endpoint, err = config.Resolve(); err != nil {
		t.Fatal(err)
	}
	for what, look := range map[string]func(context.Context){
		"a queue": (&unavailable{failedQueue: &failedQueue{Processor: o.Processor}}).watch,
		"a changed file": func(ctx context.Context) {
			s := Supervisor{
				Log: o.Log, active: new(string), tried: &Snapshot{Content: "new"}, wanted: []Processor{*o.Processor},
				Read: func() (Snapshot, error) { return Snapshot{Content: "new"}, nil },
			}
			for wait.For(ctx, watchTime) == nil {
				_ = s.look(ctx) // it fails
			}
		},
	} {
		dialed.Store(0)
		ctx, stop := context.WithTimeout(t.Context(), 13*watchTime/2)
		look(ctx)
		stop()
		if n := dialed.Load(); n == 0 || n > 4 {
			t.Errorf("%s: it is looked for %d times", what, n)
		}
	}
}
