package desk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A run sends nothing to a queue alone that is being replaced under its name, and does not stay
// bound to it: the queue is deleted meanwhile. Its messages stay in the hold until that is over.
func TestAReturnWaitsForAReplacement(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 80)
	run := s.takenOnly(t, len(chosen))
	hold := topology.ReplacementHoldName("shop", "billing.dead")
	s.declare(t, hold, amqp091.Table{"x-queue-type": "quorum", topology.ArgManagedBy: topology.DeskMark("shop")})
	for range 2 {
		r, err := s.desk.Return(t.Context(), run, nil)
		if err != nil || r.Moved > 0 || r.Left != len(chosen) || !strings.Contains(r.Stopped, "dlxctl migrate billing.dead") {
			t.Fatalf("%+v, %v", r, err)
		}
		s.awaitReady(t, "billing.dead", len(rest))
	}
	state, err := s.desk.Management.Inspect(t.Context())
	if err != nil || slices.ContainsFunc(state.Have.Bindings, func(b topology.Binding) bool {
		_, _, sends := topology.DeskSender(b)
		return sends && b.Destination == "billing.dead"
	}) {
		t.Fatalf("the run is bound to the queue: %v, %v", state.Have.Bindings, err)
	}
	brokertest.Delete(t, s.ch, hold)
	if r, err := s.desk.Return(t.Context(), run, nil); err != nil || r.Moved != len(chosen) || !r.Ended {
		t.Fatalf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
	s.tidy(t)
}

// A replay to the name of a queue sends nothing while that is being replaced: neither a run that
// keeps nothing, nor one with a hold, which a replacement that begins later waits for.
func TestAReplayByNameWaitsForAReplacement(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, to := range []desk.Target{{Queue: "billing"}, {Original: true}} {
		for _, holds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v, %t", to, holds), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "quorum")
				if holds {
					s.desk.Holding()
				}
				m := deadLetter("billing", "billing", "1", 1)
				m.Headers["retry-exchange"] = ""
				brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", m)
				s.awaitReady(t, "billing.dead", 1)
				hold := topology.ReplacementHoldName("shop", "billing")
				s.declare(t, hold, amqp091.Table{"x-queue-type": "quorum", topology.ArgManagedBy: topology.DeskMark("shop")})
				r := s.execute(t, desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: to})
				if r.Direct == holds || r.Moved > 0 || r.Left+r.LeftInQueue != 1 ||
					!strings.Contains(r.Stopped, "dlxctl migrate billing") {
					t.Fatalf("%+v", r)
				}
				brokertest.Delete(t, s.ch, hold)
				if holds {
					if r, err := s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil || r.Moved != 1 || !r.Ended {
						t.Fatalf("%+v, %v", r, err)
					}
				} else if r := s.execute(t, desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: to}); r.Moved != 1 {
					t.Fatalf("%+v", r)
				}
				s.awaitReady(t, "billing", 1)
				s.tidy(t)
			})
		}
	}
}

// A run with a hold that sends to the name of a queue is bound to it until it ends, so that a
// replacement of the queue sees it.
func TestAReplayByNameIsSeen(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, to := range []desk.Target{{Queue: "billing"}, {Original: true}} {
		t.Run(fmt.Sprintf("%+v", to), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.desk.Holding()
			for _, id := range []string{"1", "2"} {
				m := deadLetter("billing", "billing", id, 1)
				m.Headers["retry-exchange"] = ""
				brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", m)
			}
			p, err := s.desk.Propose(t.Context(), desk.Request{
				Action: desk.Replay, Queue: "billing.dead", Target: to, Send: desk.SendOptions{Rate: 1},
			})
			if err != nil || len(p.Refusals) > 0 {
				t.Fatalf("%+v, %v", p.Refusals, err)
			}
			seen := false
			r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
				if p.Phase != desk.Sending || p.Done != 1 || seen {
					return
				}
				state, err := s.desk.Management.Inspect(t.Context())
				seen = err == nil && strings.HasPrefix(plan.DeskSends("billing", state.Have.Bindings), "the run "+p.Run)
			})
			if err != nil || r.Moved != 2 || !seen {
				t.Errorf("seen %t: %+v, %v", seen, r, err)
			}
			for _, m := range s.drained(t, "billing") {
				if m.RoutingKey != "billing" || to.Original && m.Exchange != "" {
					t.Errorf("it comes by %q with the key %q", m.Exchange, m.RoutingKey)
				}
			}
			s.tidy(t)
		})
	}
}

