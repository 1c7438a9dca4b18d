package status_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/status"
	"github.com/dlxctl/dlxctl/topology"
)

func shop(t *testing.T) topology.Topology {
	t.Helper()
	top, _, err := spec.Load([]spec.Source{{Name: "f", Data: []byte(`
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s, {delay: 1m, attempts: 2}]}}
queues:
  - {name: billing, owner: team-billing, severity: page}
  - {name: audit, backoff: none, dead: shared}
  - {name: mail, type: classic, dead: shared}
`)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestMake(t *testing.T) {
	t.Parallel()
	top := shop(t)
	state := plan.State{VHost: "/", Version: "4.0.5", Have: top, Usage: map[string]plan.Usage{
		"billing":                 {Ready: 1, Unacknowledged: 2, Consumers: 3},
		"audit":                   {Consumers: 1},
		"mail":                    {Consumers: 1},
		"shop.standard.failed":    {Ready: 4},
		"shop.standard.retry.10s": {Ready: 5},
		"billing.dead":            {Ready: 6},
		"shop.unroutable":         {Ready: 1},
	}}
	want := status.Report{
		Topology: "shop", VHost: "/",
		Queues: []status.Queue{
			{Name: "billing", Role: "work", Backoff: "standard", Type: "quorum", Messages: 3, Unacknowledged: 2, Consumers: 3, Owner: "team-billing", Severity: "page"},
			{Name: "audit", Role: "work", Backoff: "none", Type: "quorum", Consumers: 1, Severity: "ticket"},
			{Name: "mail", Role: "work", Backoff: "standard", Type: "classic", Consumers: 1, Severity: "ticket"},
			{Name: "shop.standard.failed", Role: "failed", Backoff: "standard", Type: "quorum", Messages: 4},
			{Name: "shop.standard.retry.10s", Role: "retry", Backoff: "standard", Delay: 10 * time.Second, Type: "quorum", Messages: 5},
			{Name: "shop.standard.retry.1m", Role: "retry", Backoff: "standard", Delay: time.Minute, Type: "quorum"},
			{Name: "billing.dead", Role: "dead", Type: "quorum", Messages: 6, Owner: "team-billing", Severity: "page"},
			{Name: "shop.dead", Role: "dead", Type: "quorum"},
			{Name: "shop.unroutable", Role: "unroutable", Type: "quorum", Messages: 1},
		},
		Warnings: []plan.Warning{
			{Name: "no-processor", Text: "shop.standard.failed holds 4 messages and nobody reads it: run dlxctl process"},
			{Name: "unroutable", Text: "shop.unroutable holds 1 message that fitted nowhere: the header retry-error says why"},
		},
	}
	if d := cmp.Diff(want, status.Make(top, state)); d != "" {
		t.Errorf("report (-want +got):\n%s", d)
	}
}

// Nobody consumes, and the broker is not as the file says.
func TestWarnings(t *testing.T) {
	t.Parallel()
	top := shop(t)
	have := top
	have.Bindings = nil
	got := status.Make(top, plan.State{VHost: "/", Version: "4.0.5", Have: have}).Warnings
	want := []plan.Warning{
		{Name: "no-consumers", Text: "nobody consumes from billing, audit, mail"},
		{Name: "not-applied", Text: "the broker differs from the file in 11 places; run dlxctl plan"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

// A file without queues has nothing to be missing, and one difference is one place.
func TestAFileWithoutQueues(t *testing.T) {
	t.Parallel()
	top, _, err := spec.Load([]spec.Source{{Name: "f", Data: []byte("version: 1\nname: shop\n")}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	if got := status.Make(top, plan.State{VHost: "/", Version: "4.0.5"}); len(got.Queues) > 0 || len(got.Warnings) > 0 {
		t.Errorf("report: %+v", got)
	}
	left := topology.Queue{Name: "shop.unroutable", Durable: true, Arguments: topology.Arguments{"x-queue-type": "quorum", "x-managed-by": "dlxctl/shop"}}
	got := status.Make(top, plan.State{
		VHost: "/", Version: "4.0.5", Have: topology.Topology{Queues: []topology.Queue{left}},
		Usage: map[string]plan.Usage{"shop.unroutable": {Ready: 2}},
	})
	want := []plan.Warning{
		{Name: "unroutable", Text: "shop.unroutable holds 2 messages that fitted nowhere: the header retry-error says why"},
		{Name: "not-applied", Text: "the broker differs from the file in 1 place; run dlxctl plan"},
	}
	if d := cmp.Diff(want, got.Warnings); d != "" || len(got.Queues) != 1 {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

// Nothing is left out of the JSON, so that scripts need not ask.
func TestWriteJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := status.WriteJSON(&b, status.Report{Topology: "shop", VHost: "/", Queues: []status.Queue{{Name: "r", Role: "retry", Delay: time.Minute, Type: "quorum"}}}); err != nil {
		t.Fatal(err)
	}
	want := `{
  "version": 1,
  "topology": "shop",
  "vhost": "/",
  "queues": [
    {
      "name": "r",
      "role": "retry",
      "backoff": "",
      "delay": 60000,
      "type": "quorum",
      "messages": 0,
      "unacknowledged": 0,
      "consumers": 0,
      "owner": "",
      "severity": ""
    }
  ],
  "warnings": []
}
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
}
