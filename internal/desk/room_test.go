package desk_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// policy sets a policy of another team. kind is policies or operator-policies.
func (s *shop) policy(t *testing.T, kind, queue string, definition map[string]any) {
	t.Helper()
	s.target.Call(t, "PUT", kind+"/"+url.PathEscape(s.target.VHost)+"/"+queue, map[string]any{
		"pattern": "^" + strings.ReplaceAll(queue, ".", `\.`) + "$", "apply-to": "queues", "definition": definition,
	})
}

// fill puts n dead letters into billing.dead that the request of a test chooses.
func (s *shop) fill(t *testing.T, n int) {
	t.Helper()
	var list []amqp091.Publishing
	for i := range n {
		list = append(list, deadLetter("billing", "order.chosen", fmt.Sprint(i), i))
	}
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", list...)
	s.awaitReady(t, "billing.dead", n)
}

// A replay into a queue that would drop messages, or delete them, is refused, unless they go on as
// dead letters. A queue that refuses what does not fit loses nothing.
func TestAReplayIsRefusedWhereTheTargetDrops(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.fill(t, 30)
	for name, tc := range map[string]struct {
		args       amqp091.Table
		has        int
		kind       string // of the policy
		definition map[string]any
		refused    string // empty: it is accepted
		note       string
	}{
		"drop-head": {args: amqp091.Table{"x-max-length": 5}, refused: "has room for 5 more, not for 30"},
		"quorum, half full": {
			args: amqp091.Table{"x-queue-type": "quorum", "x-max-length": 50}, has: 25,
			refused: "has room for 25 more, not for 30",
		},
		"room for all":   {args: amqp091.Table{"x-max-length": 50}, has: 20},
		"reject-publish": {args: amqp091.Table{"x-max-length": 5, "x-overflow": "reject-publish"}},
		"by policy": {
			kind: "policies", definition: map[string]any{"max-length": 29}, refused: "has room for 29 more",
		},
		"by operator policy": {
			args: amqp091.Table{"x-max-length": 500}, kind: "operator-policies",
			definition: map[string]any{"max-length": 29}, refused: "has room for 29 more",
		},
		"bytes": {args: amqp091.Table{"x-max-length-bytes": 100}, refused: "above 100 bytes"},
		"a TTL": {args: amqp091.Table{"x-message-ttl": 3_600_000}, refused: "deletes each message after 1h"},
		"a TTL by policy": {
			kind: "policies", definition: map[string]any{"message-ttl": 60_000}, refused: "deletes each message after 1m",
		},
		"expires": {args: amqp091.Table{"x-expires": 3_600_000}, refused: "deletes it with all its messages 1h"},
		"no such dead-letter exchange": {
			args:    amqp091.Table{"x-max-length": 5, "x-dead-letter-exchange": "none", "x-dead-letter-routing-key": "k"},
			refused: "has room for 5",
		},
		"dead letters to itself": {
			args: amqp091.Table{"x-message-ttl": 60_000, "x-dead-letter-exchange": ""}, refused: "deletes each message after 1m",
		},
		"a TTL with dead-lettering": {
			args: amqp091.Table{"x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "audit"},
		},
		"drop-head with dead-lettering": {
			args: amqp091.Table{"x-max-length": 5, "x-dead-letter-exchange": "shop.dead"}, note: "what does not fit fails again",
		},
		"reject-publish-dlx": {
			args: amqp091.Table{"x-max-length": 5, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "shop.dead"},
			note: "and has room for 5 more, not for 30: the run stops at the first that does not fit; it, and what is on its way then, are dead letters too",
		},
		"reject-publish-dlx on a quorum queue": {
			args: amqp091.Table{"x-queue-type": "quorum", "x-max-length": 5}, kind: "policies",
			definition: map[string]any{"overflow": "reject-publish-dlx"}, refused: "has room for 5 more",
		},
	} {
		queue := "mail " + name
		brokertest.Declare(t, s.ch, queue, tc.args)
		if tc.has > 0 {
			brokertest.PublishConfirmed(t, s.ch, "", queue, make([]amqp091.Publishing, tc.has)...)
		}
		if tc.kind != "" {
			s.policy(t, tc.kind, queue, tc.definition)
		}
		q := desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Queue: queue}}
		p, err := s.desk.Propose(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		refusals, notes := strings.Join(p.Refusals, "\n"), strings.Join(p.Notes, "\n")
		if tc.refused == "" && refusals != "" || !strings.Contains(refusals, tc.refused) ||
			!strings.Contains(notes, tc.note) {
			t.Errorf("%s: refused: %q, notes: %q", name, refusals, notes)
		}
		if tc.refused != "" && !strings.Contains(refusals, "--allow 'drops-messages="+queue+"'") {
			t.Errorf("%s: the refusal does not say how to allow it: %q", name, refusals)
		}
	}
}

