package generate_test

import (
	"encoding/json"
	"slices"
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
	data, err := json.Marshal(generate.MakeDashboard(compiled, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	if s := string(data); strings.Contains(s, "svc") || !strings.Contains(s, "shop\\\\\\\\.dead") {
		t.Errorf("the dashboard leaves out shop.dead, or takes a pattern for a name: %s", s)
	}
}

// An owner or a queue with the name of another user gets a user of its own: permissions that are
// set for a user replace those before. A look at a dead-letter queue of others may take one more.
func TestUsersOfTheirOwn(t *testing.T) {
	t.Parallel()
	grants := generate.Rights(spectest.Compile(t, `version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
queues:
  - {name: mine, backoff: standard, owner: processor}
  - {name: publisher, backoff: standard, dead: {queue: dlq, external: true}}
`))
	users := map[string]generate.Grant{}
	for _, g := range grants {
		if _, twice := users[g.User]; twice {
			t.Errorf("the user %s is there twice", g.User)
		}
		users[g.User] = g
	}
	for _, name := range []string{"processor-services", "publisher-services"} {
		if len(users[name].Configure) != 1 {
			t.Errorf("the user of the services is %+v", users[name])
		}
	}
	if note := users["desk-reader"].Note; !strings.Contains(note, "takes write on the default exchange") {
		t.Errorf("the note is %q", note)
	}
}

// The processor may see whether the dead-letter queue of a match exists: it waits for that.
func TestTheProcessorSeesDeadLettersOfAMatch(t *testing.T) {
	t.Parallel()
	compiled := spectest.Compile(t, `version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
queues:
  - {match: '^svc[.]', external: true, backoff: standard, dead: {queue: graveyard}}
  - {match: '^sys[.]', external: true, backoff: standard}
`)
	for _, g := range generate.Rights(compiled) {
		if g.User != "processor" {
			continue
		}
		for _, queue := range []string{"graveyard", `shop\.dead`} {
			if !slices.Contains(g.Write, queue) {
				t.Errorf("it has no right on %s: %v", queue, g.Write)
			}
		}
	}
}
