package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// during returns a runner that calls what when it prints a line that begins with step, at most
// times, and what it prints.
func (s *stage) during(t *testing.T, step string, times int, what func()) (*migrate.Runner, *strings.Builder) {
	t.Helper()
	r, told := s.replacer(t), new(strings.Builder)
	said := r.Report
	r.Report = func(format string, args ...any) {
		said(format, args...)
		line := fmt.Sprintf(format, args...)
		fmt.Fprintln(told, line)
		if strings.HasPrefix(line, step) && times > 0 {
			times--
			what()
		}
	}
	return r, told
}

// bound reports whether the queue new has all bindings of the file.
func (s *stage) bound(t *testing.T) bool {
	t.Helper()
	state := s.inspect(t)
	have := map[string]bool{}
	for _, b := range state.Have.Bindings {
		b.Arguments = b.Arguments.Without(topology.ArgManagedBy)
		have[b.Identity()] = true
	}
	for _, b := range s.want.Bindings {
		b.Arguments = b.Arguments.Without(topology.ArgManagedBy)
		if b.Destination == "new" && !have[b.Identity()] {
			return false
		}
	}
	return true
}

// nothingLeft checks that no queue of a replacement is left.
func (s *stage) nothingLeft(t *testing.T) {
	t.Helper()
	for _, q := range s.inspect(t).Have.Queues {
		if topology.IsSwitchName("shop", q.Name) {
			t.Errorf("the queue %s is left", q.Name)
		}
	}
}

// While a consumer has a message of the hold, the hold stays: the run ends after its wait and says
// so, and the next one finishes.
func TestReplaceEndsWhileTheHoldIsConsumed(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	thief := s.target.Channel(t)
	if err := thief.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	var held amqp091.Delivery
	r, _ := s.during(t, "replace: proving", 1, func() {
		s.send(t, "f", "", "held", nil)
		deliveries, err := thief.Consume(topology.ReplacementHoldName("shop", "new"), "", false, false, false, false, nil)
		if err != nil {
			t.Error(err)
			return
		}
		held = <-deliveries
	})
	r.Wait = 3 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	err := r.Run(ctx)
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "its hold cannot be deleted") {
		t.Errorf("it returns %v", err)
	}
	if held.MessageId != "held" {
		t.Fatalf("the consumer of the hold has %q", held.MessageId)
	}
	if err := thief.Close(); err != nil { // the message is in the hold again
		t.Fatal(err)
	}
	if err := s.replacer(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replaced(t)
	if d := brokertest.Take(t, s.target.Channel(t), "new"); d.MessageId != "held" {
		t.Errorf("the queue has %q", d.MessageId)
	}
}

// What another client deletes while a queue is replaced is not a success: a run fails if the queue
// lacks a binding in the end, or if the hold was deleted; then the queue is bound nevertheless.
func TestReplaceIsDisturbed(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	hold := topology.ReplacementHoldName("shop", "new")
	deleteHold := func(t *testing.T, ch *amqp091.Channel) {
		t.Helper()
		if _, err := ch.QueueDelete(hold, false, false, false); err != nil {
			t.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		step  string
		what  func(t *testing.T, ch *amqp091.Channel)
		says  string
		bound bool
	}{
		"a binding is deleted at the end": {"replace: delete the switch", func(t *testing.T, ch *amqp091.Channel) {
			t.Helper()
			if err := ch.QueueUnbind("new", "", "f", nil); err != nil {
				t.Error(err)
			}
		}, "f -> new", false},
		"the hold is deleted before the queue is": {"replace: proving", deleteHold, hold, true},
		"the hold is deleted after the queue is":  {"replace: moving", deleteHold, hold, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			ch := s.target.Channel(t)
			r, _ := s.during(t, tc.step, 1, func() { tc.what(t, ch) })
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			err := r.Run(ctx)
			if !errors.Is(err, migrate.ErrDisturbed) || !strings.Contains(fmt.Sprint(err), tc.says) {
				t.Errorf("it returns %v", err)
			}
			if s.bound(t) != tc.bound {
				t.Errorf("the queue has the bindings of the file: %t", !tc.bound)
			}
			s.nothingLeft(t)
		})
	}
}

