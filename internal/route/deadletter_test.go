package route_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// deadLettering gives a queue that dead-letters to an exchange, with a key if there is one.
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

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	stream := deadLettering("stream", "dlx", "a")
	stream.Arguments = stream.Arguments.With(topology.ArgQueueType, topology.Stream)
	have := topology.Topology{
		Exchanges: []topology.Exchange{exchange("dlx", topology.Direct), exchange("caught", topology.Direct, "rest"), exchange("rest", topology.Fanout)},
		Queues: append(queues("a", "b", "none", "by policy", "key by policy", "rest"),
			deadLettering("own keys", "dlx"), deadLettering("own key", "dlx", "b"), deadLettering("to alternate", "caught"),
			deadLettering("empty key", "dlx", ""), deadLettering("no exchange", "missing"), deadLettering("no binding", "dlx", "nope"),
			deadLettering("by name", "", "a"), deadLettering("to itself", "", "to itself"), stream,
			atLeastOnce(deadLettering("kept", "missing")), atLeastOnce(deadLettering("kept too", "dlx", "nope")),
			atLeastOnce(deadLettering("kept cycle", "", "kept cycle"))),
		Bindings: []topology.Binding{bind("dlx", "k", "a"), bind("dlx", "cc", "b"), bind("dlx", "b", "b"), bind("rest", "", "rest"), bind("dlx", "", "none")},
		Policies: []topology.Policy{
			{Name: "dead letters", Pattern: "policy$", ApplyTo: "queues", Priority: 1, Definition: topology.Arguments{
				"dead-letter-exchange": "dlx", "dead-letter-routing-key": "b",
			}},
			{Name: "elsewhere", Pattern: "^own keys$", ApplyTo: "all", Definition: topology.Arguments{"dead-letter-exchange": "missing"}},
			{Name: "not for queues", Pattern: ".*", ApplyTo: "exchanges", Priority: 2, Definition: topology.Arguments{"dead-letter-exchange": "dlx"}},
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
		"the keys of the message":         {queue: "own keys", key: "k", queues: []string{"a"}},
		"and those of CC":                 {queue: "own keys", key: "k", cc: []any{"cc"}, queues: []string{"a", "b"}},
		"a key of the queue instead":      {queue: "own key", key: "k", cc: []any{"cc"}, queues: []string{"b"}},
		"an empty key of the queue":       {queue: "empty key", key: "k", queues: []string{"none"}},
		"by policy":                       {queue: "by policy", key: "k", queues: []string{"b"}},
		"the alternate of the exchange":   {queue: "to alternate", key: "k", queues: []string{"rest"}},
		"the default exchange":            {queue: "by name", key: "k", queues: []string{"a"}},
		"no dead-letter exchange":         {queue: "none", lost: []string{"queue none has no dead-letter exchange"}},
		"a stream":                        {queue: "stream", lost: []string{"queue stream has no dead-letter exchange"}},
		"no such queue":                   {queue: "nope", lost: []string{"queue nope does not exist"}},
		"the exchange is missing":         {queue: "no exchange", lost: []string{"exchange missing does not exist"}},
		"nothing is bound":                {queue: "no binding", lost: []string{"exchange dlx has no binding that matches, and no alternate exchange"}},
		"at least once, missing":          {queue: "kept", stuck: []string{"exchange missing does not exist"}},
		"at least once, nothing is bound": {queue: "kept too", stuck: []string{"exchange dlx has no binding that matches, and no alternate exchange"}},
		"a rejected message to itself":    {queue: "to itself", queues: []string{"to itself"}},
		"an expired message to itself":    {queue: "to itself", reason: route.Expired, lost: []string{"the message died in to itself before and was not rejected since: the broker drops it"}},
		"too long, to itself":             {queue: "to itself", reason: route.MaxLen, lost: []string{"the message died in to itself before and was not rejected since: the broker drops it"}},
		"returned too often, to itself":   {queue: "to itself", reason: route.DeliveryLimit, lost: []string{"the message died in to itself before and was not rejected since: the broker drops it"}},
		"an expired message, at least once": {
			queue: "kept cycle", reason: route.Expired, stuck: []string{"the message died in kept cycle before and was not rejected since: the broker drops it"},
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
	const exchange, key, strategy, overflow = "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-overflow"
	for name, tc := range map[string]struct {
		kind         string
		args, policy args
		disabled     string
		want         route.DeadLettering
		none         bool
	}{
		"arguments":              {args: args{exchange: "a", key: "k"}, want: route.DeadLettering{Exchange: "a", Key: "k", HasKey: true}},
		"policy":                 {policy: args{"dead-letter-exchange": "p"}, want: route.DeadLettering{Exchange: "p", ExchangeBy: "policy"}},
		"each by itself":         {args: args{exchange: "a"}, policy: args{"dead-letter-exchange": "p", "dead-letter-routing-key": "k"}, want: route.DeadLettering{Exchange: "a", Key: "k", HasKey: true, KeyBy: "policy"}},
		"a key without exchange": {args: args{key: "k"}, none: true},
		"at least once":          {args: args{exchange: "a", strategy: "at-least-once", overflow: "reject-publish"}, want: route.DeadLettering{Exchange: "a", AtLeastOnce: true}},
		"by policy":              {args: args{exchange: "a"}, policy: args{"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}, want: route.DeadLettering{Exchange: "a", AtLeastOnce: true}},
		"a full queue drops":     {args: args{exchange: "a", strategy: "at-least-once"}, want: route.DeadLettering{Exchange: "a"}},
		"the policy says so":     {args: args{exchange: "a", strategy: "at-least-once", overflow: "reject-publish"}, policy: args{"overflow": "drop-head"}, want: route.DeadLettering{Exchange: "a"}},
		"without the feature":    {args: args{exchange: "a", strategy: "at-least-once", overflow: "reject-publish"}, disabled: "stream_queue", want: route.DeadLettering{Exchange: "a"}},
		"a key of another type":  {args: args{exchange: "a"}, policy: args{"dead-letter-routing-key": "k", "max-age": "1D"}, want: route.DeadLettering{Exchange: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{DisabledFlags: []string{tc.disabled}, Have: topology.Topology{
				Queues:   []topology.Queue{{Name: "q", Arguments: tc.args.With(topology.ArgQueueType, topology.Quorum)}},
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
	death := func(queue string, reason route.Reason) string { return queue + " " + string(reason) }
	for name, tc := range map[string]struct {
		version string
		headers map[string]any
		deaths  []string
		want    string
	}{
		"one": {
			version: "4.3.6", headers: map[string]any{"CC": []any{"c"}, "BCC": []any{"b"}}, deaths: []string{death("q", route.Rejected)},
			want: `"dlx" [k c b] CC=[c] x-first-death-exchange=amq.fanout x-first-death-queue=q x-first-death-reason=rejected ` +
				`x-last-death-exchange=amq.fanout x-last-death-queue=q x-last-death-reason=rejected death[q rejected 1 amq.fanout [k c]]`,
		},
		"one, up to 3.12": {
			version: "3.10.8", headers: map[string]any{"CC": []any{"c"}, "BCC": []any{"b"}}, deaths: []string{death("q", route.Rejected)},
			want: `"dlx" [k c b] CC=[c] x-first-death-exchange=amq.fanout x-first-death-queue=q x-first-death-reason=rejected ` +
				`death[q rejected 1 amq.fanout [k c]]`,
		},
		"a key of the queue leaves CC as a header": {
			version: "4.0.5", headers: map[string]any{"CC": []any{"c"}}, deaths: []string{death("keyed", route.Expired), death("q", route.Expired)},
			want: `"dlx" [new] CC=[c] x-first-death-exchange=amq.fanout x-first-death-queue=keyed x-first-death-reason=expired ` +
				`x-last-death-exchange=dlx x-last-death-queue=q x-last-death-reason=expired death[q expired 1 dlx [new]] death[keyed expired 1 amq.fanout [k c]]`,
		},
		"a key of the queue removes CC, up to 3.12": {
			version: "3.10.8", headers: map[string]any{"CC": []any{"c"}}, deaths: []string{death("keyed", route.Expired), death("q", route.Expired)},
			want: `"dlx" [new] x-first-death-exchange=amq.fanout x-first-death-queue=keyed x-first-death-reason=expired ` +
				`death[q expired 1 dlx [new]] death[keyed expired 1 amq.fanout [k c]]`,
		},
		"the newest first, counted by queue and reason": {
			version: "4.0.5", deaths: []string{death("q", route.Expired), death("r", route.Rejected), death("s", route.MaxLen), death("q", route.Expired)},
			want: `"dlx" [k] x-first-death-exchange=amq.fanout x-first-death-queue=q x-first-death-reason=expired x-last-death-exchange=dlx ` +
				`x-last-death-queue=q x-last-death-reason=expired death[q expired 2 amq.fanout [k]] death[s maxlen 1 dlx [k]] death[r rejected 1 dlx [k]]`,
		},
		"the others are reversed, up to 3.12": {
			version: "3.10.8", deaths: []string{death("q", route.Expired), death("r", route.Rejected), death("s", route.MaxLen)},
			want: `"dlx" [k] x-first-death-exchange=amq.fanout x-first-death-queue=q x-first-death-reason=expired ` +
				`death[s maxlen 1 dlx [k]] death[q expired 1 amq.fanout [k]] death[r rejected 1 dlx [k]]`,
		},
		"what a client published does not count": {
			version: "4.0.5", headers: map[string]any{"x-death": []any{died("q", route.Expired)}}, deaths: []string{death("q", route.Expired)},
			want: `"dlx" [k] x-first-death-exchange=amq.fanout x-first-death-queue=q x-first-death-reason=expired x-last-death-exchange=amq.fanout ` +
				`x-last-death-queue=q x-last-death-reason=expired death[q expired 1 amq.fanout [k]]`,
		},
		"what a client published counts, up to 3.12": {
			version: "3.10.8", headers: map[string]any{"x-death": []any{died("q", route.Expired)}}, deaths: []string{death("q", route.Expired)},
			want: `"dlx" [k] death[q expired 5 there [old]]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			router := route.New(topology.State{Version: tc.version, Have: topology.Topology{Queues: []topology.Queue{
				deadLettering("q", "dlx"), deadLettering("r", "dlx"), deadLettering("s", "dlx"), deadLettering("keyed", "dlx", "new"),
			}}})
			m := router.Publish("amq.fanout", "k", tc.headers).Message
			for _, d := range tc.deaths {
				queue, reason, _ := strings.Cut(d, " ")
				m = router.DeadLetter(queue, m, route.Reason(reason)).Message
			}
			if d := cmp.Diff(tc.want, fmt.Sprintf("%q %v %s", m.Exchange, m.Keys, visible(m.Headers))); d != "" {
				t.Errorf("message (-want +got):\n%s", d)
			}
		})
	}
}

// died gives an entry of x-death, as a client publishes it.
func died(queue string, reason route.Reason) map[string]any {
	return map[string]any{
		"queue": queue, "reason": string(reason), "count": int64(4), "exchange": "there", "routing-keys": []any{"old"},
	}
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
		"rejected, then expired":            {deaths: []string{"work rejected", "retry expired"}, want: "yes"},
		"expired, then expired":             {deaths: []string{"work expired", "retry expired"}, want: "no"},
		"returned too often, then expired":  {deaths: []string{"work delivery_limit", "retry expired"}, want: "no"},
		"a rejection does not last":         {deaths: []string{"work rejected", "retry expired", "work expired", "retry expired"}, want: "no"},
		"a rejection lasts, up to 3.12":     {version: "3.10.8", deaths: []string{"work rejected", "retry expired", "work expired"}, want: "yes"},
		"the same since 4.0":                {deaths: []string{"work rejected", "retry expired", "work expired"}, want: "no"},
		"rejected, by 3.13":                 {version: "3.13.7", deaths: []string{"work rejected", "retry expired"}, want: "unknown"},
		"rejected, without the feature":     {version: "4.0.5", disabled: "message_containers_deaths_v2", deaths: []string{"work rejected", "retry expired"}, want: "unknown"},
		"never rejected, by 3.13":           {version: "3.13.7", deaths: []string{"work expired", "retry expired"}, want: "no"},
		"a rejection is never cut, by 3.13": {version: "3.13.7", deaths: []string{"retry expired", "work rejected"}, want: "yes"},
		"a queue that it has not died in":   {deaths: []string{"work expired"}, want: "yes"},
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
