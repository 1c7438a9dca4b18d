package route_test

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// TestRouterAgreesWithTheBroker declares generated virtual hosts, publishes messages, lets them
// fail, and compares where they arrive with what the router says: also which exchange, keys and
// deaths they then have. -rapid.checks is the number of virtual hosts.
func TestRouterAgreesWithTheBroker(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	var total tally
	rapid.Check(t, func(rt *rapid.T) {
		x.Empty(t)
		w := drawWorld(rt)
		state := w.declare(t, rt, x)
		c := comparison{
			t: rt, world: w, total: &total, stuck: map[string]int{},
			drawn: route.New(topology.State{Version: x.Version, Have: w.sorted()}),
			read:  route.New(state),
		}
		c.run(x)
	})
	t.Logf("%s: %+v", x.Version, total)
}

// tally counts what was compared.
type tally struct {
	VirtualHosts, Published, Arrived, DeadLettered, Lost, Cut, Stuck, Unknown, Endless int
}

// declare makes the virtual host, and returns what dlxctl reads from it. Policies come first, so
// that they are in effect from the start.
func (w *world) declare(tb testing.TB, t *rapid.T, x brokertest.Target) topology.State {
	tb.Helper()
	for _, p := range w.Policies {
		x.Call(tb, http.MethodPut, "policies/"+url.PathEscape(x.VHost)+"/"+p.Name, map[string]any{
			"pattern": p.Pattern, "apply-to": p.ApplyTo, "priority": p.Priority, "definition": p.Definition,
		})
	}
	ch := openChannel(t, x)
	for _, e := range w.Exchanges {
		check(t, ch.ExchangeDeclare(e.Name, e.Type, true, false, e.Internal, false, amqp091.Table(e.Arguments)))
	}
	for _, q := range w.Queues {
		_, err := ch.QueueDeclare(q.Name, true, false, false, false, amqp091.Table(q.Arguments))
		check(t, err)
	}
	for i, b := range w.Bindings {
		if b.DestinationType == topology.ToExchange {
			check(t, ch.ExchangeBind(b.Destination, b.Key, b.Source, false, w.bindings[i]))
		} else {
			check(t, ch.QueueBind(b.Destination, b.Key, b.Source, false, w.bindings[i]))
		}
	}
	endpoint, err := broker.Config{URL: x.URL, API: x.API}.Resolve()
	check(t, err)
	client, err := management.New(endpoint)
	check(t, err)
	defer client.Close()
	state, err := client.Inspect(t.Context())
	check(t, err)
	return state
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openChannel(t *rapid.T, x brokertest.Target) *amqp091.Channel {
	conn, err := amqp091.Dial(x.URL)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	check(t, err)
	return ch
}

// comparison runs a world on a broker and in two routers: of what was drawn, and of what was read
// from the broker.
type comparison struct {
	t           *rapid.T
	world       world
	drawn, read *route.Router
	total       *tally
	stuck       map[string]int // messages that cannot leave a queue
	deliveries  chan amqp091.Delivery
}

// copyOf is a message in a queue with a consumer.
type copyOf struct {
	queue, id string
	message   route.Message
}

// text describes a copy by everything that is compared.
func (c copyOf) text() string {
	m := c.message
	return fmt.Sprintf("%s in %s: exchange %q, key %q, headers %s",
		c.id, c.queue, m.Exchange, m.Keys[0], visible(m.Headers))
}

// visible describes those headers that the broker reads or writes.
func visible(headers map[string]any) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		v := headers[name]
		switch {
		case name == "CC", name == "BCC",
			strings.HasPrefix(name, "x-first-death-"), strings.HasPrefix(name, "x-last-death-"):
			out = append(out, fmt.Sprintf("%s=%v", name, v))
		case name == "x-death":
			for _, death := range v.([]any) {
				table, ok := death.(map[string]any)
				if !ok {
					table = death.(amqp091.Table)
				}
				out = append(out, fmt.Sprintf("death[%v %v %v %v %v]",
					table["queue"], table["reason"], table["count"], table["exchange"], table["routing-keys"]))
			}
		}
	}
	return strings.Join(out, " ")
}

