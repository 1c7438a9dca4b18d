package trace_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// TestTraceAgreesWithTheBroker declares generated topologies, runs the processor, publishes
// messages, and lets consumers do what each message is drawn for. It compares all deliveries with
// what trace predicts: queue, order, exchange, key and headers of each, that none comes before its
// time, and that no queue holds anything in the end. -rapid.checks is the number of topologies.
func TestTraceAgreesWithTheBroker(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	total := 0
	rapid.Check(t, func(rt *rapid.T) {
		x.Empty(t)
		w := drawWorld(rt)
		c, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(w.file.String())}},
			func(string) (string, bool) { return "", false })
		check(rt, err)
		s := &stage{
			files: []topology.Compiled{c}, state: topology.State{Version: x.Version, Have: c.Topology},
			t: rt, x: x, topology: c, world: w, expected: map[string][]seen{},
			deliveries: map[string]int{},
		}
		s.declare(t)
		stop := s.process()
		defer stop()
		total += s.run()
	})
	t.Logf("%s: %d deliveries", x.Version, total)
}

// tester is a test, or a check of rapid.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

func check(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stage is a virtual host with a topology.
type stage struct {
	t        tester
	x        brokertest.Target
	topology topology.Compiled
	world    *world
	// state and files are what trace gets; live: state was read from the broker.
	state topology.State
	live  bool
	files []topology.Compiled
	ch    *amqp091.Channel
	// expected are the deliveries that trace predicts, and deliveries the number of those that
	// came, both by message and queue.
	expected   map[string][]seen
	deliveries map[string]int
}

// seen is a delivery.
type seen struct {
	Text string
	At   time.Duration // at the earliest
}

// TestTraceOfForeignQueues compares what trace predicts from what it reads on the broker: retry
// loops of another team, one with its TTL by a policy, an alternate exchange, a queue that loses
// what is rejected, and a loop that the broker cuts.
func TestTraceOfForeignQueues(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	const dlx, key, ttl = topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgMessageTTL
	waits := func(name string, arguments ...any) topology.Queue {
		q := queue(name, topology.Classic, arguments...)
		q.Label.Role = topology.RoleRetry // the test has no consumer there
		return q
	}
	c := topology.Compiled{Topology: topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "in", Type: topology.Topic, Arguments: topology.Arguments{topology.ArgAlternateExchange: "spill"}},
			{Name: "spill", Type: topology.Fanout},
			{Name: "back", Type: topology.Direct},
		},
		Queues: []topology.Queue{
			queue("loop", topology.Quorum, dlx, "", key, "loop.wait"),
			waits("loop.wait", ttl, int64(40), dlx, "back", key, "loop"),
			queue("ruled", topology.Classic, dlx, "", key, "ruled.wait"), waits("ruled.wait", dlx, "", key, "ruled"),
			queue("plain", topology.Classic), waits("cut", ttl, int64(10), dlx, "", key, "cut.wait"),
			waits("cut.wait", ttl, int64(10), dlx, "", key, "cut"),
		},
		Bindings: []topology.Binding{
			{Source: "in", Destination: "loop", DestinationType: topology.ToQueue, Key: "a.*"},
			{Source: "in", Destination: "ruled", DestinationType: topology.ToQueue, Key: "#.b"},
			{Source: "back", Destination: "loop", DestinationType: topology.ToQueue, Key: "loop"},
			{Source: "spill", Destination: "plain", DestinationType: topology.ToQueue},
		},
		Policies: []topology.Policy{{
			Name: "delay", Pattern: `\.wait$`, ApplyTo: "queues", Definition: topology.Arguments{"message-ttl": int64(60)},
		}},
	}}
	w := &world{}
	for i, m := range []trace.Input{
		{Exchange: "in", Key: "a.b", Failures: 2},
		{Exchange: "in", Key: "a.c", Failures: 0},
		{Exchange: "in", Key: "c", Failures: 1},
		{Key: "cut", Failures: 1},
		{Key: "ruled", Failures: 3},
	} {
		m.Headers, m.Cause = map[string]any{"id": fmt.Sprint("m-", i)}, trace.Rejected
		if m.Key == "cut" { // no consumer is there
			m.Failures, m.Cause = trace.Always, trace.Expired
		}
		w.messages = append(w.messages, m)
	}
	s := &stage{
		t: t, x: x, topology: c, world: w, expected: map[string][]seen{}, deliveries: map[string]int{}, live: true,
	}
	s.declare(t)
	endpoint, err := broker.Config{URL: x.URL, API: x.API}.Resolve()
	check(t, err)
	client, err := management.New(endpoint)
	check(t, err)
	defer client.Close()
	s.state, err = client.Inspect(t.Context())
	check(t, err)
	if n := s.run(); n != 12 {
		t.Errorf("%d deliveries, want 12", n)
	}
}