// A queue that another run has replaced during the proof is not deleted.
func TestReplaceLeavesAReplacedQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	ch := s.target.Channel(t)
	r, told := s.during(t, "replace: proving", 1, func() {
		if _, err := ch.QueueDelete("new", false, false, false); err != nil {
			t.Error(err)
		}
		for _, q := range s.want.Queues {
			if q.Name != "new" {
				continue
			}
			if _, err := ch.QueueDeclare("new", true, false, false, false, amqp091.Table(q.Arguments)); err != nil {
				t.Error(err)
			}
		}
		brokertest.PublishConfirmed(t, s.target.Confirming(t), "", "new", amqp091.Publishing{MessageId: "one"})
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(told.String(), "replace: deleted") {
		t.Errorf("it was deleted:\n%s", told)
	}
	s.replaced(t)
	if d := brokertest.Take(t, s.target.Channel(t), "new"); d.MessageId != "one" {
		t.Errorf("the queue has %q", d.MessageId)
	}
}

// A service that declares the queue with the old arguments after each deletion ends the
// replacement: it is rolled back, and no message is lost.
func TestReplaceGivesUpAgainstAService(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	stop := s.consumeThrough(t, "new")
	defer stop()
	published := s.publish(t, 400*time.Millisecond)
	service := s.target.Channel(t)
	r, _ := s.during(t, "replace: deleted", 100, func() {
		old := amqp091.Table{"x-queue-type": "classic"}
		if _, err := service.QueueDeclare("new", true, false, false, false, old); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "again and again") {
		t.Errorf("it returns %v", err)
	}
	confirmed := published()
	s.allArrive(t, confirmed)
	if !s.bound(t) {
		t.Error("the queue lacks bindings")
	}
	s.nothingLeft(t)
}

// A queue on which a killed run has tried the declaration, with another file, is not an obstacle,
// and an abort deletes it.
func TestReplaceWithATrialOfAKilledRun(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	trial := func(t *testing.T, s *stage) {
		t.Helper()
		args := amqp091.Table{"x-queue-type": "quorum", "x-max-length": 7, "x-managed-by": topology.DeskMark("shop")}
		name := topology.SwitchExchangeName("shop", "new") + ".trial"
		if _, err := s.target.Channel(t).QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Error(err)
		}
	}
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
		trial(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		if err := s.replacer(t).Run(ctx); err != nil {
			t.Fatal(err)
		}
		s.replaced(t)
		s.nothingLeft(t)
	})
	t.Run("abort", func(t *testing.T) {
		t.Parallel()
		s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := s.during(t, "replace: unbind new", 1, cancel)
		if err := r.Run(ctx); err == nil {
			t.Fatal("it was not stopped")
		}
		trial(t, s)
		if err := s.replacer(t).Abort(t.Context(), s.without(t)); err != nil {
			t.Fatal(err)
		}
		if !s.bound(t) {
			t.Error("the queue lacks bindings")
		}
		s.nothingLeft(t)
	})
}

