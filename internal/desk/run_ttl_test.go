package desk_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// ttlKinds returns the kinds of policies by which another team can limit how long messages stay.
func ttlKinds() []string { return []string{"policies", "operator-policies"} }

// A policy with a message-ttl on the hold comes while a run takes. The run stops, and the queue
// still has each message that the hold may lose: the run can be returned at once, and resumed once
// the policy is gone.
func TestATTLThatComesWhileARunTakesLosesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range brokertest.Share(ttlKinds()) {
		for _, typ := range []string{"quorum", "classic"} {
			for name, returned := range map[string]bool{"resumed": false, "returned": true} {
				t.Run(kind+", "+typ+", "+name, func(t *testing.T) {
					t.Parallel()
					s := newShop(t, typ)
					s.desk = s.desk.Holding().Copying(100)
					chosen, rest := s.bury(t, 1200)
					p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
					if err != nil {
						t.Fatal(err)
					}
					r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
						if p.Phase == desk.Taking && p.Done == 150 {
							s.hurry(t, kind, 1)
						}
					})
					if err != nil || !strings.Contains(r.Stopped, "would delete the messages in shop.desk.") {
						t.Fatalf("%+v, %v", r, err)
					}
					s.end(t, kind, r.Run, returned, len(chosen))
					s.whole(t, chosen, rest)
				})
			}
		}
	}
}

// The program is killed while it takes, after the policy came, and before it has seen it.
func TestATTLThatComesBeforeAKillLosesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range brokertest.Share(ttlKinds()) {
		for name, returned := range map[string]bool{"resumed": false, "returned": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				s, chosen, rest := killedUnder(t, kind, 1)
				s.end(t, kind, s.onlyRun(t), returned, len(chosen))
				s.whole(t, chosen, rest)
			})
		}
	}
}

// The policy came before the kill and is gone again, and its time has not passed yet: what the hold
// got meanwhile still expires there, and is not what the run keeps.
func TestATTLThatIsGoneAgainLosesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 15_000
	s, chosen, rest := killedUnder(t, ttlKinds()[0], ttl)
	s.target.Call(t, "DELETE", ttlKinds()[0]+"/"+url.PathEscape(s.target.VHost)+"/hurry", nil)
	s.block(t)
	run := s.onlyRun(t)
	if held := s.resumeTaking(t, run); held != len(chosen) {
		t.Errorf("%d messages taken, not %d", held, len(chosen))
	}
	s.pass(t, ttl)
	if r, err := s.desk.Return(t.Context(), run, nil); err != nil || r.Moved != len(chosen) {
		t.Errorf("%+v, %v", r, err)
	}
	s.drained(t, "billing")
	s.whole(t, chosen, rest)
}

// killedUnder returns a shop with a run that was killed while it took, with some messages
// acknowledged, and copies of others in its hold that expire after some milliseconds.
func killedUnder(t *testing.T, kind string, ttl int) (s *shop, chosen, rest []string) {
	t.Helper()
	for range 5 {
		s = newShop(t, "quorum")
		chosen, rest = s.bury(t, 6000)
		// 256 are on their way. So no later than at 856 it has acknowledged the first 600, and what it
		// has taken 257 messages after the policy was published later.
		k := task{
			Action: desk.Replay, Send: desk.SendOptions{MaxWaiting: 1}, Copying: 600, Hurry: kind, HurryAt: 860, TTL: ttl,
			StallIn: desk.Taking, StallAt: 860 + 258,
		}
		if s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
			return s, chosen, rest
		}
		// It has seen the policy before it could be killed.
		s.target.Call(t, "DELETE", kind+"/"+url.PathEscape(s.target.VHost)+"/hurry", nil)
	}
	t.Fatal("no child was killed")
	return s, chosen, rest
}

// A policy that comes when the hold has all messages deletes none of them: while the run sends, and
// before it is resumed.
func TestATTLThatComesAfterTheTakingLosesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range brokertest.Share(ttlKinds()) {
		for name, stops := range map[string]bool{"while it sends": false, "before it is resumed": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "quorum")
				s.desk = s.desk.Holding()
				chosen, rest := s.bury(t, 1200)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ask := request(t, desk.Replay)
				ask.Send.InFlight = 10
				p, err := s.desk.Propose(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
					switch {
					case p.Phase != desk.Sending || p.Done != 30:
					case stops:
						cancel()
					default:
						s.hurry(t, kind, 1)
					}
				})
				if err == nil && stops {
					s.hurry(t, kind, 1)
					r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
				}
				if err != nil || !r.Ended || r.Gone > 0 {
					t.Errorf("%+v, %v", r, err)
				}
				s.whole(t, chosen, rest)
			})
		}
	}
}

// A policy deletes the record that a run is being returned. The program is killed while it gives
// back, and the run is returned again: the run knows it still, and no message is doubled.
func TestATTLThatDeletesTheRecordOfAReturnDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range ttlKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			chosen, rest := s.bury(t, 1000)
			run := s.takenOnly(t, len(chosen))
			s.hurry(t, kind, 1)
			k := task{Run: run, Return: true, StallIn: desk.Sending, StallAt: len(chosen) / 2}
			if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
				t.Fatal("the child was not killed")
			}
			if _, err := s.desk.Resume(t.Context(), run, nil, nil); !errors.Is(err, desk.ErrRefused) ||
				!strings.Contains(err.Error(), "is being returned") {
				t.Errorf("resumed: %v", err)
			}
			if r, err := s.desk.Return(t.Context(), run, nil); err != nil || !r.Ended || r.DoubledAtMost > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			s.whole(t, chosen, rest)
		})
	}
}

