package route_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// bind returns a binding; a destination that begins with "exchange:" is one.
func bind(source, key, destination string) topology.Binding {
	b := topology.Binding{Source: source, Key: key, Destination: destination, DestinationType: topology.ToQueue}
	if name, ok := strings.CutPrefix(destination, "exchange:"); ok {
		b.Destination, b.DestinationType = name, topology.ToExchange
	}
	return b
}

func exchange(name, exchangeType string, alternate ...string) topology.Exchange {
	e := topology.Exchange{Name: name, Type: exchangeType, Durable: true}
	for _, a := range alternate {
		e.Arguments = topology.Arguments{topology.ArgAlternateExchange: a}
	}
	return e
}

func queues(names ...string) []topology.Queue {
	var out []topology.Queue
	for _, name := range names {
		out = append(out, topology.Queue{Name: name, Durable: true})
	}
	return out
}

func ends(list []route.End) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

func unknowns(list []route.Unknown) []string {
	var out []string
	for _, u := range list {
		out = append(out, u.Why+": "+strings.Join(u.May, " "))
	}
	return out
}

// shopOf is a virtual host with one of everything.
func shopOf() topology.Topology {
	internal := exchange("inside", topology.Fanout)
	internal.Internal = true
	return topology.Topology{
		Exchanges: []topology.Exchange{
			exchange("direct", topology.Direct, "fallback"), exchange("fanout", topology.Fanout),
			exchange("topic", topology.Topic), exchange("fallback", topology.Fanout), internal,
			exchange("ring-a", topology.Fanout), exchange("ring-b", topology.Topic, "fallback"),
			exchange("hash", "x-consistent-hash", "fallback"), exchange("to default", topology.Direct, ""),
			exchange("to nothing", topology.Direct, "missing"), exchange("by policy", topology.Direct),
			exchange("empty", topology.Topic), exchange("reject", topology.Topic, "fallback"),
		},
		Queues: queues("a", "b", "c", "rest"),
		Bindings: []topology.Binding{
			bind("direct", "k", "a"), bind("direct", "k", "b"), bind("direct", "", "c"),
			bind("direct", "inside", "exchange:inside"), bind("inside", "", "a"),
			bind("fanout", "ignored", "a"), bind("fanout", "", "a"), bind("fanout", "", "c"),
			bind("topic", "order.#", "a"), bind("topic", "#.eu", "a"), bind("topic", "order.*", "exchange:direct"),
			bind("fallback", "", "rest"),
			bind("ring-a", "", "exchange:ring-b"), bind("ring-b", "#", "exchange:ring-a"), bind("ring-b", "k", "b"),
			bind("hash", "10", "a"), bind("hash", "20", "b"),
			bind("reject", "k", "exchange:empty"), bind("empty", "other", "a"),
			bind("amq.topic", "k", "missing"),
		},
		Policies: []topology.Policy{
			{Name: "low", Pattern: "^by", ApplyTo: "all", Priority: 1, Definition: topology.Arguments{
				"alternate-exchange": "direct",
			}},
			{Name: "high", Pattern: "^(by|to)", ApplyTo: "exchanges", Priority: 2, Definition: topology.Arguments{
				"alternate-exchange": "fallback",
			}},
			{Name: "queues", Pattern: "^by", ApplyTo: "queues", Priority: 3, Definition: topology.Arguments{
				"max-length": int64(1),
			}},
		},
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	router := route.New(topology.State{Have: shopOf()})
	cc := func(keys ...any) map[string]any { return map[string]any{"CC": keys} }
	for name, tc := range map[string]struct {
		exchange, key string
		headers       map[string]any
		queues        []string
		lost          []string
		unknown       []string
	}{
		"direct, all bindings of the key": {exchange: "direct", key: "k", queues: []string{"a", "b"}},
		"direct, the empty key":           {exchange: "direct", queues: []string{"c"}},
		"direct, else the alternate":      {exchange: "direct", key: "K", queues: []string{"rest"}},
		"fanout, each queue once":         {exchange: "fanout", key: "any", queues: []string{"a", "c"}},
		"topic, two patterns and an exchange": {
			exchange: "topic", key: "order.eu", queues: []string{"a", "rest"},
		},
		"CC adds keys": {
			exchange: "direct", key: "k", headers: cc("", "none"), queues: []string{"a", "b", "c"},
		},
		"CC alone, and no alternate": {
			exchange: "direct", key: "none", headers: cc(""), queues: []string{"c"},
		},
		"CC holds texts alone": {
			exchange: "direct", key: "", headers: cc([]byte("k"), int32(1)), queues: []string{"c"},
		},
		"BCC adds keys": {
			exchange: "direct", key: "", headers: map[string]any{"BCC": []any{"k"}}, queues: []string{"a", "b", "c"},
		},
		"CC must be a list": {
			exchange: "direct", key: "k", headers: map[string]any{"CC": "k"}, lost: []string{"the header CC is not a list"},
		},
		"the default exchange, by name":    {key: "a", headers: cc("b", "a"), queues: []string{"a", "b"}},
		"the default exchange, no queue":   {key: "nope", lost: []string{"queue nope does not exist"}},
		"the default exchange, one of two": {key: "nope", headers: cc("b"), queues: []string{"b"}},
		"exchanges in a ring":              {exchange: "ring-a", key: "k", queues: []string{"b"}},
		"a ring without a queue, no alternate": {
			exchange: "ring-a", key: "x", lost: []string{"exchange ring-a leads to exchanges alone, in a circle"},
		},
		"an exchange that matches has no other": {
			exchange: "reject", key: "k", lost: []string{unbound("empty")},
		},
		"the alternate by the policy in effect": {exchange: "by policy", key: "k", queues: []string{"rest"}},
		"the argument overrides the policy": {
			exchange: "to nothing", key: "k", lost: []string{"exchange missing does not exist"},
		},
		"the default exchange is not an alternate": {
			exchange: "to default", key: "a", lost: []string{unbound("")},
		},
		"an internal exchange": {
			exchange: "inside", lost: []string{"exchange inside is internal, and clients may not publish to it"},
		},
		"through an internal exchange": {exchange: "direct", key: "inside", queues: []string{"a"}},
		"no exchange":                  {exchange: "nope", lost: []string{"exchange nope does not exist"}},
		"a binding to no queue": {
			exchange: "amq.topic", key: "k", lost: []string{"queue missing does not exist"},
		},
		"what every virtual host has": {
			exchange: "amq.fanout", lost: []string{unbound("amq.fanout")},
		},
		"the type of a plugin": {
			exchange: "hash", unknown: []string{
				"exchange hash has the type x-consistent-hash, and its plugin decides about routes: a b rest",
			},
		},
		"the address of a client's reply": {
			key: "amq.rabbitmq.reply-to.g1", unknown: []string{
				`the key "amq.rabbitmq.reply-to.g1" is the address of a client that waits for a reply: `,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := router.Publish(tc.exchange, tc.key, tc.headers)
			if strings.Join(got.Queues, " ") != strings.Join(tc.queues, " ") {
				t.Errorf("queues %q, want %q", got.Queues, tc.queues)
			}
			if d := cmp.Diff(tc.lost, ends(got.Lost)); d != "" {
				t.Errorf("lost (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.unknown, unknowns(got.Unknown)); d != "" {
				t.Errorf("unknown (-want +got):\n%s", d)
			}
		})
	}
}

func TestStepsNameTheWay(t *testing.T) {
	t.Parallel()
	router := route.New(topology.State{Have: shopOf()})
	describe := func(steps []route.Step) []string {
		var out []string
		for _, s := range steps {
			line := string(s.Via) + ": " + s.String()
			if s.Policy != "" {
				line += " by " + s.Policy
			}
			out = append(out, line)
		}
		return out
	}
	got := router.Publish("topic", "order.eu", nil)
	want := []string{
		"binding: topic -> a (order.#)", "binding: topic -> a (#.eu)", "binding: topic -> exchange:direct (order.*)",
		"alternate: direct -> exchange:fallback", "binding: fallback -> rest",
	}
	if d := cmp.Diff(want, describe(got.Steps)); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want[2:], describe(got.Path("rest"))); d != "" {
		t.Errorf("path (-want +got):\n%s", d)
	}
	if got.Path("b") != nil {
		t.Error("there is a path to a queue that is not reached")
	}
	want = []string{"alternate: by policy -> exchange:fallback by high", "binding: fallback -> rest"}
	if d := cmp.Diff(want, describe(router.Publish("by policy", "", nil).Steps)); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"default:  -> a (a)"}, describe(router.Publish("", "a", nil).Path("a"))); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	router := route.New(topology.State{Have: shopOf()})
	for exchange, want := range map[string]string{
		"": "a b c rest", "direct": "a b c rest", "fanout": "a c", "ring-a": "b rest", "to default": "", "nope": "",
		"amq.topic": "",
	} {
		if got := strings.Join(router.Reachable(exchange), " "); got != want {
			t.Errorf("from %q: %q, want %q", exchange, got, want)
		}
	}
}

