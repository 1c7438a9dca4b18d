package route_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// deadLettering returns a queue that dead-letters to an exchange, with a key if there is one.
func deadLettering(name, exchange string, key ...string) topology.Queue {
	q := topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{
		topology.ArgQueueType: topology.Classic, topology.ArgDeadLetterExchange: exchange,
	}}
	for _, k := range key {
		q.Arguments[topology.ArgDeadLetterRoutingKey] = k
	}
	return q
}

// atLeastOnce makes a queue one that dead-letters at least once.
func atLeastOnce(q topology.Queue) topology.Queue {
	q.Arguments = q.Arguments.With(topology.ArgQueueType, topology.Quorum).
		With(topology.ArgDeadLetterStrategy, topology.AtLeastOnce).With(topology.ArgOverflow, topology.RejectPublish)
	return q
}

func unbound(exchange string) string {
	return route.End{Cause: route.NoBinding, Exchange: exchange}.String()
}

func cycle(queue string) string {
	return route.End{Cause: route.Cycle, Queue: queue}.String()
}

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	stream := deadLettering("stream", "dlx", "a")
	stream.Arguments = stream.Arguments.With(topology.ArgQueueType, topology.Stream)
	to := func(exchange string) topology.Arguments { return topology.Arguments{"dead-letter-exchange": exchange} }
	have := topology.Topology{
		Exchanges: []topology.Exchange{
			exchange("dlx", topology.Direct), exchange("caught", topology.Direct, "rest"), exchange("rest", topology.Fanout),
		},
		Queues: append(queues("a", "b", "none", "by policy", "rest"), stream,
			deadLettering("own keys", "dlx"), deadLettering("own key", "dlx", "b"),
			deadLettering("to alternate", "caught"), deadLettering("empty key", "dlx", ""),
			deadLettering("no exchange", "missing"), deadLettering("no binding", "dlx", "nope"),
			deadLettering("by name", "", "a"), deadLettering("to itself", "", "to itself"),
			atLeastOnce(deadLettering("kept", "missing")), atLeastOnce(deadLettering("kept too", "dlx", "nope")),
			atLeastOnce(deadLettering("kept cycle", "", "kept cycle"))),
		Bindings: []topology.Binding{
			bind("dlx", "k", "a"), bind("dlx", "cc", "b"), bind("dlx", "b", "b"), bind("dlx", "", "none"),
			bind("rest", "", "rest"),
		},
		Policies: []topology.Policy{
			{
				Name: "dead letters", Pattern: "policy$", ApplyTo: "queues", Priority: 1,
				Definition: to("dlx").With("dead-letter-routing-key", "b"),
			},
			{Name: "elsewhere", Pattern: "^own keys$", ApplyTo: "all", Definition: to("missing")},
			{Name: "not for queues", Pattern: ".*", ApplyTo: "exchanges", Priority: 2, Definition: to("dlx")},
		},
	}
	router := route.New(topology.State{Have: have})
	for name, tc := range map[string]struct {
		queue, key string
		cc         []any
		reason     route.Reason
		queues     []string
		lost       []string
		stuck      []string
	}{
		"the keys of the message": {queue: "own keys", key: "k", queues: []string{"a"}},
		"and those of CC": {
			queue: "own keys", key: "k", cc: []any{"cc"}, queues: []string{"a", "b"},
		},
		"a key of the queue instead":    {queue: "own key", key: "k", cc: []any{"cc"}, queues: []string{"b"}},
		"an empty key of the queue":     {queue: "empty key", key: "k", queues: []string{"none"}},
		"by policy":                     {queue: "by policy", key: "k", queues: []string{"b"}},
		"the alternate of the exchange": {queue: "to alternate", key: "k", queues: []string{"rest"}},
		"the default exchange":          {queue: "by name", key: "k", queues: []string{"a"}},
		"no dead-letter exchange": {
			queue: "none", lost: []string{"queue none has no dead-letter exchange"},
		},
		"a stream": {
			queue: "stream", lost: []string{"queue stream has no dead-letter exchange"},
		},
		"no such queue": {queue: "nope", lost: []string{"queue nope does not exist"}},
		"the exchange is missing": {
			queue: "no exchange", lost: []string{"exchange missing does not exist"},
		},
		"nothing is bound": {
			queue: "no binding", lost: []string{unbound("dlx")},
		},
		"at least once, missing": {queue: "kept", stuck: []string{"exchange missing does not exist"}},
		"at least once, nothing is bound": {
			queue: "kept too", stuck: []string{unbound("dlx")},
		},
		"a rejected message to itself": {queue: "to itself", queues: []string{"to itself"}},
		"an expired message to itself": {
			queue: "to itself", reason: route.Expired, lost: []string{cycle("to itself")},
		},
		"too long, to itself": {
			queue: "to itself", reason: route.MaxLen, lost: []string{cycle("to itself")},
		},
		"returned too often, to itself": {
			queue: "to itself", reason: route.DeliveryLimit, lost: []string{cycle("to itself")},
		},
		"an expired message, at least once": {
			queue: "kept cycle", reason: route.Expired, stuck: []string{cycle("kept cycle")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := map[string]any{}
			if tc.cc != nil {
				headers["CC"] = tc.cc
			}
			if tc.reason == "" {
				tc.reason = route.Rejected
			}
			got := router.DeadLetter(tc.queue, router.Publish("amq.fanout", tc.key, headers).Message, tc.reason)
			if strings.Join(got.Queues, " ") != strings.Join(tc.queues, " ") {
				t.Errorf("queues %q, want %q", got.Queues, tc.queues)
			}
			if d := cmp.Diff(tc.lost, ends(got.Lost)); d != "" {
				t.Errorf("lost (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.stuck, ends(got.Stuck)); d != "" {
				t.Errorf("stuck (-want +got):\n%s", d)
			}
		})
	}
}

