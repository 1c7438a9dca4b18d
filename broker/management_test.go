package broker_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// manage gives the management API for a target of brokertest, as a user has it
// who gives nothing but the two URLs.
func manage(t testing.TB, target brokertest.Target) *broker.Management {
	t.Helper()
	return resolve(t, broker.Config{URL: target.URL, API: target.API})
}

func resolve(t testing.TB, c broker.Config) *broker.Management {
	t.Helper()
	e, err := c.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	m, err := broker.NewManagement(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// apply creates objects, in the order given.
func apply(t testing.TB, m *broker.Management, objects ...any) {
	t.Helper()
	for _, o := range objects {
		if err := m.Apply(t.Context(), plan.Change{Action: plan.Create, After: o}); err != nil {
			t.Fatalf("create %+v: %v", o, err)
		}
	}
}

// inspect gives the objects of the virtual host, without those that every
// virtual host has.
func inspect(t testing.TB, m *broker.Management) topology.Topology {
	t.Helper()
	s, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return own(s.Have)
}