func (c *comparison) run(x brokertest.Target) {
	c.total.VirtualHosts++
	c.consume(x)
	waiting := c.publish(x)
	for range 4 {
		arrived := c.collect(waiting)
		var next []copyOf
		for i, copies := range waiting {
			next = append(next, c.fail(copies, arrived[i], len(next) < 300)...)
		}
		waiting = next
	}
	c.collect(waiting)
	if len(c.deliveries) > 0 {
		c.t.Fatalf("%s arrived, and the router does not say so", describe(<-c.deliveries).text())
	}
}

// consume starts a consumer on each queue in which messages do not die by themselves.
func (c *comparison) consume(x brokertest.Target) {
	ch := openChannel(c.t, x)
	c.deliveries = make(chan amqp091.Delivery, 10_000)
	for _, q := range c.world.Queues {
		if _, dies := c.world.fates[q.Name]; dies {
			continue
		}
		from, err := ch.Consume(q.Name, q.Name, false, false, false, false, nil)
		check(c.t, err)
		go func() {
			for d := range from {
				c.deliveries <- d
			}
		}()
	}
}

// publish publishes the messages, and returns the copies that the router expects.
func (c *comparison) publish(x brokertest.Target) []copyOf {
	ch := openChannel(c.t, x)
	check(c.t, ch.Confirm(false))
	var expected []copyOf
	var last *amqp091.DeferredConfirmation
	for i, m := range c.world.messages {
		result := c.same(c.drawn.Publish(m.exchange, m.key, m.headers), c.read.Publish(m.exchange, m.key, m.headers))
		copies, ok := c.settle(fmt.Sprint("m", i), result)
		if !ok {
			continue
		}
		expected = append(expected, copies...)
		c.total.Published++
		var err error
		last, err = ch.PublishWithDeferredConfirmWithContext(context.Background(), m.exchange, m.key, false, false,
			amqp091.Publishing{MessageId: fmt.Sprint("m", i), DeliveryMode: amqp091.Persistent, Headers: m.headers})
		check(c.t, err)
	}
	if last != nil {
		last.Wait() // that a queue refused a message is not a failure
	}
	return expected
}

// same compares the results of both routers, and returns that of what was drawn. The broker reports
// the value void as a text, so that the other router may know less.
func (c *comparison) same(drawn, read route.Result) route.Result {
	a := strings.ReplaceAll(fmt.Sprintf("%+v", drawn), "=null", `="undefined"`)
	if b := fmt.Sprintf("%+v", read); a != b && len(read.Unknown) == 0 {
		c.t.Fatalf("the router of what was drawn and that of what was read differ:\n%s\n%s", a, b)
	}
	return drawn
}

// settle follows a message through all queues in which it dies by itself. It reports false if the
// router does not know where it goes, or if it goes round forever.
func (c *comparison) settle(id string, first route.Result) ([]copyOf, bool) {
	var out []copyOf
	var count tally
	stuck := maps.Clone(c.stuck)
	todo := []route.Result{first}
	for steps := 0; len(todo) > 0; steps++ {
		r := todo[0]
		todo = todo[1:]
		switch {
		case len(r.Unknown) > 0:
			c.total.Unknown++
			return nil, false
		case steps > 300:
			c.total.Endless++
			return nil, false
		}
		if source := c.held(r); source != "" {
			if stuck[source]++; stuck[source] > 25 {
				return nil, false
			}
		}
		if c.comesAgain(r) {
			return nil, false
		}
		count.add(r)
		for _, q := range r.Queues {
			if reason, dies := c.world.fates[q]; dies {
				todo = append(todo, c.dies(q, r.Message, reason))
			} else {
				out = append(out, copyOf{q, id, r.Message})
			}
		}
	}
	c.stuck = stuck
	c.total.Lost += count.Lost
	c.total.Cut += count.Cut
	c.total.Stuck += count.Stuck
	c.total.DeadLettered += count.DeadLettered
	return out, true
}

