package desk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A direct run sends few messages without a hold. Most of the tests of other runs are with more.

// directGroup is how many of 100 messages a direct run sends before it acknowledges them.
const directGroup = 4

// ends compares what the dead-letter queue, billing and the queue of parked messages have with
// what the dead-letter queue had. What a process had that was killed comes back a moment later, and
// a node that was killed counts messages that were acknowledged (3.10.8). So it takes until nothing
// is missing and the queues answer that they are empty.
func (s *shop) ends(t *testing.T, chosen, rest []string) (lost, doubled int) {
	t.Helper()
	ch := s.target.Channel(t)
	want, got := append(chosen, rest...), []string{}
	brokertest.Eventually(t, "all messages to be back", func() bool {
		for _, queue := range []string{"billing.dead", "billing", "shop.parked"} {
			if !s.exists(t, queue) {
				continue
			}
			for {
				d, ok, err := ch.Get(queue, true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				got = append(got, identity(d.MessageId, d.Body))
			}
		}
		lost, doubled = compareCounts(want, got)
		return lost == 0
	}, &lost)
	return lost, doubled
}

func (s *shop) exists(t *testing.T, queue string) bool {
	t.Helper()
	_, err := s.target.Channel(t).QueueDeclarePassive(queue, true, false, false, false, nil)
	return err == nil
}

// Nothing disturbs a direct run: each chosen message is where it goes, once, and no other has
// moved. The nightly run repeats it, with DLXCTL_TEST_LONG.
func TestADirectRun(t *testing.T) {
	t.Parallel()
	for _, typ := range queueKinds() {
		for _, action := range []desk.Action{desk.Replay, desk.Park} {
			t.Run(fmt.Sprintf("%s, %s", typ, action), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, typ)
				for range brokertest.Rounds(2, 20) {
					chosen, rest := s.bury(t, 400)
					r := s.execute(t, request(t, action))
					if !r.Direct || !r.Ended || r.Moved != len(chosen) || r.Missing+r.LeftInQueue+r.DoubledAtMost > 0 {
						t.Fatalf("%+v", r)
					}
					to := map[desk.Action]string{desk.Replay: "billing", desk.Park: "shop.parked"}[action]
					for queue, want := range map[string][]string{"billing.dead": rest, to: chosen} {
						if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
							t.Errorf("%s: %d lost, %d doubled", queue, lost, doubled)
						}
					}
				}
				s.tidy(t)
			})
		}
	}
}

// A direct run that deletes needs no queue for parked messages.
func TestADirectRunDeletes(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 200)
	q := request(t, desk.Discard)
	q.Forever = true
	if r := s.execute(t, q); !r.Direct || r.Moved != len(chosen) {
		t.Fatalf("%+v", r)
	}
	if lost, doubled := compareCounts(rest, identities(s.drained(t, "billing.dead"))); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	if s.exists(t, "shop.parked") {
		t.Error("the queue of parked messages exists")
	}
}

// A direct run is killed by SIGKILL when the broker has confirmed a message and the run has not
// acknowledged it. Nothing is lost, no run is left, and at most one group is doubled.
func TestADirectRunIsKilled(t *testing.T) {
	t.Parallel()
	for _, typ := range queueKinds() {
		for _, action := range []desk.Action{desk.Replay, desk.Discard} {
			t.Run(fmt.Sprintf("%s, %s", typ, action), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, typ)
				for round := range killRounds(3) {
					chosen, rest := s.bury(t, 400)
					k := task{Action: action, StallIn: desk.Sending, StallAt: 1 + (37*round)%len(chosen)}
					if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
						t.Fatal("it was not killed")
					}
					if run := s.onlyRun(t); run != "" {
						t.Errorf("the run %s has a hold", run)
					}
					lost, doubled := s.ends(t, chosen, rest)
					if lost > 0 || doubled > directGroup {
						t.Errorf("%d lost, %d doubled", lost, doubled)
					}
					t.Logf("killed at message %d: %d lost, %d doubled", k.StallAt, lost, doubled)
				}
				s.tidy(t)
			})
		}
	}
}

