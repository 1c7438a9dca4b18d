package processor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A topology is changed while messages are everywhere in its loop, and a
// processor that knows the old one is running: none is lost.
func TestChangesUnderLoad(t *testing.T) {
	brokertest.OnNewestLine(t)
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
	two := func(backoff string) string {
		return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: %s, deadLetterBy: policy}
backoff: {quick: {tiers: [50ms, 100ms]}, slow: {tiers: [80ms, 160ms, 10ms]}}
exchanges: [{name: events}]
queues: [{name: work, bindings: [{exchange: events, key: "#"}]}]
`, backoff)
	}
	base := file("{tiers: [50ms, 100ms]}", "own")
	for name, tc := range map[string]struct {
		before, after string
		// stopped says that the processor ends before the change, as it must;
		// lasting, that it goes on with the old file next to the new one.
		stopped, lasting bool
	}{
		"another count header": {
			before: base,
			after:  strings.Replace(base, "name: shop", "name: shop\ncountHeader: tries", 1), stopped: true,
		},
		"another backoff, by policy": {before: two("quick"), after: two("slow"), lasting: true},
		"other bindings":             {before: base, after: strings.Replace(base, `key: "#"`, `keys: ["*", "*.#"]`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changeUnderLoad(t, tc.before, tc.after, tc.stopped, tc.lasting)
		})
	}
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
			changeUnderLoad(t, base, after, false, false)
		})
	}
}

// changeUnderLoad applies one file after another while messages are published
// and rejected, and expects each of them in a dead-letter queue.
func changeUnderLoad(t *testing.T, before, after string, stopped, lasting bool) {
	t.Helper()
	s := newStage(t, before)
	rejectAll(t, s, "work")
	published := brokertest.PublishEvery(t, s.ch, "events", "a", brokertest.Pause(2*time.Millisecond))
	old := s.processor(t)
	old.Log = s.quiet()
	stopOld := run(t, old)
	// now there are messages everywhere
	brokertest.Eventually(t, "a dead letter", func() bool { return s.ready(t, "work.dead") > 0 })

	want, err := compile(after)
	if err != nil {
		t.Fatal(err)
	}
	if stopped {
		stopOld()
		awaitNoConsumers(t, s, "shop.quick.failed")
	}
	s.change(t, want)
	pause(t, 200*time.Millisecond)
	if !stopped && !lasting {
		stopOld()
	}
	next := s.processor(t)
	next.Topology, next.Log = want, s.quiet()
	stop := run(t, next)
	pause(t, 300*time.Millisecond)
	n := published()

	dead, copies := map[string]int{}, 0
	brokertest.Eventually(t, fmt.Sprintf("all %d messages in a dead-letter queue", n), func() bool {
		for _, queue := range []string{"work.dead", "shop.dead"} {
			if queue == "shop.dead" && want.WorkQueues[0].DeadLetterQueue != queue {
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
	if lasting {
		stopOld()
	}
	if left := s.drain(t, "shop.unroutable"); len(left) > 0 {
		t.Errorf("%d messages are in shop.unroutable", len(left))
	}
	t.Logf("%d published, %d lost, %d doubled", n, n-len(dead), copies-n)
}

// awaitNoConsumers waits until a queue has no consumer.
func awaitNoConsumers(t *testing.T, s *stage, queue string) {
	t.Helper()
	brokertest.Eventually(t, "no consumer on "+queue, func() bool { return s.consumers(t, queue) == 0 })
}

// pause lets the load run on for a while.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// change applies what costs no message: a queue with messages or consumers
// stays. Bindings may go, as the new ones come before.
func (s *stage) change(t *testing.T, want topology.Compiled) {
	t.Helper()
	m := managementtest.Client(t, s.target)
	var p plan.Plan
	blocked := ""
	// When a queue is slow to say how many consumers it has, statistics show those that have gone.
	brokertest.Eventually(t, "no change to be blocked", func() bool {
		state, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Some counts are old enough to know of the load, and some are not. Without them
		// each queue that is to go is tried.
		for q, u := range state.Usage {
			state.Usage[q] = topology.Usage{Consumers: u.Consumers}
		}
		p, blocked = plan.Make(want, state, plan.Options{}), ""
		for _, c := range p.Changes {
			if c.Action == plan.Blocked {
				blocked = fmt.Sprintf("%s %s: %s", c.Kind, c.Name, c.Reason)
			}
		}
		return blocked == ""
	}, &blocked)
	p = plan.Allowed(p, plan.Allow(topology.DropsRouting))
	if p.Empty() && want.Backoffs[0].RetryOn == nil {
		t.Fatal("nothing changes")
	}
	err := apply.ExecuteWithReroutes(t.Context(), m, want, p, 50*time.Millisecond, func(plan.Change) {})
	// The deletion of a queue that holds messages, the last of the changes, is refused.
	if err != nil && !errors.Is(err, broker.ErrRefused) {
		t.Fatal(err)
	}
}