// Thirty messages for a queue that keeps five: nothing moves, until a person accepts the loss.
func TestAFullTargetLosesNothingUnlessAllowed(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.fill(t, 30)
	brokertest.Declare(t, s.ch, "mail", amqp091.Table{"x-max-length": 5})
	q := desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Queue: "mail"}}
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.desk.Execute(t.Context(), p, nil); !errors.Is(err, desk.ErrRefused) {
		t.Errorf("executed: %v", err)
	}
	if dead, mail := readyIn(t, s.ch, "billing.dead"), readyIn(t, s.ch, "mail"); dead != 30 || mail != 0 {
		t.Errorf("%d of 30 messages are lost", 30-dead-mail)
	}
}

// What a person has allowed is done: it is their loss.
func TestADropThatIsAllowed(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.fill(t, 30)
	brokertest.Declare(t, s.ch, "mail", amqp091.Table{"x-max-length": 5})
	s.desk.Allow = []string{"mail"}
	q := desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Queue: "mail"}}
	if r := s.execute(t, q); r.Moved != 30 || readyIn(t, s.ch, "mail") != 5 {
		t.Errorf("%+v", r)
	}
}

// A policy that is set in the middle of a run stops it before the queue drops anything. A resume is
// refused, until the policy is gone or allowed.
func TestAPolicyThatDropsStopsARun(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		definition map[string]any
		want       string
	}{
		"a TTL":     {map[string]any{"message-ttl": 3_600_000}, "deletes each message after 1h"},
		"drop-head": {map[string]any{"max-length": 110}, "drops its oldest messages above 110"}, // 11 seconds away
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 120
			s := newShop(t, "quorum")
			s.fill(t, n)
			brokertest.Declare(t, s.ch, "mail", nil)
			q := desk.Request{
				Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Queue: "mail"}, Send: desk.SendOptions{Rate: 10},
			}
			p, err := s.desk.Propose(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
				if p.Phase == desk.Sending && p.Done == 1 {
					s.policy(t, "policies", "mail", tc.definition)
				}
			})
			if err != nil || !strings.Contains(r.Stopped, tc.want) || r.Left == 0 || r.Moved+r.Left != n {
				t.Fatalf("%+v, %v", r, err)
			}
			if mail := readyIn(t, s.ch, "mail"); mail != r.Moved {
				t.Errorf("%d of the %d messages that were sent are lost", r.Moved-mail, r.Moved)
			}
			if _, err := s.desk.Resume(t.Context(), r.Run, &desk.SendOptions{}, nil); !errors.Is(err, desk.ErrRefused) ||
				!strings.Contains(fmt.Sprint(err), "--allow drops-messages=mail") {
				t.Errorf("resumed: %v", err)
			}
			if _, err := s.desk.Return(t.Context(), r.Run, nil); err != nil {
				t.Error(err)
			}
			s.awaitReady(t, "billing.dead", r.Left)
		})
	}
}

// A queue to which a run has sent all of its messages is full by now, or gone. The run goes on: it
// has nothing left for that queue.
func TestAResumeNeedsNoQueueItHasFinishedWith(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, action := range []desk.Action{desk.Replay, desk.Restore} {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, gone %t", action, gone), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "quorum")
				s.desk.Holding()
				s.declare(t, "mail", nil)
				queue, want := "billing.dead", "billing"
				if action == desk.Restore {
					queue, want = "shop.parked", "audit"
					s.declare(t, queue, amqp091.Table{"x-queue-type": "quorum", topology.ArgManagedBy: topology.DeskMark("shop")})
				}
				for i, to := range []string{"mail", "mail", want, want} {
					m := deadLetter(to, "order.chosen", fmt.Sprint(i), i)
					m.Headers["desk-parked-from"] = to
					brokertest.PublishConfirmed(t, s.ch, "", queue, m)
				}
				s.awaitReady(t, queue, 4)
				p, err := s.desk.Propose(t.Context(), desk.Request{
					Action: action, Queue: queue, Send: desk.SendOptions{Rate: 1, MaxWaiting: 1000},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
					if p.Phase == desk.Sending && p.Done == 2 {
						cancel()
					}
				})
				if err != nil || r.Left != 2 {
					t.Fatalf("%+v, %v", r, err)
				}
				if gone {
					_, err = s.ch.QueueDelete("mail", false, false, false)
				} else {
					s.policy(t, "policies", "mail", map[string]any{"max-length": 1})
				}
				if err != nil {
					t.Fatal(err)
				}
				r, err = s.desk.Resume(t.Context(), r.Run, &desk.SendOptions{MaxWaiting: 1000}, nil)
				if err != nil || !r.Ended || r.Moved != 2 || readyIn(t, s.ch, want) != 2 {
					t.Fatalf("%+v, %v", r, err)
				}
				s.tidy(t)
			})
		}
	}
}