// held returns the queue that a dead letter cannot leave. 32 of them hold up all others there. On
// 3.10 they also do in a queue that dead-letters to itself at least once: of 33 that are rejected
// at once, 32 come back (the other lines: all).
func (c *comparison) held(r route.Result) string {
	if len(r.Message.Deaths) == 0 {
		return ""
	}
	source := r.Message.Deaths[0].Queue
	to, _ := c.drawn.DeadLettering(source)
	if len(r.Stuck) > 0 || to.AtLeastOnce && slices.Contains(r.Queues, source) {
		return source
	}
	return ""
}

// comesAgain reports whether a dead letter goes at least once to a queue that refuses it and
// dead-letters it too. The broker tries again after three minutes, and again.
func (c *comparison) comesAgain(r route.Result) bool {
	if len(r.Message.Deaths) == 0 {
		return false
	}
	to, _ := c.drawn.DeadLettering(r.Message.Deaths[0].Queue)
	return to.AtLeastOnce && slices.ContainsFunc(c.world.Queues, func(q topology.Queue) bool {
		return q.Arguments[topology.ArgOverflow] == refuses && slices.Contains(r.Queues, q.Name)
	})
}

func (n *tally) add(r route.Result) {
	if len(r.Stuck) > 0 {
		n.Stuck++
	}
	if len(r.Message.Deaths) > 0 {
		n.DeadLettered++
	}
	for _, e := range r.Lost {
		if e.Cause == route.Cycle {
			n.Cut++
		} else {
			n.Lost++
			break
		}
	}
}

func (c *comparison) dies(queue string, m route.Message, reason route.Reason) route.Result {
	return c.same(c.drawn.DeadLetter(queue, m, reason), c.read.DeadLetter(queue, m, reason))
}

// collect waits for the expected copies, in any order, and returns their deliveries. Both lists
// are sorted alike.
func (c *comparison) collect(expected []copyOf) []amqp091.Delivery {
	slices.SortStableFunc(expected, func(a, b copyOf) int { return cmp.Compare(a.text(), b.text()) })
	var arrived []amqp091.Delivery
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for len(arrived) < len(expected) {
		select {
		case d := <-c.deliveries:
			arrived = append(arrived, d)
		case <-timeout.C:
			c.mismatch(expected, arrived)
		}
	}
	slices.SortStableFunc(arrived, func(a, b amqp091.Delivery) int {
		return cmp.Compare(describe(a).text(), describe(b).text())
	})
	for i := range expected {
		if expected[i].text() != describe(arrived[i]).text() {
			c.mismatch(expected, arrived)
		}
	}
	c.total.Arrived += len(arrived)
	return arrived
}

// describe returns a delivery as a copy. The consumer tag is the name of the queue.
func describe(d amqp091.Delivery) copyOf {
	m := route.Message{Exchange: d.Exchange, Keys: []string{d.RoutingKey}, Headers: d.Headers}
	return copyOf{d.ConsumerTag, d.MessageId, m}
}

func (c *comparison) mismatch(expected []copyOf, arrived []amqp091.Delivery) {
	missing := map[string]int{}
	for _, e := range expected {
		missing[e.text()]++
	}
	for _, d := range arrived {
		missing[describe(d).text()]--
	}
	var lines []string
	for _, text := range slices.Sorted(maps.Keys(missing)) {
		switch n := missing[text]; {
		case n > 0:
			lines = append(lines, fmt.Sprintf("router alone, %d: %s", n, text))
		case n < 0:
			lines = append(lines, fmt.Sprintf("broker alone, %d: %s", -n, text))
		}
	}
	c.t.Fatalf("%s\n%s", strings.Join(lines, "\n"), c.world.text())
}