// declare makes the objects. Policies come first, so that they are in effect from the start.
func (s *stage) declare(tb testing.TB) {
	tb.Helper()
	for _, p := range s.topology.Policies {
		s.x.Call(tb, http.MethodPut, "policies/"+url.PathEscape(s.x.VHost)+"/"+p.Name, map[string]any{
			"pattern": p.Pattern, "apply-to": p.ApplyTo, "priority": p.Priority, "definition": p.Definition,
		})
	}
	conn, err := amqp091.Dial(s.x.URL)
	check(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	s.ch, err = conn.Channel()
	check(s.t, err)
	for _, e := range s.topology.Exchanges {
		check(s.t, s.ch.ExchangeDeclare(e.Name, e.Type, true, false, e.Internal, false, amqp091.Table(e.Arguments)))
	}
	for _, q := range s.topology.Queues {
		_, err := s.ch.QueueDeclare(q.Name, true, false, false, false, amqp091.Table(q.Arguments))
		check(s.t, err)
	}
	for _, b := range s.topology.Bindings {
		if b.DestinationType == topology.ToExchange {
			check(s.t, s.ch.ExchangeBind(b.Destination, b.Key, b.Source, false, amqp091.Table(b.Arguments)))
		} else {
			check(s.t, s.ch.QueueBind(b.Destination, b.Key, b.Source, false, amqp091.Table(b.Arguments)))
		}
	}
}

// process runs the processor, if any queue has a backoff.
func (s *stage) process() (stop func()) {
	if len(s.topology.Backoffs) == 0 {
		return func() {}
	}
	endpoint, err := broker.Config{URL: s.x.URL, API: s.x.API}.Resolve()
	check(s.t, err)
	p := processor.Processor{
		Topology: s.topology, Endpoint: endpoint, Prefetch: 100, Grace: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		cancel()
		check(s.t, <-ended)
	}
}

// run publishes the messages and compares the deliveries. It returns their number.
func (s *stage) run() int {
	deliveries := map[string]<-chan amqp091.Delivery{}
	for _, q := range s.topology.Queues {
		if q.Label.Role == topology.RoleFailed || q.Label.Role == topology.RoleRetry {
			continue
		}
		d, err := s.ch.Consume(q.Name, "", false, false, false, false, nil)
		check(s.t, err)
		deliveries[q.Name] = d
	}
	all := merge(deliveries)
	begin := time.Now()
	inputs, count := map[string]trace.Input{}, 0
	for _, in := range s.world.messages {
		in.State, in.Live, in.Files = s.state, s.live, s.files
		id, _ := in.Headers["id"].(string)
		inputs[id] = in
		count += s.expect(id, trace.Run(in))
		m := amqp091.Publishing{Headers: amqp091.Table(in.Headers), MessageId: id}
		if in.Expiration != nil {
			m.Expiration = fmt.Sprint(in.Expiration.Milliseconds())
		}
		check(s.t, s.ch.PublishWithContext(context.Background(), in.Exchange, in.Key, false, false, m))
	}
	for range count {
		select {
		case d := <-all:
			s.delivered(d, inputs[d.MessageId], time.Since(begin))
		case <-time.After(20 * time.Second):
			s.t.Fatalf("%s\nthese deliveries did not come: %v", s.world.file.String(), s.expected)
		}
	}
	for _, q := range s.topology.Queues {
		got, err := s.ch.QueueDeclarePassive(q.Name, true, false, false, false, amqp091.Table(q.Arguments))
		check(s.t, err)
		if got.Messages > 0 {
			s.t.Fatalf("%s\n%s holds %d messages in the end", s.world.file.String(), q.Name, got.Messages)
		}
	}
	if len(all) > 0 {
		d := <-all
		s.t.Fatalf("%s\nmore is delivered than expected: %s in %s", s.world.file.String(), describe(d), d.queue)
	}
	return count
}

// delivery is one of a queue.
type delivery struct {
	amqp091.Delivery
	queue string
}

// merge returns the deliveries of all queues in one channel.
func merge(queues map[string]<-chan amqp091.Delivery) <-chan delivery {
	all := make(chan delivery, 1000)
	for queue, ch := range queues {
		go func() {
			for d := range ch {
				all <- delivery{d, queue}
			}
		}()
	}
	return all
}

// expect notes the deliveries that a trace predicts, and returns their number.
func (s *stage) expect(id string, r trace.Report) int {
	count := 0
	for _, j := range r.Journeys {
		for _, stop := range j.Stops {
			if stop.Event == trace.Waited || stop.Event == trace.Counted || stop.Reason == route.Expired {
				continue
			}
			d := seen{fmt.Sprintf("exchange %q key %q %s", stop.Exchange, stop.Key, headers(stop.Headers)), stop.At}
			for range stop.Returned + 1 {
				s.expected[id+" in "+stop.Queue] = append(s.expected[id+" in "+stop.Queue], d)
				count++
			}
		}
	}
	return count
}

// delivered compares a delivery, and does with it what the message is drawn for. A queue that
// several work queues share may get their copies in any order.
func (s *stage) delivered(d delivery, in trace.Input, after time.Duration) {
	place, got := d.MessageId+" in "+d.queue, describe(d)
	_, isWork := s.topology.WorkQueue(d.queue)
	isWork = isWork || len(s.files) == 0
	expected := s.expected[place]
	i := 0
	if !isWork {
		i = max(0, slices.IndexFunc(expected, func(e seen) bool { return e.Text == got }))
	}
	if len(expected) == 0 {
		s.t.Fatalf("%s\n%s is delivered once more than expected: %s", s.world.file.String(), place, got)
	}
	want := expected[i]
	s.expected[place] = slices.Delete(expected, i, i+1)
	if diff := cmp.Diff(want.Text, got); diff != "" {
		s.t.Fatalf("%s\n%s (-predicted +delivered):\n%s", s.world.file.String(), place, diff)
	}
	if after < want.At {
		s.t.Fatalf("%s\n%s is delivered after %s, predicted after %s at the earliest", s.world.file.String(), place, after, want.At)
	}
	s.deliveries[place]++
	switch {
	case !isWork || !s.fails(place, d.queue, in):
		check(s.t, d.Ack(false))
	case in.Cause == trace.Crash: // to the queue it is the same as a consumer that dies
		check(s.t, d.Reject(true))
	default:
		check(s.t, d.Reject(false))
	}
}

// fails reports whether a delivery fails. A crash is a failure once the limit of the queue is
// passed.
func (s *stage) fails(place, queue string, in trace.Input) bool {
	round := s.deliveries[place]
	if in.Cause == trace.Crash {
		i := slices.IndexFunc(s.topology.Queues, func(q topology.Queue) bool { return q.Name == queue })
		q := s.topology.Queues[i]
		limit, _ := policy.DeliveryLimit(s.state, q, policy.Effective(s.state, q)) // by argument or policy
		round = (round-1)/int(limit+1) + 1
	}
	return in.Failures == trace.Always || round <= in.Failures
}

// describe returns all of a delivery that is compared.
func describe(d delivery) string {
	return fmt.Sprintf("exchange %q key %q %s", d.Exchange, d.RoutingKey, headers(d.Headers))
}

// headers describes headers without times and without what the broker counts by delivery.
func headers(table map[string]any) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		switch {
		case name == "x-delivery-count", name == "x-acquired-count", name == "time", name == "at":
		case strings.HasSuffix(name, "-failed-at"):
			out = append(out, name)
		default:
			out = append(out, name+"="+value(table[name]))
		}
	}
	return strings.Join(out, "\n")
}

// value describes a value, whatever type the library has for it.
func value(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "{" + headers(v) + "}"
	case amqp091.Table:
		return "{" + headers(v) + "}"
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, value(e))
		}
		return "[" + strings.Join(out, " ") + "]"
	default:
		return fmt.Sprintf("%v", v)
	}
}
