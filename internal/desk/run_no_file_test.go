package desk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// newUnfiled returns a virtual host that dlxctl did not make, with n dead letters of orders in dlq,
// and a desk without a topology file.
func newUnfiled(t *testing.T, typ string, n int) (s *shop, all []string) {
	t.Helper()
	return newUnfiledOn(t, brokertest.VHost(t), typ, n)
}

func newUnfiledOn(t *testing.T, target brokertest.Target, typ string, n int) (s *shop, all []string) {
	t.Helper()
	s = newForeignOn(t, target, typ, 0)
	s.file, s.desk = "", unfiled(t, s.target)
	messages := make([]amqp091.Publishing, n)
	for i := range messages {
		id := fmt.Sprint(i)
		messages[i] = amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Body: []byte("same")}
		all = append(all, identity(id, messages[i].Body))
	}
	brokertest.PublishConfirmed(t, s.ch, "", "orders", messages...)
	ch := s.target.Channel(t)
	deliveries, err := ch.Consume("orders", "fails", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := (<-deliveries).Reject(false); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitReady(t, "dlq", n) // a broker forgets what a channel has not passed on when it is closed
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	return s, all
}

// unfiled returns a desk as a command without a topology file opens it.
func unfiled(t *testing.T, target brokertest.Target) *desk.Desk {
	t.Helper()
	d := deskOf(t, target)
	d.By = "tester@here"
	if err := discover(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A run without a topology file is killed by SIGKILL while it takes, and while it sends. Another
// process without a file resumes it: none is lost, and at most what was in flight is doubled.
func TestARunWithoutAFileIsKilled(t *testing.T) {
	t.Parallel()
	const n, inFlight = 1000, 20
	for _, typ := range brokertest.Share([]string{"quorum", "classic"}) {
		for i := range killRounds(3) {
			t.Run(fmt.Sprint(typ, i), func(t *testing.T) {
				t.Parallel()
				s, all := newUnfiled(t, typ, n)
				kills := 0
				kill := func(k task) {
					if s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
						kills++
					}
				}
				send := desk.SendOptions{InFlight: inFlight}
				kill(task{Action: desk.Replay, Send: send, StallIn: desk.Taking, StallAt: 100 + 250*i%n})
				if len(s.onlyRun(t)) == 0 {
					t.Fatal("the run is gone")
				}
				kill(task{Run: s.onlyRun(t), StallIn: desk.Sending, StallAt: 50 + 300*i%n})
				s.desk = unfiled(t, s.target) // as another machine
				if r, err := s.desk.Resume(t.Context(), s.onlyRun(t), nil, nil); err != nil || !r.Ended {
					t.Fatalf("%+v, %v", r, err)
				}
				lost, doubled := compareCounts(all, append(identities(s.drained(t, "orders")), identities(s.drained(t, "dlq"))...))
				if lost > 0 || doubled > inFlight || kills != 2 {
					t.Errorf("%d kills: %d lost, %d doubled", kills, lost, doubled)
				}
				t.Logf("%d kills: %d lost, %d doubled", kills, lost, doubled)
				s.tidyDesk(t)
			})
		}
	}
}

// A run without a file that is killed while it takes is returned: the queue has each message once.
func TestARunWithoutAFileIsReturned(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s, all := newUnfiled(t, typ, 1000)
			k := task{Action: desk.Replay, StallIn: desk.Taking, StallAt: 400}
			if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
				t.Fatal("it was not killed")
			}
			s.desk = unfiled(t, s.target)
			if r, err := s.desk.Return(t.Context(), s.onlyRun(t), nil); err != nil || r.DoubledAtMost > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			if lost, doubled := compareCounts(all, identities(s.drained(t, "dlq"))); lost+doubled > 0 {
				t.Errorf("%d lost, %d doubled", lost, doubled)
			}
			s.tidyDesk(t)
		})
	}
}

