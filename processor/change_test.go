package processor_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A topology is changed while messages are everywhere in its loop, and a
// processor that knows the old one is running: none is lost.
func TestChangesUnderLoad(t *testing.T) {
	t.Parallel()
	file := func(backoff, dead string) string {
		return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: quick}
backoff:
  quick: %s
exchanges:
  - {name: events}
queues:
  - {name: work, dead: %s, bindings: [{exchange: events, key: "#"}]}
`, backoff, dead)
	}
	base := file("{tiers: [50ms, 100ms]}", "own")
	for name, after := range map[string]string{
		"a tier more":               file("{tiers: [50ms, 100ms, 150ms]}", "own"),
		"a tier less":               file("{tiers: [50ms]}", "own"),
		"another delay":             file("{tiers: [50ms, 200ms]}", "own"),
		"another order":             file("{tiers: [100ms, 50ms]}", "own"),
		"more attempts in a tier":   file("{tiers: [50ms, 100ms], attemptsPerTier: 2}", "own"),
		"only some deaths retried":  file("{tiers: [50ms, 100ms], retryOn: [expired]}", "own"),
		"another dead-letter queue": file("{tiers: [50ms, 100ms]}", "shared"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, base)
			rejectAll(t, s, "work")
			published := s.load(t)
			old := s.processor(t)
			old.Log = s.quiet()
			stopOld := run(t, old)
			pause(t, 300*time.Millisecond)

			want, err := compile(after)
			if err != nil {
				t.Fatal(err)
			}
			s.change(t, want)
			pause(t, 200*time.Millisecond)
			stopOld()
			next := s.processor(t)
			next.Topology, next.Log = want, s.quiet()
			stop := run(t, next)
			pause(t, 300*time.Millisecond)
			n := published()

			dead, copies := map[string]int{}, 0
			eventually(t, fmt.Sprintf("all %d messages in a dead-letter queue", n), func() bool {
				for _, queue := range []string{"work.dead", "shop.dead"} {
					if queue == "shop.dead" && want.Works[0].Dead != queue {
						continue // there is no such queue
					}
					for id, c := range s.drain(t, queue) {
						dead[id] += c
						copies += c
					}
				}
				return len(dead) == n
			})
			stop()
			if left := s.drain(t, "shop.unroutable"); len(left) > 0 {
				t.Errorf("%d messages are in shop.unroutable", len(left))
			}
			t.Logf("%d published, %d lost, %d doubled", n, n-len(dead), copies-n)
		})
	}
}

// pause lets the load run on for a while.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// change applies what is allowed without consent: a queue with messages stays.
func (s *stage) change(t *testing.T, want topology.Topology) {
	t.Helper()
	m, err := broker.NewManagement(s.endpoint(t, s.target))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	state, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Allowed(plan.Make(want, state, plan.Options{}), nil)
	if p.Empty() && want.Loops[0].RetryOn == nil {
		t.Fatal("nothing changes")
	}
	err = plan.Execute(t.Context(), m, p, func(plan.Change) {})
	// The counts of the plan may be too old to know of messages in a dead-letter
	// queue that is to go: then its deletion, the last of the changes, is refused.
	if err != nil && !errors.Is(err, broker.ErrRefused) {
		t.Fatal(err)
	}
}
