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
	"github.com/dlxctl/dlxctl/topology"
)

// A run is refused, and nothing is taken, where a policy of another team would lose messages in its
// hold or among the parked ones. A policy on the parked queue does not stop a replay.
func TestARunIsRefusedWhereAPolicyWouldLoseMessages(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		pattern    string
		definition map[string]any
		refused    map[desk.Action]string
		hold       bool // the policy is about holds
	}{
		"a TTL on holds": {
			`^shop\.desk`,
			map[string]any{"message-ttl": 60000},
			map[desk.Action]string{desk.Replay: "would delete the messages in shop.desk.", desk.Park: "shop.desk."},
			true,
		},
		"a limit on all queues": {
			".*",
			map[string]any{"max-length": 1000},
			map[desk.Action]string{desk.Replay: "would refuse messages for shop.desk."},
			true,
		},
		"a TTL on parked messages": {
			`^shop\.parked$`,
			map[string]any{"message-ttl": 60000},
			map[desk.Action]string{desk.Park: "would delete the messages in shop.parked after 1m"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "classic")
			if tc.hold {
				s.desk = s.desk.Holding()
			}
			s.bury(t, 40)
			s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/foreign",
				map[string]any{"pattern": tc.pattern, "apply-to": "queues", "definition": tc.definition})
			for action, want := range tc.refused {
				p, err := s.desk.Propose(t.Context(), request(t, action))
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.desk.Execute(t.Context(), p, nil)
				if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", action, err)
				}
			}
			if n := readyIn(t, s.ch, "billing.dead"); n != 40 {
				t.Errorf("billing.dead holds %d messages, not 40", n)
			}
			if len(tc.refused[desk.Replay]) == 0 {
				if r := s.execute(t, request(t, desk.Replay)); r.Moved == 0 || r.Left != 0 {
					t.Errorf("the replay: %+v", r)
				}
			}
			if parked := topology.ParkedName("shop"); strings.Contains(strings.Join(s.target.Definitions(t), "\n"), parked) {
				t.Errorf("%s was created", parked)
			}
			s.tidy(t)
		})
	}
}

// A policy that was set after a run had stopped keeps it from taking more, and from parking, but
// not from sending what its hold has.
func TestAResumeIsRefusedWhereAPolicyWouldLoseMessages(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		action    desk.Action
		pattern   string
		resumable bool
	}{
		"the hold, and it takes":        {desk.Replay, `^shop\.desk`, false},
		"parked messages, and it parks": {desk.Park, `^shop\.parked$`, false},
		"parked messages, no parking":   {desk.Replay, `^shop\.parked$`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.desk = s.desk.Holding()
			s.bury(t, 40)
			p, err := s.desk.Propose(t.Context(), request(t, tc.action))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := s.desk.Execute(ctx, p, func(desk.Progress) { cancel() })
			if err != nil || r.Ended {
				t.Fatalf("%+v, %v", r, err)
			}
			s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/foreign", map[string]any{
				"pattern": tc.pattern, "apply-to": "queues", "definition": map[string]any{"message-ttl": 3600000},
			})
			r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
			if tc.resumable && (err != nil || !r.Ended) || !tc.resumable && !errors.Is(err, desk.ErrRefused) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// A length limit of another team that comes when the hold has more messages does not keep a run
// from being returned, although the hold refuses the record of it. A process that is killed while
// it gives back changes nothing: no more is doubled than is reported.
func TestARunIsReturnedUnderALengthLimit(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]desk.Phase{"it takes": desk.Taking, "it sends": desk.Sending} {
		for how, killed := range map[string]bool{"": false, ", killed": true} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "quorum")
				s.desk = s.desk.Holding()
				chosen, rest := s.bury(t, 1600)
				ask := request(t, desk.Replay)
				ask.Send.InFlight = 10
				p, err := s.desk.Propose(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
					if p.Phase == phase && p.Done >= 40 {
						cancel()
					}
				})
				if err != nil || r.Left < 40 {
					t.Fatalf("%+v, %v", r, err)
				}
				s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/foreign", map[string]any{
					"pattern": `^shop\.desk\.`, "apply-to": "queues", "definition": map[string]any{"max-length": 10},
				})
				brokertest.Eventually(t, "a limit on the hold", func() bool {
					return s.target.Queue(t, "shop.desk."+r.Run)["policy"] == "foreign"
				}, nil)
				if killed {
					k := task{Run: r.Run, Return: true, StallIn: desk.Sending, StallAt: r.Left / 2}
					if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
						t.Fatal("the child was not killed")
					}
				}
				r, err = s.desk.Return(t.Context(), r.Run, nil)
				if err != nil || !r.Ended || r.DoubledAtMost > 0 && phase == desk.Taking {
					t.Fatalf("%+v, %v", r, err)
				}
				got := append(identities(s.drained(t, "billing")), identities(s.drained(t, "billing.dead"))...)
				lost, doubled := compareCounts(append(chosen, rest...), got)
				if lost > 0 || doubled > r.DoubledAtMost {
					t.Errorf("%d lost, %d doubled, at most %d reported", lost, doubled, r.DoubledAtMost)
				}
				s.tidy(t)
			})
		}
	}
}

// A queue that is deleted while a run gives back stops the run, although a policy gives each
// exchange an alternate: nothing goes to another queue.
func TestAnAlternateExchangeGetsNothing(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 400)
	run := s.takenOnly(t, len(chosen))
	ch := s.target.Channel(t)
	if err := errors.Join(
		ch.ExchangeDeclare("lost", "fanout", true, false, false, false, nil),
		second(ch.QueueDeclare("lost", true, false, false, false, nil)), ch.QueueBind("lost", "", "lost", false, nil),
	); err != nil {
		t.Fatal(err)
	}
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/foreign", map[string]any{
		"pattern": ".*", "apply-to": "exchanges", "definition": map[string]any{"alternate-exchange": "lost"},
	})
	r, err := s.desk.Return(t.Context(), run, func(p desk.Progress) {
		if p.Phase == desk.Sending && p.Done == 1 {
			if _, err := ch.QueueDelete("billing.dead", false, false, false); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || r.Stopped == "" || r.Left == 0 || r.Moved+r.Left != len(chosen) {
		t.Errorf("%+v, %v", r, err)
	}
	if n := readyIn(t, s.ch, "lost"); n > 0 {
		t.Errorf("%d messages went to the alternate exchange", n)
	}
}

func second(_ amqp091.Queue, err error) error { return err }
