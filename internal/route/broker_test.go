package route_test

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
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
		state := w.declare(rt, t, x)
		c := comparison{
			t: rt, world: w, total: &total, stuck: map[string]int{},
			drawn: route.New(topology.State{Version: x.Version, Have: w.sorted()}),
			read:  route.New(state),
		}
		c.run(t, x)
	})
	t.Logf("%s: %+v", x.Version, total)
}

// tally counts what was compared.
type tally struct {
	VirtualHosts, Published, Arrived, DeadLettered, Lost, Cut, Stuck, Unknown, Endless int
}

// fate is how messages die in a queue without a consumer. A queue without a fate has a consumer.
type fate struct {
	reason    route.Reason
	arguments amqp091.Table
}

// refuses is the overflow of a classic queue that refuses a message and dead-letters it too.
const refuses = "reject-publish-dlx"

func fates() []fate {
	return []fate{
		{route.Expired, amqp091.Table{topology.ArgMessageTTL: int64(0)}},
		{route.Expired, amqp091.Table{topology.ArgMessageTTL: int64(3)}},
		{route.MaxLen, amqp091.Table{topology.ArgMaxLength: int64(0)}},
		{route.MaxLen, amqp091.Table{topology.ArgMaxLength: int64(0), topology.ArgOverflow: refuses}},
	}
}

// world is a virtual host, and the messages that are published in it.
type world struct {
	topology.Topology
	fates    map[string]route.Reason
	bindings []amqp091.Table // the arguments of Bindings, with the types of AMQP
	messages []publishing
	seed     uint32
}

type publishing struct {
	exchange, key string
	headers       amqp091.Table
}

func drawWorld(t *rapid.T) world {
	w := world{fates: map[string]route.Reason{}, seed: rapid.Uint32().Draw(t, "seed")}
	for i := range rapid.IntRange(2, 7).Draw(t, "exchanges") {
		w.drawExchange(t, fmt.Sprint("x", i))
	}
	for i := range rapid.IntRange(3, 9).Draw(t, "queues") {
		w.drawQueue(t, fmt.Sprint("q", i))
	}
	for range rapid.IntRange(4, 24).Draw(t, "bindings") {
		w.drawBinding(t)
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "policies") {
		w.drawPolicy(t, i)
	}
	w.messages = rapid.SliceOfN(rapid.Custom(w.drawMessage), 20, 40).Draw(t, "messages")
	return w
}

// sorted gives the objects in the order in which Inspect has them.
func (w *world) sorted() topology.Topology {
	t := w.Topology
	t.Bindings = slices.Clone(t.Bindings)
	t.Sort()
	return t
}

func drawKey(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "a.b", "q0", "q1", "a..b", "."}),
		rapid.StringMatching(`[ab](\.[ab*#]?){0,3}`),
	).Draw(t, "key")
}

// drawTarget draws the name of an exchange that a queue or an exchange points to, also of one
// that does not exist, and the default exchange.
func drawTarget(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"x0", "x1", "x2", "x3", "x4", "x0", "x1", "", "amq.topic", "missing"}).Draw(t, what)
}

func (w *world) drawExchange(t *rapid.T, name string) {
	e := topology.Exchange{
		Name: name, Durable: true, Internal: rapid.IntRange(0, 5).Draw(t, "internal") == 0,
		Type: rapid.SampledFrom(topology.ExchangeTypes()).Draw(t, "type"),
	}
	if rapid.IntRange(0, 2).Draw(t, "has alternate") == 0 {
		e.Arguments = topology.Arguments{topology.ArgAlternateExchange: drawTarget(t, "alternate")}
	}
	w.Exchanges = append(w.Exchanges, e)
}

func (w *world) drawQueue(t *rapid.T, name string) {
	args := amqp091.Table{topology.ArgQueueType: topology.Classic}
	quorum := rapid.IntRange(0, 4).Draw(t, "quorum") == 0
	if quorum {
		args[topology.ArgQueueType], args[topology.ArgDeliveryLimit] = topology.Quorum, int64(0)
	}
	if rapid.IntRange(0, 4).Draw(t, "dead-letters") > 0 {
		args[topology.ArgDeadLetterExchange] = drawTarget(t, "dead-letter exchange")
		if rapid.Bool().Draw(t, "has key") {
			args[topology.ArgDeadLetterRoutingKey] = drawKey(t)
		}
	}
	dies := rapid.IntRange(0, 2).Draw(t, "dies") == 0
	if quorum && rapid.Bool().Draw(t, "at least once") {
		args[topology.ArgDeadLetterStrategy], args[topology.ArgOverflow] = topology.AtLeastOnce, topology.RejectPublish
		if dies { // with reject-publish a full queue drops nothing
			w.fates[name], args[topology.ArgMessageTTL] = route.Expired, int64(0)
		}
	} else if dies {
		choices := fates()
		if quorum {
			choices = choices[:3]
		}
		f := rapid.SampledFrom(choices).Draw(t, "fate")
		w.fates[name] = f.reason
		maps.Copy(args, f.arguments)
	}
	canonical, err := topology.Canonical(args)
	if err != nil {
		t.Fatal(err)
	}
	w.Queues = append(w.Queues, topology.Queue{Name: name, Durable: true, Arguments: canonical})
}