// A return and a restore into a queue that meanwhile drops, or deletes, is refused. With consent it
// is done.
func TestAReturnIsRefusedWhereTheSourceDrops(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		definition map[string]any
		want       string
		keeps      int
	}{
		"a TTL":     {map[string]any{"message-ttl": 3_600_000}, "deletes each message after 1h", 30},
		"drop-head": {map[string]any{"max-length": 29}, "has room for 29 more, not for 30", 29},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.desk = s.desk.Holding()
			s.fill(t, 30)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := s.desk.Propose(t.Context(), request(t, desk.Park))
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
				if p.Done == 30 {
					cancel()
				}
			})
			if err != nil || r.Left != 30 {
				t.Fatalf("%+v, %v", r, err)
			}
			s.policy(t, "policies", "billing.dead", tc.definition)
			// The room is counted by statistics, which may still have what the run has taken.
			brokertest.Eventually(t, "the refusal says "+tc.want, func() bool {
				back, err := s.desk.Return(t.Context(), r.Run, nil)
				if !errors.Is(err, desk.ErrRefused) || back.Left != 30 {
					t.Fatalf("%+v, %v", back, err)
				}
				return strings.Contains(err.Error(), tc.want)
			})
			if n := readyIn(t, s.ch, "billing.dead"); n > 0 {
				t.Errorf("billing.dead has %d messages", n)
			}
			if parked, err := s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil || parked.Moved != 30 {
				t.Fatalf("%+v, %v", parked, err)
			}
			restore := desk.Request{Action: desk.Restore, Queue: "shop.parked"}
			p, err = s.desk.Propose(t.Context(), restore)
			if err != nil || !strings.Contains(strings.Join(p.Refusals, "\n"), tc.want) {
				t.Errorf("%v, %v", p.Refusals, err)
			}
			s.desk.Allow = []string{"billing.dead"}
			if r := s.execute(t, restore); r.Moved != 30 || readyIn(t, s.ch, "billing.dead") != tc.keeps {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A policy that is set while a run takes stops it before it sends the first message.
func TestAPolicyThatDropsStopsARunBeforeItSends(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 300
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	s.fill(t, n)
	s.declare(t, "mail", nil)
	p, err := s.desk.Propose(t.Context(), desk.Request{
		Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Queue: "mail"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == n {
			s.policy(t, "policies", "mail", map[string]any{"max-length": 100})
		}
	})
	if err != nil || !strings.Contains(r.Stopped, "drops its oldest messages above 100") || r.Left != n {
		t.Errorf("%d messages are lost: %+v, %v", r.Moved-readyIn(t, s.ch, "mail"), r, err)
	}
	if _, err := s.desk.Return(t.Context(), r.Run, nil); err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t, "billing.dead", n)
}

// A policy that is set while a run without a hold waits for a change of the topology stops it
// before it sends the first message. It can be repeated with consent.
func TestAPolicyThatDropsStopsADirectRun(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 10
	s := newShop(t, "quorum")
	s.fill(t, n)
	s.declare(t, "mail", nil)
	brokertest.Bind(t, s.ch, "mail", "order.*", "events", nil)
	q := request(t, desk.Replay)
	q.Target.Original = true // the run listens for failures in billing, and so waits
	r := s.executeWaiting(t, q, func() { s.policy(t, "policies", "mail", map[string]any{"max-length": 5}) })
	if !r.Direct || !strings.Contains(r.Stopped, "drops its oldest messages above 5") || r.LeftInQueue != n {
		t.Fatalf("%d messages are lost: %+v", r.Moved-readyIn(t, s.ch, "mail"), r)
	}
	s.awaitReady(t, "billing.dead", n)
	s.desk.Allow = []string{"mail"}
	if r := s.execute(t, q); r.Moved != n || readyIn(t, s.ch, "mail") != 5 {
		t.Errorf("%+v", r)
	}
}

// What counts for the room of a queue is the message as it was edited.
func TestAnEditIsRefusedWhereItHasNoRoom(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.fill(t, 1)
	s.declare(t, "mail", amqp091.Table{"x-max-length-bytes": 1000})
	for size, refused := range map[int]bool{1000: false, 1001: true} {
		q := request(t, desk.Edit)
		q.Edited = &deadletter.Edited{Body: make([]byte, size), MessageID: "new"}
		q.Target.Queue = "mail"
		p, err := s.desk.Propose(t.Context(), q)
		if err != nil || slices.Equal(p.Drops, []string{"mail"}) != refused {
			t.Errorf("%d bytes: %q is refused: %v", size, p.Refusals, err)
		}
	}
}

// A queue that had a TTL when a run took from it gets its messages back, unless the TTL is shorter
// by now.
func TestAReturnIsNotRefusedForTheTTLThatWas(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.declare(t, "old.dlq", amqp091.Table{"x-message-ttl": 3_600_000})
	brokertest.PublishConfirmed(t, s.ch, "", "old.dlq", deadLetter("billing", "order.chosen", "0", 0))
	s.awaitReady(t, "old.dlq", 1)
	run := takenBy(t, s.deskOn(t, s.target).Holding(), desk.Request{Action: desk.Park, Queue: "old.dlq"}, 1)
	s.policy(t, "policies", "old.dlq", map[string]any{"message-ttl": 1_800_000})
	_, err := s.desk.Return(t.Context(), run, nil)
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "deletes each message after 30m") {
		t.Errorf("returned: %v", err)
	}
	s.policy(t, "policies", "old.dlq", map[string]any{"message-ttl": 7_200_000})
	if r, err := s.desk.Return(t.Context(), run, nil); err != nil || r.Moved != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	s.awaitReady(t, "old.dlq", 1)
}
