package try

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// prepared compiles a file, and prepares it for a trial.
func prepared(t *testing.T, file string, speed int) trial {
	t.Helper()
	return prepare(spectest.Compile(t, "version: 1\nname: shop\n"+file), speed)
}

func TestDelaysAreDivided(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tiers string
		speed int // zero is chosen
		want  []time.Duration
		fast  int
	}{
		"by the speed":               {"[10s, 1m]", 10, []time.Duration{time.Second, 6 * time.Second}, 10},
		"by 60":                      {"[30s, 1m]", 0, []time.Duration{500 * time.Millisecond, time.Second}, 60},
		"not below the least":        {"[1s, 200ms]", 60, []time.Duration{LeastDelay, LeastDelay}, 60},
		"never longer than the file": {"[0s, 7ms]", 60, []time.Duration{0, 7 * time.Millisecond}, 60},
		"a day does not take long":   {"[1m, 1d]", 0, []time.Duration{LeastDelay, 9990 * time.Millisecond}, 8646},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "backoff: {b: {tiers: " + tc.tiers + "}}\nqueues: [{name: q, backoff: b}]\n"
			tr := prepared(t, file, tc.speed)
			var tried, ttls []time.Duration
			for _, tier := range tr.topology.Backoffs[0].Tiers {
				tried = append(tried, tier.Delay)
				i := slices.IndexFunc(tr.topology.Queues, func(q topology.Queue) bool { return q.Name == tier.Queue })
				ttl, _ := tr.topology.Queues[i].Arguments[topology.ArgMessageTTL].(int64)
				ttls = append(ttls, time.Duration(ttl)*time.Millisecond)
			}
			if d := cmp.Diff(tc.want, tried); d != "" || tr.speed != tc.fast {
				t.Errorf("with speed %d, want %d (-want +got):\n%s", tr.speed, tc.fast, d)
			}
			if d := cmp.Diff(tc.want, ttls); d != "" {
				t.Errorf("the retry queues (-want +got):\n%s", d)
			}
		})
	}
}

// What other teams declare gets a substitute, so that nothing is missing in the virtual host.
// A trial counts dead letters, also those that the broker would delete.
func TestDeadLettersStay(t *testing.T) {
	t.Parallel()
	tr := prepared(t, "queues: [{name: q, backoff: none, dead: {queue: gone, arguments: {x-message-ttl: 0, x-expires: 9}}}]\n", 0)
	i := slices.IndexFunc(tr.topology.Queues, func(q topology.Queue) bool { return q.Name == "gone" })
	if tr.topology.Queues[i].Arguments.HasAny(topology.ArgMessageTTL, topology.ArgExpires) || len(tr.notes) != 1 {
		t.Errorf("%v, with the notes %q", tr.topology.Queues[i].Arguments, tr.notes)
	}
}

func TestExternalObjectsGetSubstitutes(t *testing.T) {
	t.Parallel()
	const file = `
cluster: production
backoff: {b: {tiers: [1s]}}
exchanges: [{name: bus, external: true}, {name: docs, external: true}, {name: fan, type: fanout, external: true}]
queues:
  - {name: crm, external: true, backoff: b, bindings: [{exchange: bus, key: "a.#"}, {exchange: docs, headers: {kind: pdf}}]}
  - {name: mail, backoff: b, replaces: mail_old, dead: {queue: graveyard, external: true}, bindings: [{exchange: fan}]}
`
	c := spectest.Compile(t, "version: 1\nname: shop\n"+file)
	tr := prepare(c, 60)
	types := map[string]string{}
	for _, e := range tr.topology.Exchanges {
		types[e.Name] = e.Type
		if owner, owned := topology.Owner(e.Arguments); e.External || !e.Durable || !owned || owner != "shop" {
			t.Errorf("exchange %s is not of the trial: %+v", e.Name, e)
		}
	}
	for _, q := range tr.topology.Queues {
		types[q.Name] = q.Type()
		if owner, owned := topology.Owner(q.Arguments); q.External || !q.Durable || !owned || owner != "shop" {
			t.Errorf("queue %s is not of the trial: %+v", q.Name, q)
		}
	}
	for name, want := range map[string]string{
		"bus": topology.Topic, "docs": topology.Headers, "fan": topology.Fanout, "graveyard": topology.Classic,
	} {
		if types[name] != want {
			t.Errorf("%s is of type %q, want %q", name, types[name], want)
		}
	}
	if len(tr.notes) != 5 || tr.topology.Cluster != "" {
		t.Errorf("cluster %q, notes %q; want none, and one for each of 5 substitutes", tr.topology.Cluster, tr.notes)
	}
	if again := spectest.Compile(t, "version: 1\nname: shop\n"+file); !cmp.Equal(c, again) {
		t.Errorf("the topology of the caller has changed:\n%s", cmp.Diff(again, c))
	}
}

// Messages are published to an exchange from which the router leads them to the queue.
func TestWayTo(t *testing.T) {
	t.Parallel()
	const exchanges = `
backoff: {b: {tiers: [1s]}}
exchanges:
  - {name: events}
  - {name: jobs, type: direct}
  - {name: all, type: fanout}
  - {name: docs, type: headers}
  - {name: spread, type: x-consistent-hash}
  - {name: inner, internal: true, bindings: [{exchange: events, key: "order.*"}]}
queues:
  - {name: q, backoff: b, bindings: `
	for binding, want := range map[string]way{
		`[{exchange: events, key: "order.*.paid"}]`: {exchange: "events", key: "order.any.paid"},
		`[{exchange: events, key: "#"}]`:            {exchange: "events", key: "any"},
		`[{exchange: jobs, key: "a*b"}]`:            {exchange: "jobs", key: "a*b"},
		`[{exchange: all}]`:                         {exchange: "all"},
		`[{exchange: docs, headers: {kind: pdf, pages: 2}}]`: {
			exchange: "docs", headers: map[string]any{"kind": "pdf", "pages": int64(2)},
		},
		`[{exchange: docs, match: any, headers: {kind: pdf}}]`: {exchange: "docs", headers: map[string]any{"kind": "pdf"}},
		// A client may not publish to it.
		`[{exchange: inner, key: "order.placed"}]`: {exchange: "events", key: "order.placed"},
		`[{exchange: inner, key: "#"}]`:            {exchange: "events", key: "order.any"},
		// The first binding that works is the one.
		`[{exchange: spread, key: "1"}, {exchange: jobs, key: k}]`: {exchange: "jobs", key: "k"},
		`[{exchange: spread, key: "1"}]`: {
			key: "q", why: "no message was found that its bindings certainly route to it",
		},
		`[]`: {key: "q", why: "the file has no binding of it"},
	} {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			tr := prepared(t, exchanges+binding+"}\n", 60)
			router := route.New(topology.State{Have: tr.topology.Topology})
			got := wayTo(tr.topology, router, "q")
			if want.headers == nil {
				want.headers = map[string]any{}
			}
			if got.headers == nil {
				got.headers = map[string]any{}
			}
			if d := cmp.Diff(want, got, cmp.AllowUnexported(way{})); d != "" {
				t.Errorf("wayTo (-want +got):\n%s", d)
			}
			if to := router.Publish(got.exchange, got.key, got.headers); !slices.Contains(to.Queues, "q") {
				t.Errorf("%+v reaches %q, not q", got, to.Queues)
			}
		})
	}
}
