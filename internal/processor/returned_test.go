package processor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// tiersOf returns a file whose queue work has a backoff of these tiers.
func tiersOf(kind, tiers string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s, backoff: quick}
backoff: {quick: {tiers: %s}, slow: {tiers: [1h, 2h]}}
exchanges: [{name: events}]
queues:
  - {name: work, bindings: [{exchange: events, key: "#"}]}
  - {name: late, backoff: slow, bindings: [{exchange: events, key: nothing}]}
`, kind, tiers)
}

// carry applies a file, and leaves what holds messages.
func (s *stage) carry(t *testing.T, file string) topology.Compiled {
	t.Helper()
	want, err := compile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := managementtest.Client(t, s.target)
	state, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Allowed(plan.Make(want, state, plan.Options{}), plan.Allow(topology.DropsRouting))
	err = apply.ExecuteWithReroutes(t.Context(), m, want, p, 0, func(plan.Change) {})
	if err != nil && !errors.Is(err, broker.ErrRefused) {
		t.Fatal(err)
	}
	return want
}

// monitored starts a processor of a file, and gives what it has counted.
func (s *stage) monitored(t *testing.T, file topology.Compiled) (totals func() monitor.Totals, stop func()) {
	t.Helper()
	p := s.processor(t)
	p.Topology, p.Log, p.Monitor = file, s.quiet(), monitor.New("")
	return p.Monitor.Totals, run(t, p)
}

// buried takes n messages out of the dead-letter queue.
func (s *stage) buried(t *testing.T, n int) []amqp091.Delivery {
	t.Helper()
	var all []amqp091.Delivery
	for range n {
		all = append(all, s.bury(t, "work.dead"))
	}
	return all
}

// A backoff loses tiers while a processor with the previous file continues, alone and with one that
// has the new file: what it puts into a tier that is gone is a dead letter, which is reported, has
// the count of a dead letter and the history of its last failure.
func TestFewerTiersThanTheProcessorHas(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, kind := range []string{topology.Quorum, topology.Classic} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, both files: %t", kind, both), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, tiersOf(kind, "[50ms, 60ms, 70ms]"))
				next := s.carry(t, tiersOf(kind, "[50ms]"))
				reported, stop := s.monitored(t, s.topology)
				fromNext, stopNext := func() monitor.Totals { return monitor.Totals{} }, func() {}
				if both {
					fromNext, stopNext = s.monitored(t, next)
				}
				rejectAll(t, s, "work")
				const n = 100
				for i := range n {
					s.publish(t, "events", "order.placed", amqp091.Publishing{
						MessageId: fmt.Sprint(i), Headers: amqp091.Table{"CC": []any{"other"}, "mine": "kept"},
						Expiration: "60000",
					})
				}
				seen := map[string]bool{}
				for _, m := range s.buried(t, n) {
					seen[m.MessageId] = true
					got := fmt.Sprintln(m.RoutingKey, m.Headers["count"], m.Headers["retry-attempts"],
						m.Headers["retry-reason"], m.Headers["retry-routing-key"], m.Headers["retry-exchange"],
						m.Headers["retry-cc"], m.Headers["CC"], m.Headers["retry-expiration"], m.Headers["mine"])
					want := fmt.Sprintln(
						"order.placed", -1, 2, "rejected", "order.placed", "events", "[other]", "[@work]", "60000", "kept")
					if got != want {
						t.Fatalf("a dead letter has\n%swant\n%s", got, want)
					}
				}
				brokertest.Eventually(t, "a report of each dead letter", func() bool {
					return reported().DeadLettered+fromNext().DeadLettered >= n
				}, reported, fromNext)
				stop()
				stopNext()
				old, other := reported(), fromNext()
				if old.DeadLettered+other.DeadLettered != n || len(seen) != n || s.ready(t, "work.dead") != 0 {
					t.Errorf("%d of %d messages are dead; reported: %+v and %+v", len(seen), n, old, other)
				}
				if left := s.drain(t, "shop.unroutable"); len(left) > 0 || old.Unroutable+other.Unroutable > 0 {
					t.Errorf("%d messages are in shop.unroutable", len(left))
				}
			})
		}
	}
}

// What reaches a retry exchange with a count that no tier has, of any type and value, comes back to
// the failed queue through it, and is a dead letter. Without an address it goes to the unroutable
// queue. A message that came back to another backoff waits there for the same attempt.
func TestEveryCountThatNoTierHasComesBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{topology.Quorum, topology.Classic} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, tiersOf(kind, "[50ms]"))
			counts := []any{
				nil, int64(0), int64(-7), int64(1) << 40, "1", "-1", true, 0.5, int32(2), amqp091.Table{"count": int64(1)},
			}
			for i, count := range counts {
				s.publish(t, "shop.quick.dlx", "order.placed", amqp091.Publishing{
					MessageId: fmt.Sprint(i),
					Headers:   amqp091.Table{"CC": []any{"@work"}, "count": count, "retry-queue": "work"},
				})
			}
			brokertest.Eventually(t, "the messages in the failed queue", func() bool {
				return s.ready(t, "shop.quick.failed") == len(counts)
			})
			look := s.take(t, "shop.quick.failed")
			if look.Exchange != "shop.quick.dlx" || look.RoutingKey != "order.placed" ||
				fmt.Sprint(look.Headers["CC"]) != "[@work]" {
				t.Errorf("it came by %q, key %q, CC %v", look.Exchange, look.RoutingKey, look.Headers["CC"])
			}
			if err := look.Nack(false, true); err != nil {
				t.Fatal(err)
			}
			s.publish(t, "shop.quick.dlx", "@work", amqp091.Publishing{MessageId: "by its key"})
			s.publish(t, "shop.quick.dlx", "order.placed", amqp091.Publishing{
				MessageId: "of another backoff",
				Headers: amqp091.Table{
					"CC": []any{"@late"}, "count": int32(2), "retry-queue": "late", "retry-attempts": int64(2),
				},
			})
			s.publish(t, "shop.quick.dlx", "order.placed", amqp091.Publishing{MessageId: "without an address"})
			totals, stop := s.monitored(t, s.topology)
			var ids []string
			for _, m := range s.buried(t, len(counts)+1) {
				ids = append(ids, m.MessageId)
				if m.Headers["count"] != int32(-1) {
					t.Errorf("a dead letter has count=%v", m.Headers["count"])
				}
			}
			m := s.bury(t, "shop.slow.retry.2h")
			if m.MessageId != "of another backoff" || m.Exchange != "shop.slow.dlx" || m.Headers["retry-attempts"] != int64(2) {
				t.Errorf("%q waits by %s with %v", m.MessageId, m.Exchange, m.Headers)
			}
			brokertest.Eventually(t, "the reports", func() bool { return totals().DeadLettered == int64(len(counts)+1) }, totals)
			stop()
			slices.Sort(ids)
			if ids = slices.Compact(ids); len(ids) != len(counts)+1 || s.ready(t, "work.dead") > 0 {
				t.Errorf("dead are %s", strings.Join(ids, ", "))
			}
			if m := s.bury(t, "shop.unroutable"); m.MessageId != "without an address" {
				t.Errorf("%q is unroutable", m.MessageId)
			}
		})
	}
}

// A processor with another count header than the broker's makes each message a dead letter at most
// once, and then moves it to the unroutable queue: nothing circulates. Nor does a message that
// waits with the broker's header already, by which tiers go on to take it.
func TestAnotherCountHeaderEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, tiersOf(topology.Quorum, "[50ms]"))
	file := strings.Replace(tiersOf(topology.Quorum, "[50ms]"), "name: shop", "name: shop\ncountHeader: tries", 1)
	old, err := compile(file)
	if err != nil {
		t.Fatal(err)
	}
	totals, stop := s.monitored(t, old)
	rejectAll(t, s, "work")
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m"})
	m := s.bury(t, "shop.unroutable")
	stop()
	if got := totals(); m.MessageId != "m" || got.Retried != 1 || got.DeadLettered != 1 || got.Unroutable != 1 {
		t.Errorf("%q is unroutable after %+v", m.MessageId, got)
	}
	if why := fmt.Sprint(m.Headers["retry-error"]); !strings.Contains(why, "no binding for the dead letters") {
		t.Errorf("the error is %q", why)
	}
	s = newStage(t, tiersOf(topology.Quorum, "[1s, 50ms]"))
	totals, stop = s.monitored(t, s.topology)
	rejectAll(t, s, "work")
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "waits"})
	brokertest.Eventually(t, "it to wait", func() bool { return totals().Retried == 1 })
	stop()
	file = strings.Replace(s.file, "name: shop", "name: shop\ncountHeader: tries", 1)
	totals, stop = s.monitored(t, mustCompile(t, file))
	brokertest.Eventually(t, "it to be unroutable", func() bool {
		if got := totals(); got.DeadLettered > 1 {
			t.Fatalf("it circulates: %+v", got)
		}
		return s.ready(t, "shop.unroutable") == 1
	})
	stop()
	m = s.bury(t, "shop.unroutable")
	if got := totals(); m.MessageId != "waits" || got.Retried != 2 || got.DeadLettered != 1 || got.Unroutable != 1 {
		t.Errorf("%q is unroutable after %+v", m.MessageId, got)
	}
	s.allEmpty(t)
}
