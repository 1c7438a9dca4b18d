package desk_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// While the broker accepts no messages, because of an alarm, a look does not give back a message
// that the broker would drop then, and of which it has no copy. A look that begins during the alarm
// is refused, and none hangs.
func TestLooksDuringAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	target := node.VHost(t)
	filledQueue(t, target, "dlq", 4, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)})
	calm, err := deskOf(t, target).Management.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	runs := runsUnderAnAlarm(t, node)
	if target.AtLeast("4.3") { // before, each queue counts for itself
		t.Run("that passes", func(t *testing.T) { lookThroughAnAlarm(t, node) })
		t.Run("that lasts", func(t *testing.T) { lookUnderAnAlarm(t, node) })
	}
	node.Alarm(t, true)
	t.Run("runs", runs)
	ignore := func(deadletter.Message) error { return nil }
	for name, look := range map[string]func(context.Context, *desk.Desk) error{
		"that is known": func(ctx context.Context, d *desk.Desk) error {
			_, err := d.Look(ctx, "dlq", desk.LookOptions{}, ignore)
			return err
		},
		"that is not known": func(ctx context.Context, d *desk.Desk) error {
			_, err := d.LookIn(ctx, calm, "dlq", desk.LookOptions{}, ignore)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			began := time.Now()
			err := look(ctx, deskOf(t, target))
			if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "accepts no messages") {
				t.Errorf("error %v", err)
			}
			t.Logf("after %s: %v", time.Since(began), err)
		})
	}
}

// runsUnderAnAlarm proposes runs, and stops one. The test that it returns is for the time of an
// alarm: what publishes is refused in time, and leaves no hold. What deletes a few messages
// publishes none.
func runsUnderAnAlarm(t *testing.T, node *brokertest.Server) func(t *testing.T) {
	t.Helper()
	s, all := newUnfiledOn(t, node.VHost(t), "classic", 3) // without a delivery limit
	stopped, _ := newUnfiledOn(t, node.VHost(t), "classic", 3)
	run := takenBy(t, unfiled(t, stopped.target).Holding(), choosing(t, 1), 1)
	discard := func(d *desk.Desk, forever bool) func(context.Context) (desk.Result, error) {
		p, err := d.Propose(t.Context(), desk.Request{Action: desk.Discard, Queue: "dlq", Forever: forever})
		if err != nil || len(p.Refusals) > 0 {
			t.Fatal(p.Refusals, err)
		}
		return func(ctx context.Context) (desk.Result, error) { return d.Execute(ctx, p, nil) }
	}
	refused := map[string]func(context.Context) (desk.Result, error){
		"parks":                discard(unfiled(t, s.target), false),
		"deletes, with a hold": discard(unfiled(t, s.target).Holding(), true),
		"resumed": func(ctx context.Context) (desk.Result, error) {
			return stopped.desk.Resume(ctx, run, nil, nil)
		},
	}
	deletes := discard(unfiled(t, s.target), true)
	return func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for name, does := range refused {
			if r, err := does(ctx); !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "end the alarm") {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if run := s.onlyRun(t); run != "" {
			t.Errorf("the run %s has a hold", run)
		}
		if r, err := deletes(ctx); err != nil || r.Moved != len(all) {
			t.Errorf("deletes few: %+v, %v", r, err)
		}
	}
}

// alarmPause is how long a look under an alarm may stand still.
const alarmPause = 4 * time.Second

// spentUnderAlarm looks at a queue with two messages above the limit. The alarm begins while they
// are held: the times of its begin and the end of the look are sent.
func spentUnderAlarm(
	t *testing.T, node *brokertest.Server, o desk.LookOptions,
) (target brokertest.Target, alarmed chan time.Time, ended chan lookEnd) {
	t.Helper()
	target, alarmed, ended = node.VHost(t), make(chan time.Time, 1), make(chan lookEnd, 1)
	spentQueue(t, target, amqp091.Table{"x-delivery-limit": int64(3)}, 1, 1, 5, 5)
	go func() {
		l, err := deskOf(t, target).Pausing(alarmPause).Look(t.Context(), "dlq", o, func(m deadletter.Message) error {
			if m.Position == 1 {
				node.Alarm(t, true)
				alarmed <- time.Now()
			}
			return nil
		})
		ended <- lookEnd{l, err}
	}()
	return target, alarmed, ended
}

type lookEnd struct {
	desk.Looked
	err error
}

// lookThroughAnAlarm looks while an alarm begins, which passes in the time of the look.
func lookThroughAnAlarm(t *testing.T, node *brokertest.Server) {
	t.Helper()
	target, alarmed, ended := spentUnderAlarm(t, node, desk.LookOptions{})
	began := <-alarmed
	brokertest.Eventually(t, "the alarm to last", func() bool { return time.Since(began) > 4*alarmPause })
	ch := target.Channel(t)
	if ready := readyIn(t, ch, "dlq"); ready > 0 {
		t.Errorf("%d messages were given back during the alarm", ready)
	}
	node.Alarm(t, false)
	if e := <-ended; e.err != nil || e.Looked.Looked != 4 || !strings.Contains(e.Cost, "moved 2 messages to the tail") {
		t.Errorf("looked at %d, cost %q, error %v", e.Looked.Looked, e.Cost, e.err)
	}
	brokertest.Eventually(t, "all messages", func() bool { return readyIn(t, ch, "dlq") == 4 })
	if got := idsOf(consumedFrom(t, target, "dlq", 4)); !slices.Equal(got, numbersFrom(0, 4)) {
		t.Errorf("the queue has %v", got)
	}
}

// lookUnderAnAlarm looks while an alarm begins that lasts longer than the look may.
func lookUnderAnAlarm(t *testing.T, node *brokertest.Server) {
	t.Helper()
	_, alarmed, ended := spentUnderAlarm(t, node, desk.LookOptions{Hold: alarmPause})
	began := <-alarmed
	select {
	case e := <-ended:
		if e.err == nil || !strings.Contains(e.err.Error(), "could not be copied") {
			t.Errorf("the look ended with %v", e.err)
		}
		t.Logf("after %s: %v", time.Since(began), e.err)
	case <-time.After(time.Minute):
		t.Error("the look hangs")
	}
}
