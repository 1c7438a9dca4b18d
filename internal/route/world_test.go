package route_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

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

// sorted returns the objects in the order in which Inspect has them.
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
	names := []string{"x0", "x1", "x2", "x3", "x4", "x0", "x1", "", "amq.topic", "missing"}
	return rapid.SampledFrom(names).Draw(t, what)
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
	hashes := strings.FieldsFunc(b.Key, func(r rune) bool { return r != '#' })
	if len(hashes) > 2 {
		return // 4.3 refuses more
	}
	args := amqp091.Table{}
	for _, e := range w.Exchanges {
		if e.Name == source && e.Type == topology.Headers {
			args = amqp091.Table(rapid.MapOfN(drawHeaderName(), drawHeaderValue(), 0, 3).Draw(t, "arguments"))
			modes := []string{"all", "any", "all-with-x", "any-with-x"}
			args[topology.ArgMatch] = rapid.SampledFrom(modes).Draw(t, "match")
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
		"", "2", "q1", "rejected", "expired",
		int8(2), int16(2), int32(2), int64(2), int32(-1), int64(2000), uint8(2), 2.0, float32(2), 0.5, float32(0.5),
		true, false, nil, time.Unix(2, 0), []byte("2"),
		[]any{"a"},
		[]any{"a", "b"},
	})
}

// bindingArguments returns arguments as a broker reports them: whole floats stay floats.
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
	patterns := []string{".*", "^x", "^q", "[024]$", "[135]$", "^q[0-3]$", "^(?!amq)"}
	w.Policies = append(w.Policies, topology.Policy{
		Name: fmt.Sprint("p", i), Priority: int64(i), Definition: definition,
		Pattern: rapid.SampledFrom(patterns).Draw(t, "pattern"),
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
			key := rapid.Map(rapid.Custom(drawKey), func(s string) any { return s })
			m.headers[name] = rapid.SliceOfN(key, 0, 3).Draw(t, "keys")
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
