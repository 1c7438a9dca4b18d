package generate_test

import (
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
)

// A message that must stay in a queue of a delay has an alert also where the file has no backoff.
func TestWhatADelayHoldsIsWatched(t *testing.T) {
	t.Parallel()
	compiled := spectest.Compile(t, `version: 1
name: shop
exchanges: [{name: events}]
delays: [{name: shop.later, to: events}]
queues: [{name: work, backoff: none, bindings: [{exchange: events, key: a}]}]
`)
	rules := generate.Alerts(compiled, generate.AlertOptions{VHost: "/"}).Groups[0].Rules
	if !slices.ContainsFunc(rules, func(r generate.Rule) bool { return r.Alert == "DlxctlMessagesHeld" }) {
		t.Error("no alert tells of messages that are held")
	}
}
