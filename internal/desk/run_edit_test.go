package desk_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// editStopped edits one of four dead letters through a hold. The run is interrupted when it
// publishes what contains a text, or else opens no connection after that before it has heard a
// failure.
func (s *shop) editStopped(t *testing.T, text string, interrupted bool) desk.Result {
	t.Helper()
	s.bury(t, 4)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	failed, fail := context.WithCancel(t.Context())
	defer fail()
	var published atomic.Bool
	d := s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		if published.Load() && !interrupted {
			<-failed.Done()
		}
		publishes := false
		brokertest.Forward(client, server, func(piece []byte) bool {
			publishes = publishes || bytes.Contains(piece, []byte("desk publishes"))
			if publishes && bytes.Contains(piece, []byte(text)) {
				published.Store(true)
				if interrupted {
					interrupt()
				}
			}
			return true
		})
	})).Holding()
	q := request(t, desk.Edit)
	q.Edited = &deadletter.Edited{Body: []byte(`{"order": 9}`), MessageID: "new"}
	q.Send = desk.SendOptions{Ramp: []int{1}, StopFailures: 1}
	p, err := d.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Execute(ctx, p, func(p desk.Progress) {
		if p.FailedAgain > 0 {
			fail()
		}
	})
	if err != nil || !published.Load() {
		t.Errorf("%+v, %v", r, err)
	}
	return r
}

// An edit with a hold that is interrupted while the broker confirms finishes what it has begun:
// neither the edited message nor the original is doubled, and the hold has nothing to return.
func TestAnInterruptedEditDoublesNothing(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"the edited message": `{"order": 9}`, "the original": "desk-parked-as"} {
		for how, returned := range map[string]bool{"resumed": false, "returned": true} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "quorum")
				r := s.editStopped(t, text, true)
				if r.Stopped != "interrupted" || r.Moved != 1 || r.Left != 0 {
					t.Errorf("%+v", r)
				}
				end := s.desk.Return
				if !returned {
					end = func(ctx context.Context, run string, progress func(desk.Progress)) (desk.Result, error) {
						return s.desk.Resume(ctx, run, nil, progress)
					}
				}
				if r, err := end(t.Context(), r.Run, nil); err != nil || !r.Ended || r.Moved != 0 {
					t.Errorf("%+v, %v", r, err)
				}
				for queue, n := range map[string]int{"billing": 1, "shop.parked": 1, "billing.dead": 3} {
					s.awaitReady(t, queue, n)
				}
				s.tidy(t)
			})
		}
	}
}

// A consumer rejects an edited message before the run has noted that it is sent. The run says that
// it failed again, and has ended: the message is sent once, and its original is parked once.
func TestAnEditThatFailsAtOnceIsSentOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.consume(t, "billing", func(amqp091.Delivery) bool { return true })
	r := s.editStopped(t, `{"order": 9}`, false)
	const why = `1 of 1 messages failed again, the last one with key "order.chosen": rejected`
	if r.Stopped != why || !r.Ended || r.Moved != 1 || r.FailedAgain != 1 {
		t.Errorf("%+v", r)
	}
	if !r.Ended {
		if r, err := s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	for queue, n := range map[string]int{"shop.quick.failed": 1, "shop.parked": 1, "billing.dead": 3} {
		s.awaitReady(t, queue, n)
	}
	s.tidy(t)
}

// The original of an edit that is parked already stays parked from its dead-letter queue: a restore
// brings it back there, as it was.
func TestAnEditOfAParkedMessageCanBeRestored(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprint("with a hold ", holds), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.fill(t, 1)
			was := content(s.peeked(t, "billing.dead")[0])
			s.execute(t, request(t, desk.Park))
			if holds {
				s.desk.Holding()
			}
			s.execute(t, desk.Request{
				Action: desk.Edit, Queue: "shop.parked", Edited: &deadletter.Edited{Body: []byte(`{"order": 9}`), MessageID: "new"},
			})
			s.execute(t, desk.Request{Action: desk.Restore, Queue: "shop.parked"})
			for queue, n := range map[string]int{"billing": 1, "shop.parked": 0, "billing.dead": 1} {
				s.awaitReady(t, queue, n)
			}
			if diff := cmp.Diff(was, content(s.drained(t, "billing.dead")[0])); diff != "" {
				t.Errorf("the message changed (-was +is):\n%s", diff)
			}
			s.tidy(t)
		})
	}
}

// An edit whose connection ends when the broker has the edited message, and has not confirmed it,
// says that it may be sent twice.
func TestAnEditIsCut(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 4)
	const body = `{"order": 9}`
	s.cuttable(t, "publishes", body)
	s.desk.Holding()
	q := request(t, desk.Edit)
	q.Edited = &deadletter.Edited{Body: []byte(body), MessageID: "new"}
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.desk.Execute(t.Context(), p, nil)
	if err == nil || r.Left != 1 || r.DoubledAtMost != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.deskOn(t, s.target).Resume(t.Context(), r.Run, nil, nil); err != nil || !r.Ended || r.Moved != 1 {
		t.Fatalf("resumed: %+v, %v", r, err)
	}
	if sent := len(s.drained(t, "billing")); sent < 1 || sent > 1+r.DoubledAtMost {
		t.Errorf("the edited message was sent %d times", sent)
	}
	s.awaitReady(t, "shop.parked", 1)
	s.tidy(t)
}
