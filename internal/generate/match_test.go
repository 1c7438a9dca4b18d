package generate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
)

// The severity and the dead letters of queues that a match covers have alerts and are on the
// dashboard. No expression takes the pattern for the name of a queue.
func TestWhatAMatchCoversIsWatched(t *testing.T) {
	t.Parallel()
	compiled := spectest.Compile(t, `version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
exchanges: [{name: events}]
queues:
  - {name: billing, backoff: standard, bindings: [{exchange: events, key: order.placed}]}
  - {match: '^svc[.]', external: true, backoff: standard, owner: platform, severity: page}
`)
	rules := generate.Alerts(compiled, generate.AlertOptions{VHost: "/"}).Groups[0].Rules
	var paged, waiting bool
	for _, r := range rules {
		if strings.Contains(r.Expr, "svc") {
			t.Errorf("%s takes a pattern for a name: %s", r.Alert, r.Expr)
		}
		paged = paged || r.Alert == "DlxctlDeadLetters" && r.Labels["severity"] == "page"
		waiting = waiting || r.Alert == "DlxctlDeadLettersWaiting" && r.Labels["owner"] == "platform" &&
			strings.Contains(r.Expr, `"shop.dead"`)
	}
	if !paged || !waiting {
		t.Errorf("an alert pages: %t, one is about shop.dead: %t", paged, waiting)
	}
	data, err := json.Marshal(generate.MakeDashboard(compiled, "/"))
	if err != nil {
		t.Fatal(err)
	}
	if s := string(data); strings.Contains(s, "svc") || !strings.Contains(s, "shop\\\\\\\\.dead") {
		t.Errorf("the dashboard leaves out shop.dead, or takes a pattern for a name: %s", s)
	}
}