func (w *world) drawBinding(t *rapid.T) {
	names := []string{"amq.topic"}
	for _, e := range w.Exchanges {
		names = append(names, e.Name)
	}
	source := rapid.SampledFrom(names).Draw(t, "source")
	b := topology.Binding{Source: source, Key: drawKey(t), DestinationType: topology.ToQueue}
	if rapid.IntRange(0, 2).Draw(t, "to exchange") == 0 {
		b.DestinationType, b.Destination = topology.ToExchange, rapid.SampledFrom(names).Draw(t, "destination")
	} else {
		b.Destination = rapid.SampledFrom(w.Queues).Draw(t, "destination").Name
	}
	if strings.Count("."+b.Key+".", ".#.") > 2 {
		return // 4.3 refuses more
	}
	args := amqp091.Table{}
	for _, e := range w.Exchanges {
		if e.Name == source && e.Type == topology.Headers {
			args = amqp091.Table(rapid.MapOfN(drawHeaderName(), drawHeaderValue(), 0, 3).Draw(t, "arguments"))
			args[topology.ArgMatch] = rapid.SampledFrom([]string{"all", "any", "all-with-x", "any-with-x"}).Draw(t, "match")
		}
	}
	b.Arguments = bindingArguments(args)
	if slices.ContainsFunc(w.Bindings, func(other topology.Binding) bool { return other.ID() == b.ID() }) {
		return
	}
	w.Bindings, w.bindings = append(w.Bindings, b), append(w.bindings, args)
}

func drawHeaderName() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"h", "n", "x-h", "x-managed-by", "x-first-death-reason", "x-last-death-queue"})
}

// drawHeaderValue draws a value of any type of AMQP, from few values, so that many match.
func drawHeaderValue() *rapid.Generator[any] {
	return rapid.SampledFrom([]any{
		"", "2", "q1", "rejected", "expired", int8(2), int16(2), int32(2), int64(2), int32(-1), int64(2000), uint8(2), 2.0, float32(2),
		0.5, float32(0.5), true, false, nil, time.Unix(2, 0), []byte("2"), []any{"a"}, []any{"a", "b"},
	})
}

// bindingArguments gives arguments as a broker reports them: whole floats stay floats.
func bindingArguments(args amqp091.Table) topology.Arguments {
	out := topology.Arguments{}
	for name, v := range args {
		switch v := v.(type) {
		case float32:
			out[name] = float64(v)
		case float64, []any:
			out[name] = v
		case time.Time:
			out[name] = v.Unix()
		default:
			out[name], _ = topology.CanonicalValue(v)
		}
	}
	return out
}

// drawPolicy draws a policy. Some have a key that queues of one type do not know, and so do not
// apply to these.
func (w *world) drawPolicy(t *rapid.T, i int) {
	definition := topology.Arguments{}
	draw := func(key string, value func() any) {
		if rapid.IntRange(0, 1).Draw(t, key) == 0 {
			definition[key] = value()
		}
	}
	draw("dead-letter-exchange", func() any { return drawTarget(t, "dead-letter exchange") })
	draw("dead-letter-routing-key", func() any { return drawKey(t) })
	draw("alternate-exchange", func() any { return drawTarget(t, "alternate") })
	if unknown := rapid.IntRange(0, 5).Draw(t, "unknown"); unknown == 0 {
		definition["max-age"] = "1D"
	} else if unknown == 1 || len(definition) == 0 {
		definition["dead-letter-strategy"] = "at-most-once"
	}
	w.Policies = append(w.Policies, topology.Policy{
		Name: fmt.Sprint("p", i), Priority: int64(i), Definition: definition,
		Pattern: rapid.SampledFrom([]string{".*", "^x", "^q", "[024]$", "[135]$", "^q[0-3]$", "^(?!amq)"}).Draw(t, "pattern"),
		ApplyTo: rapid.SampledFrom([]string{"all", "queues", "exchanges"}).Draw(t, "apply to"),
	})
}