// fail rejects a delivered copy, returns it beyond the delivery limit, or acknowledges it, and
// returns the copies that the router expects then. The seed of the world decides; without more it
// is acknowledged.
func (c *comparison) fail(expected copyOf, d amqp091.Delivery, more bool) []copyOf {
	h := fnv.New32()
	fmt.Fprint(h, c.world.seed, expected.text())
	reason := route.Rejected
	quorum := slices.ContainsFunc(c.world.Queues, func(q topology.Queue) bool {
		return q.Name == expected.queue && q.Type() == topology.Quorum
	})
	if quorum && h.Sum32()%2 == 0 {
		reason = route.DeliveryLimit
	}
	var copies []copyOf
	acceptable := more && h.Sum32()%4 > 0
	if acceptable {
		copies, acceptable = c.settle(expected.id, c.dies(expected.queue, expected.message, reason))
	}
	if !acceptable {
		check(c.t, d.Ack(false))
		return nil
	}
	check(c.t, d.Reject(reason == route.DeliveryLimit))
	return copies
}

// TestRefusedByTheBroker has what ends a publisher's channel, and says so as the broker does.
func TestRefusedByTheBroker(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(x.Channel(t).ExchangeDeclare("inside", topology.Fanout, true, false, true, false, nil))
	internal := exchange("inside", topology.Fanout)
	internal.Internal = true
	router := route.New(topology.State{Have: topology.Topology{Exchanges: []topology.Exchange{internal}}})
	for name, tc := range map[string]struct {
		exchange string
		headers  amqp091.Table
		cause    route.Cause
		code     int // 0: it accepts the message
	}{
		"a missing exchange": {"missing", nil, route.NoExchange, amqp091.NotFound},
		"an internal one":    {"inside", nil, route.Internal, amqp091.AccessRefused},
		"CC is a text":       {"amq.fanout", amqp091.Table{"CC": "a"}, route.BadHeader, amqp091.PreconditionFailed},
		"BCC is an integer":  {"amq.fanout", amqp091.Table{"BCC": int32(1)}, route.BadHeader, amqp091.PreconditionFailed},
		"CC is nothing":      {"amq.fanout", amqp091.Table{"CC": nil}, route.BadHeader, amqp091.PreconditionFailed},
		"nothing is bound":   {"amq.fanout", nil, route.NoBinding, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := router.Publish(tc.exchange, "a", tc.headers)
			if len(result.Lost) != 1 || result.Lost[0].Cause != tc.cause {
				t.Errorf("the router says %v, want %s", result.Lost, tc.cause)
			}
			ch := x.Channel(t)
			closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
			err := brokertest.Publish(t.Context(), ch, tc.exchange, "a", amqp091.Publishing{Headers: tc.headers})
			if tc.code == 0 {
				if err != nil {
					t.Errorf("the broker refuses the message: %v", err)
				}
				return
			}
			if reason := <-closed; reason == nil || reason.Code != tc.code {
				t.Errorf("the broker says %v, want code %d", reason, tc.code)
			}
		})
	}
}