// TestDeadLetteringInEffect has what decides: argument or policy, each key by itself, and what
// at-least-once needs.
func TestDeadLetteringInEffect(t *testing.T) {
	t.Parallel()
	type args = topology.Arguments
	own := args{topology.ArgDeadLetterExchange: "a"}
	kept := own.With(topology.ArgDeadLetterStrategy, "at-least-once").With(topology.ArgOverflow, "reject-publish")
	both := args{"dead-letter-exchange": "p", "dead-letter-routing-key": "k"}
	type result = route.DeadLettering
	for name, tc := range map[string]struct {
		args, policy args
		disabled     string
		want         result
		none         bool
	}{
		"arguments": {
			args: own.With(topology.ArgDeadLetterRoutingKey, "k"), want: result{Exchange: "a", Key: "k", HasKey: true},
		},
		"policy": {
			policy: both, want: result{Exchange: "p", ExchangeBy: "policy", Key: "k", HasKey: true, KeyBy: "policy"},
		},
		"each by itself": {
			args: own, policy: both, want: result{Exchange: "a", Key: "k", HasKey: true, KeyBy: "policy"},
		},
		"a key without exchange": {args: args{topology.ArgDeadLetterRoutingKey: "k"}, none: true},
		"at least once":          {args: kept, want: result{Exchange: "a", AtLeastOnce: true}},
		"by policy": {
			args: own, policy: args{"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"},
			want: result{Exchange: "a", AtLeastOnce: true},
		},
		"a full queue drops":    {args: kept.Without(topology.ArgOverflow), want: result{Exchange: "a"}},
		"the policy says so":    {args: kept, policy: args{"overflow": "drop-head"}, want: result{Exchange: "a"}},
		"without the feature":   {args: kept, disabled: "stream_queue", want: result{Exchange: "a"}},
		"a key of another type": {args: own, policy: both.With("max-age", "1D"), want: result{Exchange: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := topology.Queue{Name: "q", Arguments: tc.args.With(topology.ArgQueueType, topology.Quorum)}
			state := topology.State{DisabledFlags: []string{tc.disabled}, Have: topology.Topology{
				Queues:   []topology.Queue{q},
				Policies: []topology.Policy{{Name: "policy", Pattern: "q", ApplyTo: "queues", Definition: tc.policy}},
			}}
			got, ok := route.New(state).DeadLettering("q")
			if d := cmp.Diff(tc.want, got); d != "" || ok == tc.none {
				t.Errorf("%v (-want +got):\n%s", ok, d)
			}
		})
	}
}

