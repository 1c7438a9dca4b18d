// Package managementtest gives tests the management API of a broker of brokertest.
package managementtest

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// Endpoint returns how the program reaches a target.
func Endpoint(tb testing.TB, target brokertest.Target) broker.Endpoint {
	tb.Helper()
	e, err := broker.Config{URL: target.URL, API: target.API}.Resolve()
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// Client returns a client for a target, which is closed when the test ends.
func Client(tb testing.TB, target brokertest.Target) *management.Client {
	tb.Helper()
	m, err := management.New(Endpoint(tb, target))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	return m
}

// Own leaves out the exchanges that every virtual host has.
func Own(t topology.Topology) topology.Topology {
	kept := t
	kept.Exchanges = nil
	for _, e := range t.Exchanges {
		if !strings.HasPrefix(e.Name, "amq.") {
			kept.Exchanges = append(kept.Exchanges, e)
		}
	}
	return kept
}