// A replay without a file that nothing disturbs sends each message once, and leaves none behind.
func TestAReplayWithoutAFileLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	const n = 400
	for round := range brokertest.Rounds(2, 20) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			s, all := newUnfiled(t, "quorum", n)
			if r := s.execute(t, desk.Request{Action: desk.Replay, Queue: "dlq"}); r.Moved != n || !r.Ended {
				t.Errorf("%+v", r)
			}
			lost, doubled := compareCounts(all, identities(s.drained(t, "orders")))
			if left := readyIn(t, s.ch, "dlq"); lost+doubled+left > 0 {
				t.Errorf("%d messages are lost, %d doubled, and %d left", lost, doubled, left)
			}
			s.tidyDesk(t)
		})
	}
}

// The queue of parked messages goes at the end of the run that takes the last of them, and of one
// that could not park any. One that has messages stays, and so does one that a run needs.
func TestAnEmptyParkedQueueGoes(t *testing.T) {
	t.Parallel()
	s, _ := newUnfiled(t, "quorum", 6)
	parked := topology.ParkedName(topology.DeskName)
	exists := func() bool {
		return strings.Contains(strings.Join(s.target.Definitions(t), "\n"), `"`+parked+`"`)
	}
	s.execute(t, desk.Request{Action: desk.Park, Queue: "dlq", Limit: 3})
	s.execute(t, desk.Request{Action: desk.Restore, Queue: parked, Limit: 2})
	if n := readyIn(t, s.ch, parked); n != 1 {
		t.Errorf("%d parked, not 1", n)
	}
	stays := unfiled(t, s.target).Holding() // another process, which parks
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := stays.Propose(ctx, desk.Request{Action: desk.Park, Queue: "dlq", Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	restore := func() { s.execute(t, desk.Request{Action: desk.Restore, Queue: parked, Limit: 1}) }
	r, err := stays.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == 1 {
			restore()
			if !exists() {
				t.Error("the queue is gone that another run needs")
			}
		}
	})
	if err != nil || r.Moved != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	s.execute(t, desk.Request{Action: desk.Restore, Queue: parked})
	if exists() {
		t.Errorf("%s is still there", parked)
	}
	s.awaitReady(t, "dlq", 6)
	brokertest.Declare(t, s.ch, "full", amqp091.Table{
		"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish",
	})
	brokertest.PublishConfirmed(t, s.ch, "", "full", amqp091.Publishing{})
	q := desk.Request{Action: desk.Edit, Queue: "dlq", Limit: 1, Edited: &deadletter.Edited{Body: []byte("new")}}
	q.Target.Queue = "full"
	if r := s.execute(t, q); r.Stopped == "" {
		t.Errorf("%+v", r)
	}
	s.awaitReady(t, "dlq", 6)
	s.tidyDesk(t)
}

// Runs that park and runs that take the last parked message, all at the same time: each message is
// in the dead-letter queue or parked, once.
func TestParkingWhileAnEmptyParkedQueueGoes(t *testing.T) {
	t.Parallel()
	const n, rounds = 40, 4
	s, all := newUnfiled(t, "quorum", n)
	parked := topology.ParkedName(topology.DeskName)
	work := func(d *desk.Desk, q desk.Request) {
		p, err := d.Propose(t.Context(), q)
		if errors.Is(err, desk.ErrRefused) || errors.Is(err, broker.ErrNotFound) {
			return // there is no such queue at the moment
		}
		if err == nil {
			_, err = d.Execute(t.Context(), p, nil)
		}
		if err != nil && !errors.Is(err, desk.ErrRefused) {
			t.Error(err)
		}
	}
	for range rounds {
		var both sync.WaitGroup
		both.Go(func() { work(unfiled(t, s.target), desk.Request{Action: desk.Park, Queue: "dlq", Limit: 1}) })
		both.Go(func() { work(unfiled(t, s.target), desk.Request{Action: desk.Restore, Queue: parked}) })
		both.Wait()
	}
	work(unfiled(t, s.target), desk.Request{Action: desk.Restore, Queue: parked})
	if lost, doubled := compareCounts(all, identities(s.drained(t, "dlq"))); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	s.tidyDesk(t)
}