// TestHeaders has a row for each rule of headers exchanges. "old" are brokers up to 3.12.
func TestHeaders(t *testing.T) {
	t.Parallel()
	type args = topology.Arguments
	type headers = map[string]any
	list := func(v ...any) []any { return v }
	for name, tc := range map[string]struct {
		binding  args
		message  headers
		old, now string // yes, no or unknown; now is old if it is empty
	}{
		"nothing wanted, all": {args{}, nil, "yes", ""},
		"nothing wanted, any": {args{"x-match": "any"}, headers{"a": "1"}, "no", ""},
		"all of them": {
			args{"a": "1", "b": "2"}, headers{"a": "1", "b": "2", "c": "3"}, "yes", "",
		},
		"one of all is missing": {args{"a": "1", "b": "2"}, headers{"a": "1"}, "no", ""},
		"one of all differs": {
			args{"x-match": "all", "a": "1", "b": "2"}, headers{"a": "1", "b": "3"}, "no", "",
		},
		"any of them": {
			args{"x-match": "any", "a": "1", "b": "2"}, headers{"b": "2"}, "yes", "",
		},
		"none of any": {
			args{"x-match": "any", "a": "1", "b": "2"}, headers{"a": "2"}, "no", "",
		},
		"x- is skipped, all": {args{"x-a": "1", "b": "2"}, headers{"b": "2"}, "yes", ""},
		"x- is skipped, any": {args{"x-match": "any", "x-a": "1"}, headers{"x-a": "1"}, "no", ""},
		"x- counts, all":     {args{"x-match": "all-with-x", "x-a": "1"}, headers{}, "no", ""},
		"x- counts, any": {
			args{"x-match": "any-with-x", "x-a": "1"}, headers{"x-a": "1"}, "yes", "",
		},
		"the owner mark alone": {args{"x-managed-by": "dlxctl/shop"}, nil, "yes", ""},
		"the owner mark counts with x": {
			args{"x-match": "all-with-x", "x-managed-by": "dlxctl/shop"}, nil, "no", "",
		},
		"an integer of 8 bits":      {args{"n": int64(2)}, headers{"n": int8(2)}, "yes", ""},
		"an integer of 16 bits":     {args{"n": int64(2)}, headers{"n": int16(2)}, "yes", ""},
		"an integer of 32 bits":     {args{"n": int64(2)}, headers{"n": int32(2)}, "yes", ""},
		"an integer of 64 bits":     {args{"n": int64(2)}, headers{"n": int64(2)}, "yes", ""},
		"an integer without a sign": {args{"n": int64(2)}, headers{"n": uint8(2)}, "yes", ""},
		"another integer":           {args{"n": int64(2)}, headers{"n": int64(3)}, "no", ""},
		"a text is not an integer":  {args{"n": int64(2)}, headers{"n": "2"}, "no", ""},
		"an integer is not a text":  {args{"n": "2"}, headers{"n": int32(2)}, "no", ""},
		"a float for an integer":    {args{"n": int64(2)}, headers{"n": 2.0}, "yes", "no"},
		"an integer for a float":    {args{"n": 2.0}, headers{"n": int32(2)}, "yes", "no"},
		"a float with a fraction":   {args{"n": int64(2)}, headers{"n": 2.5}, "no", ""},
		"a float beyond all integers": {
			args{"n": int64(1<<63 - 1)}, headers{"n": float64(1 << 63)}, "no", "",
		},
		"the same float":                       {args{"n": 0.5}, headers{"n": 0.5}, "yes", ""},
		"a float of 32 bits":                   {args{"n": 0.5}, headers{"n": float32(0.5)}, "yes", ""},
		"a float of 32 bits is not that of 64": {args{"n": 0.1}, headers{"n": float32(0.1)}, "no", ""},
		"zero and minus zero": {
			args{"n": 0.0}, headers{"n": math.Copysign(0, -1)}, "yes", "unknown",
		},
		"a boolean":               {args{"b": true}, headers{"b": true}, "yes", ""},
		"the other boolean":       {args{"b": true}, headers{"b": false}, "no", ""},
		"a text is not a boolean": {args{"b": true}, headers{"b": "true"}, "no", ""},
		"bytes are a text":        {args{"s": "ab"}, headers{"s": []byte("ab")}, "yes", ""},
		"any value":               {args{"v": nil}, headers{"v": int32(7)}, "yes", ""},
		"any value, no header":    {args{"v": nil}, headers{"w": int32(7)}, "no", ""},
		"nothing for a text":      {args{"v": ""}, headers{"v": nil}, "no", ""},
		"a time, in seconds": {
			args{"t": int64(100)}, headers{"t": time.Unix(100, 0)}, "yes", "no",
		},
		"a time, in milliseconds": {
			args{"t": int64(100_000)}, headers{"t": time.Unix(100, 0)}, "no", "yes",
		},
		"a list of texts": {
			args{"l": list("a", "b")}, headers{"l": list("a", "b")}, "yes", "",
		},
		"a list in another order": {args{"l": list("a", "b")}, headers{"l": list("b", "a")}, "no", ""},
		"a longer list":           {args{"l": list("a")}, headers{"l": list("a", "b")}, "no", ""},
		"a list of integers": {
			args{"l": list(int64(1))}, headers{"l": list(int32(1))}, "unknown", "",
		},
		"a list is not a text": {args{"l": "a"}, headers{"l": list("a")}, "no", ""},
		"a text is not a list": {args{"l": list("a")}, headers{"l": "a"}, "no", ""},
		"a table": {
			args{"t": args{"a": "1"}}, headers{"t": headers{"a": "1"}}, "unknown", "",
		},
		"a table is not a text":            {args{"t": "a"}, headers{"t": headers{"a": "1"}}, "no", ""},
		"an empty table and an empty list": {args{"t": args{}}, headers{"t": list()}, "unknown", ""},
		"a list is not a table":            {args{"t": args{"a": "1"}}, headers{"t": list("a")}, "no", ""},
		"unknown, and another misses": {
			args{"a": "1", "t": args{"a": "1"}}, headers{"t": headers{"a": "1"}}, "no", "",
		},
		"unknown, and another is enough": {
			args{"x-match": "any", "a": "1", "t": args{}}, headers{"a": "1", "t": headers{}}, "yes", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.now == "" {
				tc.now = tc.old
			}
			b := bind("x", "", "q")
			b.Arguments = tc.binding
			have := topology.Topology{
				Exchanges: []topology.Exchange{exchange("x", topology.Headers)}, Queues: queues("q"),
				Bindings: []topology.Binding{b},
			}
			for version, want := range map[string]string{"3.10.8": tc.old, "4.0.5": tc.now, "4.3.6": tc.now, "": tc.now} {
				router := route.New(topology.State{Version: version, Have: have})
				if got := answer(router.Publish("x", "", tc.message)); got != want {
					t.Errorf("on %q: %s, want %s", version, got, want)
				}
			}
		})
	}
}

