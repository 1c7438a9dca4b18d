package importer_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

// oddNames are names that YAML, a shell or a reader could mistake for something else.
func oddNames() []string {
	return []string{
		"orders", "orders.dead", "orders.retry", "orders.dlq", "main.orders", "main.dead", "main.standard.failed", "shop.dlx",
		"#", "*", "- a", "a: b", "a, b", "[x]", "{x}", "'q'", `"q"`, "yes", "true", "null", "~", "010", "1e3", "2020-01-01",
		"${HOME}", "$${HOME}", "a${b", "<<", "&a", "*a", "!t", "|", ">", "%", "@", "`", " lead", "trail ", "a\tb", "a#b",
		"a #b",
		"ünïcode", "日本", "🐇", "a\u2028b", "a\u0085b", "\u200b", "\x00", "a\x1bb", `back\slash`, "?", "? a", "---", "...", "=",
		".x",
		strings.Repeat("n", 250), strings.Repeat("k", 255), "a/b", "shop:orders", "a\ufeffb", "\U0010ffff", "\ufffd",
	}
}

// drawName draws a name: an odd one, or one of a few words.
func drawName(t *rapid.T, label string) string {
	if rapid.Bool().Draw(t, label+" is odd") {
		return rapid.SampledFrom(oddNames()).Draw(t, label)
	}
	return rapid.StringMatching(`[a-c]{1,2}([.:_-][a-c]{1,2}){0,2}`).Draw(t, label)
}

// drawValue draws a value of each type that arguments can have.
func drawValue(t *rapid.T, depth int) any {
	most := 6
	if depth > 2 {
		most = 4
	}
	switch rapid.IntRange(0, most).Draw(t, "type") {
	case 0:
		return drawName(t, "text")
	case 1:
		return rapid.Int64().Draw(t, "integer")
	case 2:
		return rapid.Bool().Draw(t, "boolean")
	case 3:
		return rapid.SampledFrom([]float64{0.5, -1.25, 1e300, 1e-9, 3}).Draw(t, "float")
	case 4:
		return nil
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawValue(t, depth+1))
		}
		return list
	default:
		return drawArguments(t, depth+1)
	}
}

func drawArguments(t *rapid.T, depth int) topology.Arguments {
	args := topology.Arguments{}
	for range rapid.IntRange(0, 2).Draw(t, "arguments") {
		args[drawName(t, "argument")] = drawValue(t, depth)
	}
	return args
}

// drawState draws a virtual host.
func drawState(t *rapid.T) topology.State {
	s := topology.State{
		Version: rapid.SampledFrom([]string{"3.10.8", "4.0.5", "4.3.6", ""}).Draw(t, "version"),
		VHost:   rapid.SampledFrom([]string{"/", "shop", "a b", "${X}", "日本", "main"}).Draw(t, "vhost"),
	}
	exchanges := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string { return drawName(t, "exchange") }), 0, 5,
		rapid.ID[string]).Draw(t, "exchanges")
	for _, name := range exchanges {
		s.Have.Exchanges = append(s.Have.Exchanges, drawExchange(t, name))
	}
	for _, name := range topology.ExchangeTypes() {
		s.Have.Exchanges = append(s.Have.Exchanges, topology.Exchange{Name: "amq." + name, Type: name, Durable: true})
	}
	queues := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string { return drawName(t, "queue") }), 0, 6,
		rapid.ID[string]).Draw(t, "queues")
	for _, name := range queues {
		s.Have.Queues = append(s.Have.Queues, drawQueue(t, name, exchanges, queues))
	}
	drawBindings(t, &s, queues)
	for i := range rapid.IntRange(0, 2).Draw(t, "policies") {
		pattern := "^" + regexp.QuoteMeta(rapid.SampledFrom(append(queues, "a")).Draw(t, "pattern")) + "$"
		s.Have.Policies = append(s.Have.Policies, topology.Policy{
			Name: fmt.Sprintf("policy %d", i), Pattern: rapid.SampledFrom([]string{pattern, ".*", "^a"}).Draw(t, "pattern"),
			ApplyTo: "queues", Priority: rapid.Int64Range(0, 3).Draw(t, "priority"),
			Definition: topology.Arguments{"dead-letter-exchange": rapid.SampledFrom(append(exchanges, "")).Draw(t, "exchange")},
		})
	}
	s.Have.Sort()
	s.Usage = map[string]topology.Usage{}
	for _, q := range s.Have.Queues {
		s.Usage[q.Name] = topology.Usage{Ready: 1}
	}
	return s
}