// TestDeaths follows a message through deaths, and compares what a consumer sees then.
func TestDeaths(t *testing.T) {
	t.Parallel()
	copies := map[string]any{"CC": []any{"c"}, "BCC": []any{"b"}}
	again := map[string]any{"x-death": []any{map[string]any{
		"queue": "q", "reason": "expired", "count": int64(4), "exchange": "there", "routing-keys": []any{"old"},
	}}}
	for name, tc := range map[string]struct {
		version string
		headers map[string]any
		deaths  []string // queue and reason
		want    []string // exchange and keys, then the headers
	}{
		"one": {
			version: "4.3.6", headers: copies, deaths: []string{"q rejected"},
			want: []string{
				"dlx [k c b]", "CC [c]", "first amq.fanout q rejected", "last amq.fanout q rejected",
				"q rejected 1 amq.fanout [k c]",
			},
		},
		"one, up to 3.12": {
			version: "3.10.8", headers: copies, deaths: []string{"q rejected"},
			want: []string{"dlx [k c b]", "CC [c]", "first amq.fanout q rejected", "q rejected 1 amq.fanout [k c]"},
		},
		"a key of the queue leaves CC as a header": {
			version: "4.0.5", headers: copies, deaths: []string{"keyed expired", "q expired"},
			want: []string{
				"dlx [new]", "CC [c]", "first amq.fanout keyed expired", "last dlx q expired",
				"q expired 1 dlx [new]", "keyed expired 1 amq.fanout [k c]",
			},
		},
		"a key of the queue removes CC, up to 3.12": {
			version: "3.10.8", headers: copies, deaths: []string{"keyed expired", "q expired"},
			want: []string{
				"dlx [new]", "first amq.fanout keyed expired", "q expired 1 dlx [new]", "keyed expired 1 amq.fanout [k c]",
			},
		},
		"the newest first, counted by queue and reason": {
			version: "4.0.5", deaths: []string{"q expired", "r rejected", "s maxlen", "q expired"},
			want: []string{
				"dlx [k]", "first amq.fanout q expired", "last dlx q expired",
				"q expired 2 amq.fanout [k]", "s maxlen 1 dlx [k]", "r rejected 1 dlx [k]",
			},
		},
		"the others are reversed, up to 3.12": {
			version: "3.10.8", deaths: []string{"q expired", "r rejected", "s maxlen"},
			want: []string{
				"dlx [k]", "first amq.fanout q expired",
				"s maxlen 1 dlx [k]", "q expired 1 amq.fanout [k]", "r rejected 1 dlx [k]",
			},
		},
		"what a client published does not count": {
			version: "4.0.5", headers: again, deaths: []string{"q expired"},
			want: []string{
				"dlx [k]", "first amq.fanout q expired", "last amq.fanout q expired", "q expired 1 amq.fanout [k]",
			},
		},
		"what a client published counts, up to 3.12": {
			version: "3.10.8", headers: again, deaths: []string{"q expired"},
			want: []string{"dlx [k]", "q expired 5 there [old]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			router := route.New(topology.State{Version: tc.version, Have: topology.Topology{Queues: []topology.Queue{
				deadLettering("q", "dlx"), deadLettering("r", "dlx"), deadLettering("s", "dlx"),
				deadLettering("keyed", "dlx", "new"),
			}}})
			m := router.Publish("amq.fanout", "k", tc.headers).Message
			for _, d := range tc.deaths {
				queue, reason, _ := strings.Cut(d, " ")
				m = router.DeadLetter(queue, m, route.Reason(reason)).Message
			}
			if d := cmp.Diff(tc.want, seen(m)); d != "" {
				t.Errorf("message (-want +got):\n%s", d)
			}
		})
	}
}

// seen describes what a consumer sees of a dead letter.
func seen(m route.Message) []string {
	out := []string{fmt.Sprint(m.Exchange, " ", m.Keys)}
	if cc, ok := m.Headers["CC"]; ok {
		out = append(out, fmt.Sprint("CC ", cc))
	}
	for _, which := range []string{"first", "last"} {
		prefix := "x-" + which + "-death-"
		if queue, ok := m.Headers[prefix+"queue"]; ok {
			out = append(out, fmt.Sprintf("%s %v %v %v",
				which, m.Headers[prefix+"exchange"], queue, m.Headers[prefix+"reason"]))
		}
	}
	for _, v := range m.Headers["x-death"].([]any) {
		d := v.(map[string]any)
		out = append(out, fmt.Sprintf("%v %v %v %v %v",
			d["queue"], d["reason"], d["count"], d["exchange"], d["routing-keys"]))
	}
	return out
}

// TestCycles has which dead letters the broker cuts.
func TestCycles(t *testing.T) {
	t.Parallel()
	work, retry := deadLettering("work", "", "retry"), deadLettering("retry", "", "work")
	for name, tc := range map[string]struct {
		version, disabled string
		deaths            []string // queue and reason; the last one is answered
		want              string   // yes: it arrives
	}{
		"rejected, then expired":           {deaths: []string{"work rejected", "retry expired"}, want: "yes"},
		"expired, then expired":            {deaths: []string{"work expired", "retry expired"}, want: "no"},
		"returned too often, then expired": {deaths: []string{"work delivery_limit", "retry expired"}, want: "no"},
		"a rejection does not last": {
			deaths: []string{"work rejected", "retry expired", "work expired", "retry expired"}, want: "no",
		},
		"a rejection lasts, up to 3.12": {
			version: "3.10.8", deaths: []string{"work rejected", "retry expired", "work expired"},
			want: "yes",
		},
		"the same since 4.0": {
			deaths: []string{"work rejected", "retry expired", "work expired"}, want: "no",
		},
		"rejected, by 3.13": {
			version: "3.13.7", deaths: []string{"work rejected", "retry expired"}, want: "unknown",
		},
		"rejected, without the feature": {
			version: "4.0.5", disabled: "message_containers_deaths_v2",
			deaths: []string{"work rejected", "retry expired"}, want: "unknown",
		},
		"never rejected, by 3.13": {
			version: "3.13.7", deaths: []string{"work expired", "retry expired"}, want: "no",
		},
		"a rejection is never cut, by 3.13": {
			version: "3.13.7", deaths: []string{"retry expired", "work rejected"}, want: "yes",
		},
		"a queue that it has not died in": {deaths: []string{"work expired"}, want: "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			router := route.New(topology.State{
				Version: tc.version, DisabledFlags: []string{tc.disabled},
				Have: topology.Topology{Queues: []topology.Queue{work, retry}},
			})
			result := router.Publish("", "work", nil)
			for _, d := range tc.deaths {
				queue, reason, _ := strings.Cut(d, " ")
				result = router.DeadLetter(queue, result.Message, route.Reason(reason))
			}
			if got := answer(result); got != tc.want {
				t.Errorf("it arrives: %s, want %s", got, tc.want)
			}
		})
	}
}