// TestStuckDeadLetters shows that a dead letter stays in its queue that the router calls stuck, and
// that one is gone that it calls lost.
func TestStuckDeadLetters(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	ch := x.Channel(t)
	ttl := func(q topology.Queue) topology.Queue {
		q.Arguments = q.Arguments.With(topology.ArgMessageTTL, int64(1))
		return q
	}
	all := []topology.Queue{ // the broker counts after a while: what is lost is looked at last
		ttl(atLeastOnce(deadLettering("stuck, missing", "missing"))),
		ttl(atLeastOnce(deadLettering("stuck, no route", "amq.direct"))),
		ttl(atLeastOnce(deadLettering("stuck, cycle", "", "stuck, cycle"))),
		ttl(deadLettering("lost, missing", "missing")), ttl(deadLettering("lost, no route", "amq.direct")),
		ttl(deadLettering("lost, cycle", "", "lost, cycle")),
	}
	for _, q := range all {
		brokertest.Declare(t, ch, q.Name, amqp091.Table(q.Arguments))
		brokertest.PublishConfirmed(t, x.Confirming(t), "", q.Name, amqp091.Publishing{})
	}
	router := route.New(topology.State{Version: x.Version, Have: topology.Topology{Queues: all}})
	for _, q := range all {
		result := router.DeadLetter(q.Name, router.Publish("", q.Name, nil).Message, route.Expired)
		kept := strings.HasPrefix(q.Name, "stuck")
		if len(result.Queues) > 0 || (len(result.Stuck) == 1) != kept || (len(result.Lost) == 0) != kept {
			t.Errorf("%s: the router says stuck %v, lost %v", q.Name, result.Stuck, result.Lost)
		}
		want := 0.0
		if kept {
			want = 1 // a stuck message is not ready, and counts among the messages of its queue
		}
		var got map[string]any
		brokertest.Eventually(t, fmt.Sprintf("%v messages in %s, none ready", want, q.Name), func() bool {
			got = x.Queue(t, q.Name)
			return got["messages"] == want && got["messages_ready"] == 0.0
		}, &got)
	}
}

// TestARejectionLasts shows what a rejection does to a circle of queues in which messages expire.
// Up to 3.12 the message then goes round forever, because the broker reverses the older deaths each
// time and finds the rejection among the newest ones. Since 4.0 the second round is cut.
func TestARejectionLasts(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	ch := x.Channel(t)
	work, retry := deadLettering("work", "", "retry"), deadLettering("retry", "", "work")
	for _, q := range []*topology.Queue{&work, &retry} {
		q.Arguments = q.Arguments.With(topology.ArgMessageTTL, int64(200))
		brokertest.Declare(t, ch, q.Name, amqp091.Table(q.Arguments))
	}
	have := topology.Topology{Queues: []topology.Queue{work, retry}}
	router := route.New(topology.State{Version: x.Version, Have: have})
	result := router.DeadLetter("work", router.Publish("", "work", nil).Message, route.Rejected)
	var hops int
	for ; hops < 20 && len(result.Queues) == 1; hops++ {
		result = router.DeadLetter(result.Queues[0], result.Message, route.Expired)
	}
	brokertest.PublishConfirmed(t, x.Confirming(t), "", "work", amqp091.Publishing{})
	if err := brokertest.Take(t, ch, "work").Reject(false); err != nil {
		t.Fatal(err)
	}
	if x.AtLeast("3.13") {
		if hops != 2 || len(result.Lost) != 1 || result.Lost[0].Cause != route.Cycle {
			t.Errorf("the router says %v after %d hops, want a cycle after the second", result.Lost, hops)
		}
		eventuallyEmpty(t, ch, "work", "retry")
		return
	}
	if hops < 20 {
		t.Errorf("the router says that it ends after %d hops: %v", hops, result.Lost)
	}
	var last string
	count := regexp.MustCompile(`death\[retry expired ([0-9]+) `)
	brokertest.Eventually(t, "the fourth round", func() bool {
		d, ok, err := ch.Get("work", false)
		if err != nil || !ok {
			return false
		}
		if err := d.Nack(false, true); err != nil { // back to the head
			t.Fatal(err)
		}
		last = visible(d.Headers)
		rounds := 0
		if found := count.FindStringSubmatch(last); found != nil {
			rounds, err = strconv.Atoi(found[1])
		}
		return err == nil && rounds >= 4 // each look sees another round
	}, &last)
}

// eventuallyEmpty waits until no message is ready in any of the queues.
func eventuallyEmpty(t *testing.T, ch *amqp091.Channel, names ...string) {
	t.Helper()
	brokertest.Eventually(t, "the queues are empty", func() bool {
		held := 0
		for _, name := range names {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			held += q.Messages
		}
		return held == 0
	})
}