// Stopped while messages wait in the hold, a replacement is kept from a file that no longer has the
// queue: that plan is blocked, the status names the hold, and the run with the first file finishes.
func TestReplaceOutlivesAFileWithoutTheQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{"replace: proving", "replace: deleted", "replace: moving"} {
		t.Run(strings.TrimPrefix(step, "replace: "), func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			file := func(typ string) string {
				return fmt.Sprintf(managedFile, "2s", "{name: new, type: "+typ+`, bindings: [{exchange: events, key: "order.#"}]}`)
			}
			before := newStageIn(t, target, file("classic"), "", nil)
			before.apply(t, before.want)
			s := newStageIn(t, target, file("quorum"), "", nil)
			without := newStageIn(t, target, fmt.Sprintf(managedFile, "2s", "{name: other}"), "", nil)
			s.send(t, "events", "order.new", "first", nil)
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := s.during(t, step, 1, func() { s.send(t, "events", "order.new", "second", nil); cancel() })
			if err := r.Run(ctx); err == nil {
				t.Fatal("it was not stopped")
			}
			state := s.inspect(t)
			hold := topology.ReplacementHoldName("shop", "new")
			p := plan.Make(without.want, state, plan.Options{Prune: true})
			if err := plan.Check(p, plan.Allow(topology.Hazards()...)); !errors.Is(err, plan.ErrBlocked) {
				t.Errorf("Check returns %v", err)
			}
			for _, c := range p.Changes {
				if c.Kind == topology.KindQueue && (c.Name == hold || c.Name == "new") && c.Action != plan.Blocked {
					t.Errorf("the plan has: %s %s", c.Action, c.Name)
				}
			}
			var status strings.Builder
			if err := migrate.WriteStatuses(&status, without.want, state, nil, migrate.None); err != nil ||
				!strings.Contains(status.String(), hold+": ") {
				t.Errorf("the status is %q: %v", &status, err)
			}
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.replaced(t)
			ch := s.target.Channel(t)
			for _, id := range []string{"first", "second"} {
				if d := brokertest.Take(t, ch, "new"); d.MessageId != id {
					t.Errorf("the queue has %q, not %q", d.MessageId, id)
				}
			}
		})
	}
}

// A replacement that goes on with another file makes what the queue of that file needs for its
// failures, so that what consumers reject then is retried.
func TestReplaceGoesOnWithABackoff(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{"replace: proving", "replace: deleted"} {
		t.Run(strings.TrimPrefix(step, "replace: "), func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			first := replaceStageOf(t, target, "quorum", "classic", nil, "    deadLetterBy: unmanaged\n")
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := first.during(t, step, 1, cancel)
			if err := r.Run(ctx); err == nil {
				t.Fatal("it was not stopped")
			}
			file := strings.Replace(fmt.Sprintf(topologyFile, "classic"), "    replaces: old\n", "", 1)
			s := newStageIn(t, target, file, "", nil)
			r, _ = s.during(t, "replace: moving", 1, func() {
				// A retry that comes back now has a route, to the hold.
				s.send(t, topology.ReturnExchangeName("shop"), topology.AddressKey("new"), "back", nil)
			})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.replaced(t)
			ch := s.target.Channel(t)
			d, ok, err := ch.Get("new", false)
			if err != nil || !ok || d.MessageId != "back" {
				t.Fatalf("the queue has %q: %t, %v", d.MessageId, ok, err)
			}
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
			if d := brokertest.Take(t, ch, "shop.quick.failed"); d.MessageId != "back" {
				t.Errorf("the failed queue has %q", d.MessageId)
			}
		})
	}
}

// What the broker refuses to declare is known before the queue is deleted, also if another file
// began the replacement: it is rolled back.
func TestReplaceGoesOnWithARefusedDeclaration(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	before := bindingsOf(s.inspect(t))
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := s.during(t, "replace: proving", 1, func() { s.send(t, "f", "", "one", nil); cancel() })
	if err := r.Run(ctx); err == nil {
		t.Fatal("it was not stopped")
	}
	for i, q := range s.want.Queues {
		if q.Name == "new" { // see TestReplaceWithARefusedDeclaration
			s.want.Queues[i].Arguments = q.Arguments.With("x-quorum-initial-group-size", int64(-1))
		}
	}
	if err := s.replacer(t).Run(t.Context()); !errors.Is(err, migrate.ErrRefused) {
		t.Errorf("it returns %v", err)
	}
	if d := cmp.Diff(before, bindingsOf(s.inspect(t))); d != "" || !s.exists(t, "new") {
		t.Fatalf("bindings (-before +after):\n%s", d)
	}
	if n := s.count(t, "new"); n["one"] != 1 || len(n) != 1 {
		t.Errorf("the queue has %v", n)
	}
	s.nothingLeft(t)
}