// The connection of a direct run ends around a transaction in which it acknowledges. The run says
// how many it may have doubled, or removes them.
func TestADirectRunIsCut(t *testing.T) {
	t.Parallel()
	commit := []byte{0, 90, 0, 20, 0xCE}
	for _, m := range []moment{{"before a commit", commit, false, 0}, {"after a commit", commit, true, 0}} {
		for _, typ := range queueKinds() {
			t.Run(fmt.Sprintf("%s, %s", typ, m.name), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, typ)
				chosen, rest := s.bury(t, 400)
				d := s.deskOn(t, m.reach(t, s.target, func() {}))
				p, err := d.Propose(t.Context(), request(t, desk.Replay))
				if err != nil {
					t.Fatal(err)
				}
				r, err := d.Execute(t.Context(), p, nil)
				if err == nil || !r.Direct || !r.Ended || r.Moved+r.LeftInQueue != len(chosen) {
					t.Fatalf("%+v, %v", r, err)
				}
				lost, doubled := s.ends(t, chosen, rest)
				if lost > 0 || doubled > r.DoubledAtMost {
					t.Errorf("%d lost, %d doubled; %+v", lost, doubled, r)
				}
				t.Logf("%d sent, %d doubled, at most %d reported: %v", r.Moved, doubled, r.DoubledAtMost, err)
			})
		}
	}
}

// A direct run that is interrupted keeps in the queue what it has not sent.
func TestADirectRunIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, typ := range queueKinds() {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, typ)
			chosen, rest := s.bury(t, 400)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
				if p.Done >= 30 {
					cancel()
				}
			})
			if err != nil || !r.Direct || r.Stopped != "interrupted" || r.Moved < 30 || r.Moved > 30+directGroup ||
				r.LeftInQueue != len(chosen)-r.Moved || r.DoubledAtMost > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			if lost, doubled := s.ends(t, chosen, rest); lost+doubled > 0 {
				t.Errorf("%d lost, %d doubled", lost, doubled)
			}
			s.tidy(t)
		})
	}
}

// A target that accepts a part of a group gets that part, and the queue keeps the others.
func TestADirectRunIsRefused(t *testing.T) {
	t.Parallel()
	for _, typ := range queueKinds() {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, typ)
			args := amqp091.Table{"x-queue-type": typ, "x-max-length": 5, "x-overflow": "reject-publish"}
			brokertest.Declare(t, s.ch, "small", args)
			chosen, rest := s.bury(t, 400)
			q := request(t, desk.Replay)
			q.Target.Queue = "small"
			r := s.execute(t, q)
			if !r.Direct || r.Stopped == "" || r.Moved == 0 || r.LeftInQueue != len(chosen)-r.Moved {
				t.Fatalf("%+v", r)
			}
			s.awaitReady(t, "small", r.Moved)
			has := append(identities(s.drained(t, "small")), identities(s.drained(t, "billing.dead"))...)
			if lost, doubled := compareCounts(append(chosen, rest...), has); lost+doubled > 0 {
				t.Errorf("%d lost, %d doubled", lost, doubled)
			}
			s.tidy(t)
		})
	}
}

// An edited message that its target refuses stays in the queue, and is not parked.
func TestADirectEditIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	if r := s.editForFull(t); !r.Direct || r.Stopped == "" || r.Moved != 0 || r.LeftInQueue != 1 || r.DoubledAtMost != 0 {
		t.Errorf("%+v", r)
	}
	s.awaitReady(t, "shop.parked", 0)
	s.awaitReady(t, "billing.dead", 4)
}