func drawExchange(t *rapid.T, name string) topology.Exchange {
	types := append(topology.ExchangeTypes(), "x-random", "x-delayed-message")
	e := topology.Exchange{
		Name: name, Type: rapid.SampledFrom(types).Draw(t, "type"),
		Durable: rapid.IntRange(0, 5).Draw(t, "durable") > 0, Internal: rapid.Bool().Draw(t, "internal"),
		AutoDelete: rapid.IntRange(0, 5).Draw(t, "auto") == 0, Arguments: drawArguments(t, 0),
	}
	mark(t, e.Arguments)
	return e
}

// mark puts the owner mark of a topology on some objects.
func mark(t *rapid.T, args topology.Arguments) {
	if rapid.IntRange(0, 7).Draw(t, "mark") == 0 {
		args[topology.ArgManagedBy] = rapid.SampledFrom([]any{
			"dlxctl/main", "dlxctl/shop", "dlxctl/shop/desk", "chef",
			int64(1),
		}).Draw(t, "owner")
	}
}

func drawQueue(t *rapid.T, name string, exchanges, queues []string) topology.Queue {
	q := topology.Queue{
		Name: name, Durable: rapid.IntRange(0, 5).Draw(t, "durable") > 0, Arguments: drawArguments(t, 0),
		AutoDelete: rapid.IntRange(0, 9).Draw(t, "auto") == 0, Exclusive: rapid.IntRange(0, 9).Draw(t, "exclusive") == 0,
	}
	q.Arguments[topology.ArgQueueType] = rapid.SampledFrom([]any{"classic", "classic", "quorum", "stream"}).Draw(t, "type")
	add := func(name string, values ...any) {
		if rapid.IntRange(0, 2).Draw(t, name) == 0 {
			q.Arguments[name] = rapid.SampledFrom(values).Draw(t, name)
		}
	}
	for _, e := range append(exchanges, "", "missing", "amq.direct") {
		add(topology.ArgDeadLetterExchange, e)
	}
	for _, other := range append(queues, "missing") {
		add(topology.ArgDeadLetterRoutingKey, other)
	}
	add(topology.ArgMessageTTL, int64(0), int64(1500), int64(30000), int64(1)<<32)
	add(topology.ArgDeliveryLimit, int64(-1), int64(0), int64(5), topology.Unlimited, int64(1)<<40)
	add(topology.ArgMaxLength, int64(10), int64(-1))
	add(topology.ArgOverflow, "drop-head", topology.RejectPublish, "reject-publish-dlx", "odd")
	add(topology.ArgDeadLetterStrategy, topology.AtLeastOnce, topology.AtMostOnce)
	add("x-owner", "team a", "b")
	mark(t, q.Arguments)
	return q
}

func drawBindings(t *rapid.T, s *topology.State, queues []string) {
	seen := map[string]bool{}
	for range rapid.IntRange(0, 12).Draw(t, "bindings") {
		source := rapid.SampledFrom(s.Have.Exchanges).Draw(t, "source")
		b := topology.Binding{Source: source.Name, DestinationType: topology.ToExchange, Key: drawName(t, "key")}
		b.Destination = rapid.SampledFrom(s.Have.Exchanges).Draw(t, "destination").Name
		if len(queues) > 0 && rapid.IntRange(0, 4).Draw(t, "to a queue") > 0 {
			b.Destination, b.DestinationType = rapid.SampledFrom(queues).Draw(t, "destination"), topology.ToQueue
		}
		if rapid.IntRange(0, 2).Draw(t, "no key") == 0 {
			b.Key = ""
		}
		if source.Type == topology.Headers || rapid.IntRange(0, 4).Draw(t, "with arguments") == 0 {
			b.Arguments = drawArguments(t, 0)
			if rapid.Bool().Draw(t, "with match") {
				b.Arguments[topology.ArgMatch] = rapid.SampledFrom([]any{"all", "any", "all-with-x", "any-with-x"}).Draw(t, "match")
			}
			mark(t, b.Arguments)
		}
		if id := b.Identity(); !seen[id] {
			seen[id] = true
			s.Have.Bindings = append(s.Have.Bindings, b)
		}
	}
}

// sorted sorts names, so that equal draws choose equal names.
func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