// While a queue is being replaced under its name, a migration to a successor, which has the same
// switch exchange, is refused, and so is its abort; and the other way round. Nothing is doubled,
// and each ends with its own file.
func TestReplaceAndMigrateExcludeEachOther(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	files := func(t *testing.T) (replaced, moved *stage) {
		t.Helper()
		target := brokertest.VHost(t)
		file := func(queue string) *stage {
			queue = "{" + queue + `, bindings: [{exchange: events, key: "order.#"}]}`
			return newStageIn(t, target, fmt.Sprintf(managedFile, "2s", queue), "", nil)
		}
		before := file("name: new, type: classic")
		before.apply(t, before.want)
		return file("name: new"), file("name: new.v2, replaces: new")
	}
	for _, step := range []string{"replace: create the switch", "replace: proving", "replace: deleted"} {
		t.Run(strings.TrimPrefix(step, "replace: "), func(t *testing.T) {
			t.Parallel()
			s, moved := files(t)
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := s.during(t, step, 1, func() { s.send(t, "events", "order.new", "one", nil); cancel() })
			if err := r.Run(ctx); err == nil {
				t.Fatal("it was not stopped")
			}
			hold := topology.ReplacementHoldName("shop", "new")
			for _, legacy := range [][]string{nil, {"new"}} {
				r, told := moved.listen(t)
				r.Legacy = legacy
				if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), hold) {
					t.Errorf("migrate returns %v", err)
				}
				err := r.Abort(t.Context(), moved.without(t))
				if errors.Is(err, migrate.ErrRefused) == (legacy == nil) || !strings.Contains(told.String()+fmt.Sprint(err), hold) {
					t.Errorf("abort returns %v, and says %s", err, told)
				}
			}
			for _, end := range []*migrate.Runner{s.replacer(t), moved.runner(t)} {
				if err := end.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := moved.count(t, "new.v2"); n["one"] != 1 || len(n) != 1 {
				t.Errorf("the successor has %v", n)
			}
		})
	}
	t.Run("a migration", func(t *testing.T) {
		t.Parallel()
		s, moved := files(t)
		r := moved.runner(t)
		r.Until = migrate.Cutover
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := s.replacer(t).Run(t.Context())
		if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "new.v2") {
			t.Errorf("it returns %v", err)
		}
		if err := moved.runner(t).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.nothingLeft(t)
	})
}

// Without the lock of the topology, nothing is replaced under its name, and no replacement is
// rolled back.
func TestReplaceNeedsTheLock(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(fmt.Sprint(err), "--lock=false") {
			t.Errorf("it returns %v", err)
		}
	}
	r := s.replacer(t)
	r.Unlocked = true
	refused(r.Run(t.Context()))
	s.nothingLeft(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun, _ := s.during(t, "replace: bind the switch", 1, cancel)
	if err := begun.Run(ctx); err == nil {
		t.Fatal("it was not stopped")
	}
	refused(r.Run(t.Context()))
	refused(r.Abort(t.Context(), s.without(t)))
	if err := s.replacer(t).Abort(t.Context(), s.without(t)); err != nil {
		t.Fatal(err)
	}
	s.nothingLeft(t)
}

// A run was killed while the broker declared the queue, which is listed and has no leader: the
// switch does not lead there. What is published waits in the hold, and comes to the queue once that
// is deleted, as the page says.
func TestReplaceWithoutALeader(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	s := replaceStage(t, node.VHost(t), "classic", "quorum", nil)
	ctx, stop := context.WithCancel(t.Context())
	r := s.replacer(t)
	r.Report = func(format string, args ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, args...), "replace: declared") {
			stop()
		}
	}
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first run: %v", err)
	}
	node.Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"new">>)),
		ok = ra:force_delete_server(quorum_queues, amqqueue:get_pid(Q)).`, s.target.VHost))
	for range 2 {
		if err := s.replacer(t).Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) ||
			!strings.Contains(err.Error(), "the queue new must answer before messages are routed to it") {
			t.Fatalf("without a leader: %v", err)
		}
		brokertest.PublishConfirmed(t, s.target.Confirming(t), "f", "", amqp091.Publishing{MessageId: "1"})
	}
	brokertest.Delete(t, s.target.Channel(t), "new")
	if err := s.replacer(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replaced(t)
	if n := s.ready(t, "new"); n != 2 {
		t.Errorf("%d messages came, want 2", n)
	}
}
