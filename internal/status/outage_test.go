package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue in outage is named with the time at which that began, as far as processors tell. What
// they tell of a queue that cannot be in outage is not shown, as others may have written it.
func TestOutages(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s], outage: {}}, plain: {tiers: [1m]}}
queues:
  - {name: billing}
  - {name: mail}
  - {name: stock}
  - {name: audit, backoff: plain}
`)
	const waits = "shop.standard.retry.outage"
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.FixedZone("CET", 3600))
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 27, hour, minute, 0, 0, time.UTC) }
	for name, tc := range map[string]struct {
		messages int64
		told     map[string]topology.Began
		filter   []string
		want     []string
		out      string // the rows with a problem
	}{
		"begun": {
			messages: 1204, told: map[string]topology.Began{"billing": {At: at(1, 10)}},
			want: []string{"outage: billing: in outage since 02:10, 1,204 messages wait in " + waits + ", none is lost"}, out: "billing",
		},
		"found": {
			messages: 1, told: map[string]topology.Began{"billing": {At: at(1, 10), AtLeast: true}},
			want: []string{"outage: billing: in outage since at least 02:10, 1 message waits in " + waits + ", it is not lost"}, out: "billing",
		},
		"on the day before": {
			told: map[string]topology.Began{"billing": {At: at(-2, 10)}},
			want: []string{"outage: billing: in outage since 2026-11-26 23:10, and no message waits for its end yet"}, out: "billing",
		},
		"by a clock that is ahead": {
			told: map[string]topology.Began{"billing": {At: at(5, 0)}},
			want: []string{"outage: billing: in outage since 03:00, and no message waits for its end yet"}, out: "billing",
		},
		"of several": {
			messages: 70, told: map[string]topology.Began{"stock": {At: at(1, 10)}, "billing": {At: at(1, 40), AtLeast: true}},
			want: []string{"outage: in outage: billing since at least 02:40, stock since 02:10, 70 messages wait in " + waits + ", none is lost"},
			out:  "billing stock",
		},
		"of one that was not asked for": {
			told: map[string]topology.Began{"billing": {At: at(1, 10)}}, filter: []string{"mail"},
		},
		"that is made up": {
			told: map[string]topology.Began{"audit": {At: at(1, 10)}, "gone": {At: at(1, 10)}},
		},
		"that no processor tells of": {
			messages: 70,
			want:     []string{"outage: 70 messages wait in " + waits + " for the end of an outage of one or more of billing, mail, stock; none of them is lost"},
		},
		"that is not known yet": {
			messages: 2,
			want:     []string{"note outage: 2 messages wait in " + waits + " for the end of an outage of one or more of billing, mail, stock; none of them is lost"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{
				waits: {Ready: tc.messages},
			}}
			for _, q := range top.Topology.Queues {
				u := state.Usage[q.Name]
				u.Consumers = 1
				state.Usage[q.Name] = u
			}
			r := status.Make(top, state, status.Options{At: now, InOutage: tc.told, Filter: status.Filter{Queues: tc.filter}})
			if d := cmp.Diff(tc.want, texts(r)); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
			var out []string
			for _, w := range r.Works {
				if len(w.Problems) > 0 != !w.InOutageSince.IsZero() {
					t.Errorf("%s has the problems %v, since %s", w.Name, w.Problems, w.InOutageSince)
				}
				out = append(out, w.Problems...)
				if len(w.Problems) > 0 {
					out[len(out)-1] = w.Name
				}
			}
			if got := strings.Join(out, " "); got != tc.out {
				t.Errorf("in outage: %q", got)
			}
		})
	}
}

// Only failed queues whose processors may tell of an outage are asked.
func TestTelling(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
backoff: {a: {tiers: [10s], outage: {}}, b: {tiers: [1m]}, c: {tiers: [1m], outage: {}}, d: {tiers: [1m], outage: {}}}
queues:
  - {name: billing, backoff: a}
  - {name: mail, backoff: b}
  - {name: stock, backoff: c}
  - {name: audit, backoff: d}
`)
	state := topology.State{Have: top.Topology, Usage: map[string]topology.Usage{
		"shop.a.failed": {Consumers: 2}, "shop.b.failed": {Consumers: 2},
		"shop.c.failed": {}, "shop.d.failed": {ConsumersUnknown: true},
	}}
	if d := cmp.Diff([]string{"shop.a.failed", "shop.d.failed"}, status.Telling(top, state, status.Filter{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"shop.a.failed"}, status.Telling(top, state, status.Filter{Queues: []string{"billing"}})); d != "" {
		t.Error(d)
	}
}
