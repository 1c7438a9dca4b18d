package desk_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// interruptChange leaves the topology as an apply does that is killed in the middle of a change of
// the backoff of billing: failures take the alternate exchange. finish does the rest.
func (s *shop) interruptChange(t *testing.T) (finish func()) {
	t.Helper()
	i := slices.IndexFunc(s.topology.Bindings, func(b topology.Binding) bool {
		return b.Source == "shop.failed" && b.Key == "@billing"
	})
	b := s.topology.Bindings[i]
	args := amqp091.Table(b.Arguments)
	brokertest.Bind(t, s.ch, b.Destination, b.Key, "shop.failed.next", args)
	brokertest.Unbind(t, s.ch, b.Destination, b.Key, "shop.failed", args)
	return func() {
		t.Helper()
		brokertest.Bind(t, s.ch, b.Destination, b.Key, "shop.failed", args)
		brokertest.Unbind(t, s.ch, b.Destination, b.Key, "shop.failed.next", args)
	}
}

// A run takes no failure away that goes through the alternate exchange, in the middle of a change
// of a backoff: it does not begin, or stops before it sends anything.
func TestNoFailureIsLostInAnInterruptedChange(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 80)
	s.consume(t, "billing", func(amqp091.Delivery) bool { return true })
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	finish := s.interruptChange(t)
	const why = "a change of the backoff of billing is not finished"
	r, err := s.desk.Execute(t.Context(), p, nil)
	if err != nil || !r.Direct || r.LeftInQueue != len(chosen) || !strings.Contains(r.Stopped, why) ||
		!strings.HasSuffix(r.Stopped, "run 'dlxctl apply' first, then do the rest") {
		t.Fatalf("it did not stop before it sent anything: %+v, %v", r, err)
	}
	if r, err = s.deskOn(t, s.target).Holding().Execute(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	says := "run 'dlxctl apply' first, then 'dlxctl desk run resume " + r.Run + "'"
	if r.Moved > 0 || r.Left != len(chosen) || !strings.Contains(r.Stopped, why) || !strings.HasSuffix(r.Stopped, says) {
		t.Fatalf("it did not stop before it sent anything: %+v", r)
	}
	late, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil || late.Chosen > 0 { // the others are in the hold
		t.Fatal(late.Chosen, err)
	}
	again := request(t, desk.Replay)
	again.Filter = nil
	late, err = s.desk.Propose(t.Context(), again)
	if err != nil || len(late.Refusals) != 1 || !strings.Contains(late.Refusals[0], why) {
		t.Errorf("a run that begins now is not refused: %q, %v", late.Refusals, err)
	}
	finish()
	if r, err = s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil || r.Moved != len(chosen) {
		t.Fatalf("%+v, %v", r, err)
	}
	s.awaitReady(t, "shop.quick.failed", len(chosen))
	s.tidy(t)
}

// lockTopology takes the lock of the topology, as apply does.
func (s *shop) lockTopology(t *testing.T) *amqp.Conn {
	t.Helper()
	e := s.desk.Endpoint
	e.ConnectionName = "dlxctl apply shop (other@there)"
	conn, err := amqp.Dial(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.Lock(topology.LockName("shop")); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A run waits for the end of a command that changes the topology, says so, can be interrupted, and
// stops if that takes too long: with its messages in the hold. Then it sends them.
func TestARunWaitsForAChange(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	chosen, _ := s.bury(t, 80)
	lock := s.lockTopology(t)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := ""
	r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
		if p.Pausing != "" {
			said = p.Pausing
		}
		if strings.Contains(said, "dlxctl apply shop (other@there)") {
			cancel()
		}
	})
	const taken = `another dlxctl holds the lock of the topology "shop"`
	if err != nil || r.Stopped != "interrupted" || r.Left != len(chosen) || !strings.HasPrefix(said, taken) {
		t.Fatalf("%+v, %v, said %q", r, err, said)
	}
	hurried := s.deskOn(t, s.target)
	hurried.ChangeWait = 500 * time.Millisecond
	r, err = hurried.Resume(t.Context(), r.Run, nil, nil)
	if err != nil || r.Left != len(chosen) || !strings.HasPrefix(r.Stopped, taken) ||
		!strings.Contains(r.Stopped, "desk run resume "+r.Run) {
		t.Fatalf("%+v, %v", r, err)
	}
	r, err = s.desk.Resume(t.Context(), r.Run, nil, func(p desk.Progress) {
		if p.Pausing != "" && lock != nil {
			_ = lock.Close()
			lock = nil
		}
		if p.Done > 0 && !s.lockIsFree(t) {
			t.Error("the run holds the lock of the topology while it sends")
		}
	})
	if err != nil || r.Moved != len(chosen) || lock != nil {
		t.Errorf("%+v, %v", r, err)
	}
	s.tidy(t)
}

