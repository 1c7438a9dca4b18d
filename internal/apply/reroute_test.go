package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// rerouted is what changes under load: messages that a processor publishes with a count change
// their place with each variant of the file.
type rerouted struct {
	count    int64
	variants []string // of tiers and dead; the first is applied first
	places   []string
}

func routes() map[string]rerouted {
	return map[string]rerouted{
		"tiers": {
			1,
			[]string{
				"[1m, 2m]|own", "[2m]|own", "[1m]|own", "[2m, 1m, 3m]|own", "[{delay: 1m, attempts: 3}]|own", "[2m, 3m]|own",
			},
			[]string{"shop.s.retry.1m", "shop.s.retry.2m", "q.dead", "shop.unroutable"},
		},
		"dead letters": {
			topology.DeadLetterCount,
			[]string{"[1m]|own", "[1m]|shared", "[1m]|own", "[1m]|{queue: graves}", "[1m]|shared", "[1m]|{queue: graves}"},
			[]string{"q.dead", "shop.dead", "graves", "shop.unroutable"},
		},
	}
}

// newRoutes applies the first variant, and publishes with the count of a route until stop.
func newRoutes(t *testing.T, kind string, r rerouted) (s *stage, stop func()) {
	t.Helper()
	target := brokertest.VHost(t)
	s = &stage{target: target, consumer: target, kind: kind, confirmed: map[string]bool{}, places: r.places}
	s.file = func(variant string) string {
		tiers, dead, _ := strings.Cut(variant, "|")
		return fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s, backoff: s}
backoff: {s: {tiers: %s}}
exchanges: [{name: e}]
queues:
  - {name: q, dead: %s, bindings: [{exchange: e, key: k}]}
`, kind, tiers, dead)
	}
	s.connect(t, target)
	s.apply(t, s.m, r.variants[0], 0)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var publishers sync.WaitGroup
	headers := amqp091.Table{topology.DefaultCountHeader: r.count}
	s.publish(ctx, t, &publishers, 100*time.Millisecond, "shop.s.dlx", "@q", headers)
	return s, func() {
		cancel()
		publishers.Wait()
	}
}

// Under full load the tiers of a backoff and the dead-letter queue of a work queue change five
// times: no message is lost or duplicated, and none reaches the unroutable queue.
func TestRoutesChangeUnderLoad(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for route, r := range routes() {
		for _, kind := range []string{"quorum", "classic"} {
			t.Run(route+", "+kind, func(t *testing.T) {
				t.Parallel()
				s, stop := newRoutes(t, kind, r)
				for _, variant := range slices.Concat(r.variants[1:], r.variants[:1]) {
					s.apply(t, s.m, variant, 100*time.Millisecond)
				}
				stop()
				s.account(t, 0)
			})
		}
	}
}

// A change is stopped after each step, with the steps of other files between, and continued by
// another run: nothing is lost or duplicated.
func TestRouteChangeStoppedAfterEachStep(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for route, r := range routes() {
		for _, kind := range []string{"quorum", "classic"} {
			t.Run(route+", "+kind, func(t *testing.T) {
				t.Parallel()
				s, stop := newRoutes(t, kind, r)
				const settle = 50 * time.Millisecond
				for steps := range 6 {
					variant := func(n int) string { return r.variants[(steps+n)%len(r.variants)] }
					for n := range 3 { // each file takes the place of the one before in the middle of its change
						err := s.carry(t.Context(), &killer{Converger: s.m, left: steps}, load(t, s.file(variant(n))), settle)
						if err != nil && !errors.Is(err, errKilled) {
							t.Fatal(err)
						}
					}
					s.apply(t, s.m, variant(2), settle)
				}
				stop()
				s.account(t, 0)
			})
		}
	}
}

// laterOnly leaves the deletion of queues that are no longer in the file to another run, as apply
// does while they hold messages: the counts of the broker may not show these yet.
func laterOnly(p plan.Plan) plan.Plan {
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool {
		return c.Action == plan.Delete && c.Kind == topology.KindQueue
	})
	return p
}

// A change of a backoff is stopped where failures go by the next exchange alone, and the file after
// it adds the first match or removes the last one, which changes that exchange. The plan is blocked
// with a way out, and that way works.
func TestMatchAfterAnInterruptedReroute(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const match = "\n  - {match: '^svc', external: true, backoff: a}"
	for name, tc := range map[string]struct{ first, way, last string }{
		"the last match goes":      {"a" + match, "with an entry with match", "a"},
		"the first match is added": {"a", "without its entries with match", "a" + match},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			if !target.AtLeast("4.0") {
				t.Skip("before 4.0, match is refused")
			}
			s := &stage{target: target, consumer: target, kind: "classic"}
			s.file = func(variant string) string {
				backoff, match, _ := strings.Cut(variant, "\n")
				return s.backoffs(backoff) + match + "\n"
			}
			s.connect(t, target)
			s.apply(t, s.m, tc.first, 0)
			s.stopped(t, 2, strings.Replace(tc.first, "a", "b", 1), 0) // bound at the next one, and unbound

			want, allow := load(t, s.file(tc.last)), plan.Allow(topology.DropsRouting, topology.LosesMessages)
			planned := func() plan.Plan {
				state, err := s.m.Inspect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return plan.Make(want, state, plan.Options{})
			}
			p := planned()
			i := slices.IndexFunc(p.Changes, func(c plan.Change) bool { return c.Action == plan.Blocked })
			if i < 0 || !strings.Contains(p.Changes[i].Reason, tc.way) || len(p.Changes[i].Fixes) > 0 || p.Changes[i].Immutable {
				t.Fatalf("the changes are %+v", p.Changes)
			}
			s.apply(t, s.m, tc.first, 0) // the file with the backoff of last and the match of first
			brokertest.Eventually(t, "a plan of which the broker knows that nothing is used", func() bool {
				p = planned()
				return plan.Check(p, allow) == nil
			})
			if err := apply.ExecuteWithReroutes(t.Context(), s.m, want, p, 0, func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
			if p := laterOnly(planned()); !p.Empty() {
				t.Errorf("these changes are left: %+v", p.Changes)
			}
		})
	}
}