// An edit with a hold whose target refuses the edited message is resumed, or returned: the original
// is parked once, or back, and not parked.
func TestAnEditIsResumedAfterARefusal(t *testing.T) {
	t.Parallel()
	for name, returned := range map[string]bool{"resumed": false, "returned": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.desk = s.desk.Holding()
			r := s.editForFull(t)
			if r.Direct || r.Stopped == "" || r.Left != 1 || r.Moved != 0 {
				t.Fatalf("%+v", r)
			}
			want := map[string]int{"full": 1, "shop.parked": 0, "billing.dead": 4}
			end := s.desk.Return
			if !returned {
				if _, err := s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil { // it is refused once more
					t.Fatal(err)
				}
				s.drained(t, "full")
				want = map[string]int{"full": 1, "shop.parked": 1, "billing.dead": 3}
				end = func(ctx context.Context, run string, progress func(desk.Progress)) (desk.Result, error) {
					return s.desk.Resume(ctx, run, nil, progress)
				}
			}
			if r, err := end(t.Context(), r.Run, nil); err != nil || !r.Ended || r.Moved != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			for queue, n := range want {
				s.awaitReady(t, queue, n)
			}
			s.tidy(t)
		})
	}
}

// A process that was killed after it had sent the edited message has noted that in the hold: the
// run is not returned, and resumed it only parks the original.
func TestAnEditThatIsSentIsOnlyParked(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	r := s.editForFull(t)
	s.drained(t, "full")
	note := amqp091.Publishing{Headers: amqp091.Table{"desk-manifest": r.Run, "desk-record": "sent"}}
	brokertest.PublishConfirmed(t, s.ch, "", "shop.desk."+r.Run, note)
	_, err := s.desk.Return(t.Context(), r.Run, nil)
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "has sent the edited message") {
		t.Errorf("returned: %v", err)
	}
	if r, err := s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil || !r.Ended {
		t.Errorf("%+v, %v", r, err)
	}
	for queue, n := range map[string]int{"full": 0, "shop.parked": 1, "billing.dead": 3} {
		s.awaitReady(t, queue, n)
	}
	s.tidy(t)
}

// An edit with a new routing key is killed while it takes. Another process resumes it: the edited
// message has the new key, and its original is parked, each once.
func TestAnEditWithANewKeyIsResumed(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 4)
	k := task{
		Action: desk.Edit, Hold: true, NewKey: "order.new", StallIn: desk.Taking, StallAt: 1,
		Edited: &deadletter.Edited{Body: []byte(`{"order": 9}`), MessageID: "new"},
	}
	if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
		t.Fatal("it was not killed")
	}
	if r, err := s.desk.Resume(t.Context(), s.onlyRun(t), nil, nil); err != nil || !r.Ended || r.Moved != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	var got []string
	for _, d := range s.drained(t, "billing") {
		got = append(got, d.RoutingKey+" "+identity(d.MessageId, d.Body))
	}
	if d := cmp.Diff([]string{`order.new new {"order": 9}`}, got); d != "" {
		t.Errorf("billing (-want +got):\n%s", d)
	}
	for queue, n := range map[string]int{"shop.parked": 1, "billing.dead": 3} {
		s.awaitReady(t, queue, n)
	}
	s.tidy(t)
}

// editForFull edits one of four dead letters for a queue that refuses it.
func (s *shop) editForFull(t *testing.T) desk.Result {
	t.Helper()
	args := amqp091.Table{"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}
	brokertest.Declare(t, s.ch, "full", args)
	brokertest.PublishConfirmed(t, s.ch, "", "full", amqp091.Publishing{})
	s.bury(t, 4)
	q := request(t, desk.Edit)
	q.Edited, q.Target.Queue = &deadletter.Edited{Body: []byte(`{"order": 9}`), MessageID: "new"}, "full"
	return s.execute(t, q)
}

// A run without a hold that has sent the edited message, and cannot park its original, says so.
func TestTheOriginalOfAnEditedMessageIsNotParked(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 40)
	first := request(t, desk.Park)
	first.Limit = 9
	s.execute(t, first)
	s.policy(t, "policies", "shop.parked", map[string]any{"max-length": 1, "overflow": "reject-publish"})
	brokertest.Eventually(t, "the policy to hold",
		func() bool { return s.target.Queue(t, "shop.parked")["policy"] == "shop.parked" })
	q := request(t, desk.Edit)
	q.Edited = &deadletter.Edited{Body: []byte(`{"order": 9}`), MessageID: "new"}
	const why = "the edited message was sent, and the broker does not accept the original for shop.parked"
	if r := s.execute(t, q); !r.Direct || r.Stopped != why || r.LeftInQueue != 1 || r.DoubledAtMost != 1 {
		t.Errorf("%+v", r)
	}
	s.awaitReady(t, "billing", 1)
	s.awaitReady(t, "billing.dead", 31)
}