// Messages go to the queue of parked messages while a run deletes that queue, which was empty: they
// are there in the end.
func TestMessagesArriveWhileAnEmptyParkedQueueGoes(t *testing.T) {
	t.Parallel()
	parked := topology.ParkedName(topology.DeskName)
	for name, work := range map[string]func(d *desk.Desk, run string) (desk.Result, error){
		"of a return": func(d *desk.Desk, run string) (desk.Result, error) {
			return d.Return(context.WithoutCancel(t.Context()), run, nil)
		},
		"of a replay": func(d *desk.Desk, _ string) (desk.Result, error) {
			ctx := context.WithoutCancel(t.Context())
			p, err := d.Propose(ctx, desk.Request{Action: desk.Replay, Queue: "dlq", Target: desk.Target{Queue: parked}})
			if err != nil {
				return desk.Result{}, err
			}
			return d.Execute(ctx, p, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 6
			s, all := newUnfiled(t, "quorum", n)
			s.execute(t, desk.Request{Action: desk.Park, Queue: "dlq", Limit: n / 2})
			run := takenBy(t, unfiled(t, s.target).Holding(), desk.Request{Action: desk.Restore, Queue: parked}, n/2)
			lock := topology.DeskLockName(topology.DeskName, parked+" exists")
			other := s.lock(t, lock) // it has proven that the queue is empty
			asked, ended := make(chan struct{}), make(chan error)
			d := unfiled(t, noticing(t, s.target, lock, func() { close(asked) }))
			d.Allow = []string{parked} // it deletes messages after 30 days
			go func() {
				r, err := work(d, run)
				if err == nil && (r.Moved != n/2 || !r.Ended) {
					err = fmt.Errorf("%+v", r)
				}
				ended <- err
			}()
			brokertest.Eventually(t, "the run to wait for the lock, or not", func() bool {
				select {
				case <-asked:
					return true
				case err := <-ended:
					t.Fatalf("it has ended: %v", err)
					return true
				default:
					return readyIn(t, s.ch, parked) > 0
				}
			})
			brokertest.Delete(t, s.ch, parked)
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if run = s.onlyRun(t); run != "" {
				if _, err := s.desk.Resume(t.Context(), run, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			got := append(identities(s.drained(t, "dlq")), identities(s.drained(t, parked))...)
			if lost, doubled := compareCounts(all, got); lost+doubled > 0 {
				t.Errorf("%d lost, %d doubled", lost, doubled)
			}
			brokertest.Delete(t, s.ch, parked)
			s.tidyDesk(t)
		})
	}
}

// What a killed run without a file may have in its hold and in the queue is not taken by the desk
// of a topology that was applied since.
func TestARunOfAnotherDeskIsNotTakenTwice(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s, all := newUnfiled(t, "quorum", 600)
	k := task{Action: desk.Replay, StallIn: desk.Taking, StallAt: 300}
	if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
		t.Fatal("it was not killed")
	}
	run := s.onlyRun(t)
	other := s.deskOn(t, s.target)
	other.Topology.Name = "shop"
	brokertest.Eventually(t, "what the killed process held to be back", func() bool {
		return readyIn(t, s.ch, "dlq") > 0
	})
	p, err := other.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "dlq"})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the run %s has not taken all of its messages from dlq, and some may be in its hold too; continue it first with 'dlxctl desk run resume %s --name desk', or end it with 'dlxctl desk run return %s --name desk'", run, run, run)
	if r, err := other.Execute(t.Context(), p, nil); err == nil || err.Error() != want {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.desk.Return(context.WithoutCancel(t.Context()), run, nil); err != nil {
		t.Fatal(err)
	}
	if lost, doubled := compareCounts(all, identities(s.drained(t, "dlq"))); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
}

// tidyDesk checks that nothing of a run without a file is left on the broker.
func (s *shop) tidyDesk(tb testing.TB) { tb.Helper(); s.tidyOf(tb, "desk.") }
