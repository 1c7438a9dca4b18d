package management_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// manage returns a client for a target of brokertest, as it is for a user who configures only the
// two URLs: not an administrator, but a user with the tags that 'dlxctl rights' prints.
func manage(tb testing.TB, target brokertest.Target) *management.Client {
	tb.Helper()
	target = target.Tool(tb, "policymaker")
	return resolve(tb, broker.Config{URL: target.URL, API: target.API})
}

func resolve(tb testing.TB, c broker.Config) *management.Client {
	tb.Helper()
	e, err := c.Resolve()
	if err != nil {
		tb.Fatal(err)
	}
	m, err := management.New(e)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	return m
}

// apply creates objects, in the order given.
func apply(tb testing.TB, m *management.Client, objects ...topology.Object) {
	tb.Helper()
	for _, o := range objects {
		if err := m.Apply(tb.Context(), plan.Change{Action: plan.Create, After: o}); err != nil {
			tb.Fatalf("create %+v: %v", o, err)
		}
	}
}

// inspect returns the objects of the virtual host, without those that every virtual host has.
func inspect(tb testing.TB, m *management.Client) topology.Topology {
	tb.Helper()
	s, err := m.Inspect(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return managementtest.Own(s.Have)
}

func endpoint(t *testing.T, target brokertest.Target) broker.Endpoint {
	t.Helper()
	return managementtest.Endpoint(t, target)
}

// dial returns a connection that ends with the test.
func dial(t *testing.T, target brokertest.Target) *amqp.Conn {
	t.Helper()
	conn, err := amqp.Dial(t.Context(), endpoint(t, target))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