// The record that all is taken is deleted from the hold, as a message-ttl can. Resumed, the run
// knows it still: it misses no message, and counts what the killed process had in flight.
func TestARunKnowsThatAllIsTakenWithoutItsRecord(t *testing.T) {
	t.Parallel()
	const inFlight = 20
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 600)
	k := task{
		Action: desk.Replay, Send: desk.SendOptions{InFlight: inFlight}, Hold: true, StallIn: desk.Sending,
		StallAt: len(chosen) / 2,
	}
	if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
		t.Fatal("the child was not killed")
	}
	run := s.onlyRun(t)
	if n := s.forget(t, run, "sending"); n != 1 {
		t.Fatalf("%d records", n)
	}
	r, err := s.desk.Resume(t.Context(), run, nil, nil)
	if err != nil || !r.Ended || r.Missing > 0 || r.DoubledAtMost != inFlight {
		t.Errorf("%+v, %v", r, err)
	}
	lost, doubled := compareCounts(append(chosen, rest...),
		append(identities(s.drained(t, "billing")), identities(s.drained(t, "billing.dead"))...))
	if lost > 0 || doubled > inFlight {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	s.tidy(t)
}

// The program is killed while it takes, and the list of the run is deleted from the hold, as a
// policy can that drops the oldest messages. The run can only be returned: all copies come back,
// also those of messages that the queue has, and are reported.
func TestAReturnWithoutTheListReportsWhatItMayDouble(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 1200)
	k := task{
		Action: desk.Replay, Send: desk.SendOptions{MaxWaiting: 1}, Copying: 600, Hold: true, StallIn: desk.Taking,
		StallAt: 100,
	}
	if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
		t.Fatal("the child was not killed")
	}
	run := s.onlyRun(t)
	if n := s.forget(t, run, "list"); n != 1 {
		t.Fatalf("%d parts of the list", n)
	}
	if _, err := s.desk.Resume(t.Context(), run, nil, nil); !errors.Is(err, desk.ErrRefused) ||
		!strings.Contains(err.Error(), "may double") {
		t.Errorf("resumed: %v", err)
	}
	r, err := s.desk.Return(t.Context(), run, nil)
	if err != nil || !r.Ended {
		t.Fatalf("%+v, %v", r, err)
	}
	lost, doubled := compareCounts(append(chosen, rest...), identities(s.drained(t, "billing.dead")))
	if lost > 0 || doubled == 0 || doubled > r.DoubledAtMost {
		t.Errorf("%d lost, %d doubled, at most %d reported", lost, doubled, r.DoubledAtMost)
	}
	s.tidy(t)
}

// forget deletes the records of a kind from the hold of a run, and returns how many.
func (s *shop) forget(t *testing.T, run, kind string) (n int) {
	t.Helper()
	hold := "shop.desk." + run
	// What the killed process had comes back a moment after its connections have ended.
	held := 0
	brokertest.Eventually(t, "a hold without a consumer", func() bool {
		q, err := s.ch.QueueDeclarePassive(hold, true, false, false, false, nil)
		held = q.Messages
		return err == nil && q.Consumers == 0 && held > 0
	}, &held)
	ch := s.target.Channel(t)
	deliveries := brokertest.Consume(t, ch, hold, 0)
	for range held {
		if d := <-deliveries; d.Headers["desk-record"] == kind {
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if err := ch.Close(); err != nil { // the rest goes back
		t.Fatal(err)
	}
	return n
}

// hurry sets a policy of another team that deletes what comes into a hold after some milliseconds.
func (s *shop) hurry(tb testing.TB, kind string, ttl int) {
	tb.Helper()
	s.target.Call(tb, "PUT", kind+"/"+url.PathEscape(s.target.VHost)+"/hurry", map[string]any{
		"pattern": `^shop\.desk\.`, "apply-to": "queues", "definition": map[string]any{"message-ttl": ttl},
	})
}

// end returns a run under the policy of hurry, or resumes it once the policy is gone.
func (s *shop) end(t *testing.T, kind, run string, returned bool, chosen int) {
	t.Helper()
	if returned {
		r, err := s.desk.Return(t.Context(), run, nil)
		if err != nil || !r.Ended || r.DoubledAtMost > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		return
	}
	if _, err := s.desk.Resume(t.Context(), run, nil, nil); !errors.Is(err, desk.ErrRefused) {
		t.Errorf("resumed under the policy: %v", err)
	}
	s.target.Call(t, "DELETE", kind+"/"+url.PathEscape(s.target.VHost)+"/hurry", nil)
	r, err := s.desk.Resume(t.Context(), run, &desk.SendOptions{}, nil)
	if err != nil || !r.Ended || r.Moved != chosen || r.DoubledAtMost > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// whole checks that billing and billing.dead have each message once, and that nothing else is left.
func (s *shop) whole(t *testing.T, chosen, rest []string) {
	t.Helper()
	got := identities(s.drained(t, "billing"))
	t.Logf("%d replayed", len(got))
	got = append(got, identities(s.drained(t, "billing.dead"))...)
	if lost, doubled := compareCounts(append(chosen, rest...), got); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	s.tidy(t)
}

// pass waits until the broker has let some milliseconds pass.
func (s *shop) pass(t *testing.T, ttl int) {
	t.Helper()
	brokertest.Declare(t, s.ch, "clock", amqp091.Table{"x-message-ttl": ttl})
	brokertest.PublishConfirmed(t, s.ch, "", "clock", amqp091.Publishing{})
	s.awaitReady(t, "clock", 0)
}
