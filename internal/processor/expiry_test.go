package processor_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// A message whose expiration ends before its next wait does is a dead letter, or deleted and
// counted; so is one that expired in its work queue. All others are retried. Each ends once.
func TestAfterExpiryOnTheBroker(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		for _, after := range []string{"dead", "drop"} {
			t.Run(kind+" "+after, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, strings.Replace(backoffFile(kind), "tiers:", "afterExpiry: "+after+", tiers:", 1))
				p := s.processor(t)
				p.Monitor = monitor.New("test")
				run(t, p)
				deliveries := brokertest.Consume(t, s.target.Channel(t), "billing", 0)
				var mu sync.Mutex
				delivered := map[string]int{}
				go func() {
					for d := range deliveries {
						mu.Lock()
						delivered[d.MessageId]++
						mu.Unlock()
						_ = d.Reject(false)
					}
				}()
				const each = 50
				// Two of four expire at once, or before the first tier of 200 ms ends.
				over := map[string]bool{"": false, "600000": false, "150": true, "0": true}
				for i := range each {
					for expiration := range over {
						s.publish(t, "events", "order.placed", amqp091.Publishing{
							MessageId: fmt.Sprint(expiration, "/", i), Expiration: expiration,
						})
					}
				}
				kept := 4 * each
				if after == "drop" {
					kept = 2 * each
				}
				dead := map[string]bool{}
				for range kept {
					m := s.bury(t, "billing.dead")
					expiration, _, _ := strings.Cut(m.MessageId, "/")
					reason, times := "rejected", 4
					if over[expiration] {
						reason, times = "expired", 1
					}
					mu.Lock()
					n := delivered[m.MessageId]
					mu.Unlock()
					got, again := m.Headers["retry-reason"], dead[m.MessageId]
					if again || got != reason || n > times || !over[expiration] && n < times {
						t.Errorf("%s is dead for the reason %v, after %d deliveries; for the second time: %t",
							m.MessageId, got, n, again)
					}
					dead[m.MessageId] = true
				}
				s.allEmpty(t)
				want := monitor.Totals{Retried: 2 * each * 3, DeadLettered: int64(kept), Dropped: int64(4*each - kept)}
				brokertest.Eventually(t, "the totals of the processor", func() bool { return p.Monitor.Totals() == want })
			})
		}
	}
}

// With outage, a message out of attempts whose expiration ends before the wait for the end of an
// outage is a dead letter, as it is without: it is not deleted.
func TestAnOutageDropsNothing(t *testing.T) {
	t.Parallel()
	file := strings.Replace(outageFile("{}"), "[100ms, 300ms]", "[100ms, 3s], afterExpiry: drop", 1)
	s := newStage(t, file)
	p := s.processor(t)
	p.Monitor = monitor.New("test")
	run(t, p)
	s.serve(t, &service{}).down.Store(true)
	// After its third failure 1.9 seconds are left, at most.
	const n = 20
	for _, id := range ids(0, n) {
		s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: id, Expiration: "5000"})
	}
	brokertest.Eventually(t, "all to end", func() bool {
		totals := p.Monitor.Totals()
		return totals.DeadLettered+totals.Dropped == n
	})
	for range n - p.Monitor.Totals().Dropped {
		m := s.bury(t, "billing.dead")
		if reason := m.Headers["retry-reason"]; reason != "rejected" || m.Headers["retry-attempts"] != int64(3) {
			t.Errorf("%s is dead for the reason %v after %v attempts", m.MessageId, reason, m.Headers["retry-attempts"])
		}
	}
	if dropped := p.Monitor.Totals().Dropped; dropped > 0 {
		t.Errorf("%d are deleted", dropped)
	}
	s.allEmpty(t)
}