// A run to the original target sends to the name of a queue also without the right to bind it.
func TestAReplayByNameWithoutTheRight(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	if s.target.AtLeast("4.3") {
		t.Skip("line 4.3 lets only users with a right on a queue ask how many messages wait there")
	}
	s.declare(t, "other", amqp091.Table{"x-queue-type": "quorum"})
	m := deadLetter("billing", "other", "1", 1)
	m.Headers["retry-exchange"] = ""
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", m)
	s.awaitReady(t, "billing.dead", 1)
	s.desk = s.deskOn(t, s.target.User(t, "management", `^shop\.(desk\..*|lock|parked)$`,
		`^(amq\.default|shop\.desk\..*)$`, `^(billing\.dead|shop\.(desk\..*|failed))$`)).Holding()
	r := s.execute(t, desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Original: true}})
	if r.Moved != 1 || r.Left > 0 || !r.Ended || r.Stopped != "" {
		t.Errorf("%+v", r)
	}
	s.awaitReady(t, "other", 1)
	s.tidy(t)
}

// What a run with a hold has sent to the name of a queue, and failed again, goes there again with
// `--to original`: the exchange through which the run sent it is gone.
func TestAReplayToTheOriginalOfAReplay(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk.Holding()
	m := deadLetter("billing", "k", "1", 1)
	for range 2 {
		brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", m)
		s.awaitReady(t, "billing.dead", 1)
		to := desk.Target{Original: true}
		if m.Headers["retry-exchange"] == "events" {
			to = desk.Target{Queue: "billing"}
		}
		if r := s.execute(t, desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: to}); r.Moved != 1 {
			t.Fatalf("%+v", r)
		}
		s.awaitReady(t, "billing", 1)
		got := s.drained(t, "billing")[0]
		if got.RoutingKey != "billing" {
			t.Fatalf("it comes with the key %q", got.RoutingKey)
		}
		m.Headers["retry-exchange"], m.Headers["retry-routing-key"] = got.Exchange, got.RoutingKey // by the processor
	}
	s.tidy(t)
}

// What a replay has sent to the work queue alone keeps where it was published. What one of an
// earlier release has sent says that it was published to the exchange NAME.return: `--to original`
// sends it to its work queue alone, with its key.
func TestAReplayKeepsWhereItWasPublished(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, exchange := range []string{"events", "shop.return"} {
		s := newShop(t, "quorum")
		m := deadLetter("billing", "order.chosen", "1", 1)
		m.Headers["retry-exchange"] = exchange
		brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", m)
		s.awaitReady(t, "billing.dead", 1)
		q := desk.Request{Action: desk.Replay, Queue: "billing.dead"}
		if exchange == "shop.return" {
			q.Target.Original = true
		}
		if r := s.execute(t, q); r.Moved != 1 || readyIn(t, s.ch, "audit")+readyIn(t, s.ch, "shop.unroutable") > 0 {
			t.Fatalf("%+v", r)
		}
		s.awaitReady(t, "billing", 1)
		got := s.drained(t, "billing")[0]
		if noted, _ := got.Headers["retry-exchange"].(string); got.Exchange != "shop.return" ||
			got.RoutingKey != "order.chosen" || (noted == "events") != (exchange == "events") || noted == "shop.return" {
			t.Errorf("by %s with the key %s: %v", got.Exchange, got.RoutingKey, got.Headers)
		}
		s.tidy(t)
	}
}