// answer says whether a message reaches a queue: yes, no or unknown.
func answer(r route.Result) string {
	switch {
	case len(r.Unknown) > 0:
		return "unknown"
	case len(r.Queues) > 0:
		return "yes"
	default:
		return "no"
	}
}

// A binding that is unknown leaves the alternate exchange unknown too.
func TestUnknownBindingBeforeAnAlternate(t *testing.T) {
	t.Parallel()
	unsure := topology.Binding{
		Source: "x", Destination: "a", DestinationType: topology.ToQueue,
		Arguments: topology.Arguments{"t": topology.Arguments{"k": "v"}},
	}
	router := route.New(topology.State{Have: topology.Topology{
		Exchanges: []topology.Exchange{exchange("x", topology.Headers, "rest"), exchange("rest", topology.Fanout)},
		Queues:    queues("a", "rest"), Bindings: []topology.Binding{unsure, bind("rest", "", "rest")},
	}})
	got := router.Publish("x", "", map[string]any{"t": map[string]any{"k": "v"}})
	want := []string{
		`whether binding x -> a (t={"k":"v"}) matches depends on AMQP types that it does not show: a`,
		"if no binding of exchange x matches, its alternate exchange gets the message: rest",
	}
	if d := cmp.Diff(want, unknowns(got.Unknown)); d != "" || len(got.Queues)+len(got.Lost) > 0 {
		t.Errorf("queues %q, lost %v, unknown (-want +got):\n%s", got.Queues, got.Lost, d)
	}
}