// A run whose target has no room waits, and so it has a hold.
func TestARunThatHasToWaitHasAHold(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.block(t)
	chosen, _ := s.bury(t, 40)
	q := request(t, desk.Replay)
	q.Send.MaxWaiting = 1
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
		if strings.HasPrefix(p.Pausing, "billing holds") {
			cancel()
		}
	})
	if err != nil || r.Direct || r.Left != len(chosen) || r.Moved > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := s.desk.Return(t.Context(), r.Run, nil); err != nil {
		t.Fatal(err)
	}
	s.tidy(t)
}

// theNodeOfADirectRunDies kills the node of direct runs by SIGKILL in the middle. Started again, it
// has all messages, and no more are doubled than the runs have said.
func theNodeOfADirectRunDies(t *testing.T, node *brokertest.Server) {
	t.Helper()
	type victim struct {
		*shop
		typ            string
		chosen, rest   []string
		reached, ended chan struct{}
		r              desk.Result
		err            error
	}
	var victims []*victim
	var young time.Time
	released := make(chan struct{})
	for _, typ := range append(queueKinds(), queueKinds()...) {
		v := &victim{
			shop: newShopOn(t, node.VHost(t), shopFile(typ)), typ: typ,
			reached: make(chan struct{}), ended: make(chan struct{}),
		}
		v.chosen, v.rest = v.bury(t, 400)
		victims, young = append(victims, v), time.Now()
	}
	// A node that is killed forgets what a younger queue got, also billing (see amqp.SafeAge).
	brokertest.Eventually(t, "the age of the queues", func() bool { return time.Since(young) > amqp.SafeAge })
	for i, v := range victims {
		p, err := v.desk.Propose(t.Context(), request(t, desk.Replay))
		if err != nil {
			t.Fatal(err)
		}
		at := 20 + 10*i
		go func() {
			defer close(v.ended)
			v.r, v.err = v.desk.Execute(t.Context(), p, func(p desk.Progress) {
				if p.Phase == desk.Sending && p.Done == at {
					close(v.reached)
					<-released
				}
			})
		}()
	}
	for _, v := range victims {
		select {
		case <-v.reached:
		case <-v.ended:
			t.Fatalf("%s: %+v, %v", v.typ, v.r, v.err)
		}
	}
	node.Kill(t)
	close(released)
	for _, v := range victims {
		if <-v.ended; v.err == nil || !v.r.Direct {
			t.Errorf("%s: %+v, %v", v.typ, v.r, v.err)
		}
	}
	node.Start(t)
	for _, v := range victims {
		v.ch = v.target.Confirming(t)
		brokertest.Eventually(t, "the queue", func() bool { return v.exists(t, "billing.dead") && v.exists(t, "billing") })
		lost, doubled := v.ends(t, v.chosen, v.rest)
		t.Logf("%s: %d sent, %d lost, %d doubled, at most %d reported", v.typ, v.r.Moved, lost, doubled, v.r.DoubledAtMost)
		if lost > 0 || doubled > v.r.DoubledAtMost {
			t.Errorf("%s: %d lost, %d doubled: %+v", v.typ, lost, doubled, v.r)
		}
	}
}