// A run without a hold that a command keeps waiting for too long names what can be done: there is
// no run that could be resumed.
func TestADirectRunThatWaitedIsRepeated(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 4)
	s.lockTopology(t)
	s.desk.ChangeWait = 500 * time.Millisecond
	r := s.execute(t, request(t, desk.Replay))
	if !r.Direct || r.LeftInQueue != 1 || !strings.HasSuffix(r.Stopped, "; wait for its end, then do the rest") {
		t.Fatalf("%+v", r)
	}
}

// lockIsFree reports whether another command can change the topology.
func (s *shop) lockIsFree(t *testing.T) bool {
	t.Helper()
	ch := s.target.Channel(t)
	_, err := ch.QueueDeclare(topology.LockName("shop"), false, false, true, false, nil)
	if err == nil {
		_, err = ch.QueueDelete(topology.LockName("shop"), false, false, false)
	}
	return err == nil
}

// executeWaiting executes a request while another command has the lock of the topology. It calls
// change once the run waits for that, and then frees the lock.
func (s *shop) executeWaiting(t *testing.T, q desk.Request, change func()) desk.Result {
	t.Helper()
	lock := s.lockTopology(t)
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	free := sync.OnceFunc(func() { change(); _ = lock.Close() })
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		if p.Pausing != "" {
			free()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A run without a hold that waited for an apply which has deleted its work queue sends nothing: the
// return exchange would bring it to the unroutable queue.
func TestADirectRunThatWaitedNoticesThatItsQueueIsUnbound(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.fill(t, 4)
	r := s.executeWaiting(t, request(t, desk.Replay), func() {
		if _, err := s.ch.QueueDelete("billing", false, false, false); err != nil {
			t.Error(err)
		}
	})
	if !r.Direct || r.LeftInQueue != 4 || !strings.HasSuffix(r.Stopped, "run 'dlxctl apply', then do the rest") {
		t.Fatalf("%d messages are in shop.unroutable: %+v", readyIn(t, s.ch, "shop.unroutable"), r)
	}
	s.awaitReady(t, "billing.dead", 4)
}

// A run whose work queue is deleted while it sends, and declared again by a service, stops. Once
// the queue is bound again, a resume sends the rest.
func TestARunStopsWhenItsQueueIsUnbound(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 100
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	s.fill(t, n)
	q := request(t, desk.Replay)
	q.Send.Rate = 10
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	unbind := sync.OnceFunc(func() {
		if _, err := s.ch.QueueDelete("billing", false, false, false); err != nil {
			t.Error(err)
		}
		s.declare(t, "billing", amqp091.Table{"x-queue-type": "quorum"})
	})
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		if p.Phase == desk.Sending && p.Done == 1 {
			unbind()
		}
	})
	const why = "queue billing is no longer bound to shop.return, and messages for it go to shop.unroutable, maybe also those sent in the last seconds; "
	if err != nil || !strings.HasPrefix(r.Stopped, why) || r.Moved > n/2 || r.Moved+r.Left != n {
		t.Fatalf("%d messages are in shop.unroutable: %+v, %v", readyIn(t, s.ch, "shop.unroutable"), r, err)
	}
	brokertest.Bind(t, s.ch, "billing", "@billing", "shop.return", nil)
	left := r.Left
	if r, err = s.desk.Resume(t.Context(), r.Run, &desk.SendOptions{}, nil); err != nil || r.Moved != left {
		t.Errorf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing", left)
	s.tidy(t)
}