func (w *world) drawMessage(t *rapid.T) publishing {
	names := []string{"", "amq.topic"}
	for _, e := range w.Exchanges {
		if !e.Internal {
			names = append(names, e.Name, e.Name)
		}
	}
	m := publishing{exchange: rapid.SampledFrom(names).Draw(t, "exchange"), key: drawKey(t), headers: amqp091.Table{}}
	maps.Copy(m.headers, rapid.MapOfN(drawHeaderName(), drawHeaderValue(), 0, 3).Draw(t, "headers"))
	for _, name := range []string{"CC", "BCC"} {
		if rapid.IntRange(0, 3).Draw(t, name) == 0 {
			m.headers[name] = rapid.SliceOfN(rapid.Map(rapid.Custom(drawKey), func(s string) any { return s }), 0, 3).Draw(t, "keys")
		}
	}
	if rapid.IntRange(0, 7).Draw(t, "died before") == 0 {
		m.headers["x-death"] = rapid.SliceOfNDistinct(rapid.Custom(drawDeath), 1, 3, func(v any) string {
			return fmt.Sprint(v.(amqp091.Table)["queue"], v.(amqp091.Table)["reason"])
		}).Draw(t, "deaths")
	}
	return m
}

// drawDeath draws an entry of x-death, as a client has it that publishes a dead letter again.
func drawDeath(t *rapid.T) any {
	return amqp091.Table{
		"queue":  rapid.SampledFrom([]string{"q0", "q1", "q2", "q3"}).Draw(t, "queue"),
		"reason": rapid.SampledFrom([]string{"rejected", "expired", "maxlen"}).Draw(t, "reason"),
		"count":  int64(1), "exchange": "x0", "routing-keys": []any{"a"},
	}
}

// declare makes the virtual host, and returns what dlxctl reads from it. Policies come first, so
// that they are in effect from the start.
func (w *world) declare(t *rapid.T, tb testing.TB, x brokertest.Target) topology.State {
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
	return fmt.Sprintf("%s in %s: exchange %q, key %q, headers %s", c.id, c.queue, m.Exchange, m.Keys[0], visible(m.Headers))
}

// visible describes those headers that the broker reads or writes.
func visible(headers map[string]any) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		v := headers[name]
		switch {
		case name == "CC", name == "BCC", strings.HasPrefix(name, "x-first-death-"), strings.HasPrefix(name, "x-last-death-"):
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

func (c *comparison) run(tb testing.TB, x brokertest.Target) {
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
		last.Wait() // that a queue refused a message is no failure
	}
	return expected
}

// same compares the results of both routers, and returns that of what was drawn. The broker reports
// the value void as a text, so that the other router may know less.
func (c *comparison) same(drawn, read route.Result) route.Result {
	if a, b := fmt.Sprintf("%+v", drawn), fmt.Sprintf("%+v", read); a != b && len(read.Unknown) == 0 {
		c.t.Fatalf("the router of what was drawn and that of what was read differ:\n%s\n%s", a, b)
	}
	return drawn
}

// settle follows a message through all queues in which it dies by itself. It reports false if the
// router does not know where it goes, or if it goes round for ever.
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
	c.total.Lost, c.total.Cut, c.total.Stuck = c.total.Lost+count.Lost, c.total.Cut+count.Cut, c.total.Stuck+count.Stuck
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

// describe gives a delivery as a copy. The consumer tag is the name of the queue.
func describe(d amqp091.Delivery) copyOf {
	return copyOf{d.ConsumerTag, d.MessageId, route.Message{Exchange: d.Exchange, Keys: []string{d.RoutingKey}, Headers: d.Headers}}
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

// text describes a world in a failure.
func (w world) text() string {
	var b strings.Builder
	for _, e := range w.Exchanges {
		fmt.Fprintf(&b, "exchange %s %s internal=%v %s\n", e.Name, e.Type, e.Internal, e.Arguments)
	}
	for _, q := range w.Queues {
		fmt.Fprintf(&b, "queue %s %s\n", q.Name, q.Arguments)
	}
	for i, bind := range w.Bindings {
		fmt.Fprintf(&b, "binding %s %v\n", bind.ID().Name, w.bindings[i])
	}
	for _, p := range w.Policies {
		fmt.Fprintf(&b, "policy %s %s %s %d %s\n", p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition)
	}
	for i, m := range w.messages {
		fmt.Fprintf(&b, "m%d to %q key %q headers %v\n", i, m.exchange, m.key, m.headers)
	}
	return b.String()
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
