package broker_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// manage gives the management API for a target of brokertest, as a user has it
// who gives nothing but the two URLs: not an administrator, but one with the tags that
// 'dlxctl rights' prints.
func manage(tb testing.TB, target brokertest.Target) *broker.Management {
	tb.Helper()
	target = target.Tool(tb, "policymaker")
	return resolve(tb, broker.Config{URL: target.URL, API: target.API})
}

func resolve(tb testing.TB, c broker.Config) *broker.Management {
	tb.Helper()
	e, err := c.Resolve()
	if err != nil {
		tb.Fatal(err)
	}
	m, err := broker.NewManagement(e)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	return m
}

// apply creates objects, in the order given.
func apply(tb testing.TB, m *broker.Management, objects ...any) {
	tb.Helper()
	for _, o := range objects {
		if err := m.Apply(tb.Context(), plan.Change{Action: plan.Create, After: o}); err != nil {
			tb.Fatalf("create %+v: %v", o, err)
		}
	}
}

// inspect gives the objects of the virtual host, without those that every
// virtual host has.
func inspect(tb testing.TB, m *broker.Management) topology.Topology {
	tb.Helper()
	s, err := m.Inspect(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return own(s.Have)
}
