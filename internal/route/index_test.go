package route_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// TestEachBindingMatchesByItself compares a router that has an index of many bindings with one
// router for each binding.
func TestEachBindingMatchesByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := world{}
		w.drawExchange(t, "x0")
		w.Exchanges[0].Internal = false
		for _, name := range []string{"q0", "q1", "q2", "q3"} {
			w.Queues = append(w.Queues, topology.Queue{Name: name})
		}
		for range 30 {
			w.drawBinding(t)
		}
		version := rapid.SampledFrom([]string{"3.10.8", "3.13.0", "4.3.6"}).Draw(t, "version")
		router := route.New(topology.State{Version: version, Have: w.Topology})
		for _, m := range rapid.SliceOfN(rapid.Custom(w.drawMessage), 100, 100).Draw(t, "messages") {
			got := router.Publish("x0", m.key, m.headers)
			var want []string
			unknown := false
			for _, b := range w.Bindings {
				if b.Source != "x0" || b.DestinationType != topology.ToQueue {
					continue
				}
				one := w.Topology
				one.Bindings = []topology.Binding{b}
				r := route.New(topology.State{Version: version, Have: one}).Publish("x0", m.key, m.headers)
				if !slices.ContainsFunc(r.Steps, leadsOn) {
					want = append(want, r.Queues...)
				}
				unknown = unknown || len(r.Unknown) > 0
			}
			slices.Sort(want)
			// Through another exchange the message may reach more.
			further := slices.ContainsFunc(got.Steps, leadsOn)
			want = slices.Compact(want)
			if !further && !slices.Equal(got.Queues, want) || unknown && len(got.Unknown) == 0 {
				t.Fatalf("key %q, headers %v: %q and %v, each binding by itself %q\n%s",
					m.key, m.headers, got.Queues, got.Unknown, want, w.text())
			}
		}
	})
}

// leadsOn reports whether a step leads to another exchange.
func leadsOn(s route.Step) bool { return s.DestinationType == topology.ToExchange }
