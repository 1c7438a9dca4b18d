package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
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

// replaceStage is a stage whose file wants the queue new of a type, and whose broker has it
// with other arguments, bound as the file says.
func replaceStage(t *testing.T, target brokertest.Target, haveType, wantType string, have amqp091.Table) *stage {
	t.Helper()
	return replaceStageOf(t, target, haveType, wantType, have, "")
}

// replaceStageOf is replaceStage with more lines for the queue in the file.
func replaceStageOf(t *testing.T, target brokertest.Target, haveType, wantType string, have amqp091.Table, more string,
) *stage {
	t.Helper()
	file := strings.Replace(fmt.Sprintf(topologyFile, wantType), "    replaces: old\n", more, 1)
	s := newStageIn(t, target, file, "", nil)
	s.declares = "new"
	s.legacy(t, haveType, have)
	return s
}

// replacer returns a runner that may replace the queue new.
func (s *stage) replacer(t *testing.T) *migrate.Runner {
	t.Helper()
	r := s.runner(t)
	r.Allow = []plan.Consent{{Hazard: topology.ReplacesQueue, Object: "new"}}
	r.Report = func(format string, args ...any) {
		t.Logf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...)
	}
	return r
}

// replaced checks that the queue is as the file has it, and that nothing of a replacement is left.
func (s *stage) replaced(t *testing.T) {
	t.Helper()
	s.tidy(t)
	state := s.inspect(t)
	if left := migrate.Unfinished(s.want, state); len(left) > 0 {
		t.Errorf("the hold of %v is left", left)
	}
	if plan.Differs(s.want, state, "new") || !s.exists(t, "new") {
		t.Error("the queue is not as the file has it")
	}
	p := plan.Make(s.want, state, plan.Options{})
	for _, c := range p.Changes {
		t.Errorf("left to do: %s %s %s: %s", c.Action, c.Kind, c.Name, c.Reason)
	}
	for _, c := range p.Drift {
		t.Errorf("drift: %s", c.Name)
	}
	for _, q := range state.Have.Queues {
		if topology.IsReplacementHold("shop", q) {
			t.Errorf("the queue %s is left", q.Name)
		}
	}
}

// Under load, through every type of exchange, a queue is replaced under its name: no message is
// lost and none doubled, and afterwards the plan is empty.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	for name, tc := range brokertest.ShareNamed(map[string]struct {
		have, want string
		args       amqp091.Table
	}{
		"classic to quorum": {"classic", "quorum", nil},
		"quorum to classic": {"quorum", "classic", nil},
		"quorum to quorum":  {"quorum", "quorum", amqp091.Table{"x-max-length": 100000}},
		"other arguments":   {"classic", "classic", amqp091.Table{"x-max-length": 100000, "x-message-ttl": 600000}},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), tc.have, tc.want, tc.args)
			stop := s.consumeThrough(t, "new")
			published := s.publish(t, 100*time.Millisecond)
			wait(t, 300*time.Millisecond)
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			s.allArrive(t, confirmed)
			s.replaced(t)
			stop()
		})
	}
}

// replaceSteps are how the lines begin that a replacement prints, in their order.
func replaceSteps() []string {
	return []string{
		"replace: create the hold", "replace: create the switch", "replace: bind the switch", "replace: unbind new",
		"replace: switch from new", "replace: proving", "replace: deleted", "replace: declared", "replace: moving",
		"replace: switch from its hold", "replace: moved", "replace: bind new", "replace: unbind the switch",
		"replace: delete the switch",
	}
}

// Killed at the boundary of each step, as soon as it is said, and run again: none is lost, and
// doubled is at most what the mover had in flight.
func TestReplaceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for _, types := range brokertest.Share(directions()) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], nil)
			stop := s.consumeThrough(t, "new")
			published := s.publish(t, 400*time.Millisecond)
			flags := []string{"--yes", "--settle", "50ms", "--wait", "60s", "--lock-timeout", "20s"}
			var told strings.Builder // what the runs said
			missed := 0              // steps that were done before a kill came
			log := func(line string) { fmt.Fprintln(&told, time.Now().Format("15:04:05.000"), line) }
			for _, step := range replaceSteps() {
				if step == "replace: declared" || step == "replace: moved" {
					continue // milliseconds after the line before: TestReplaceStoppedAtEachStep ends a run there
				}
				if strings.Contains(told.String(), " "+step) {
					missed++
					continue
				}
				log("run until the line that begins with: " + strings.TrimPrefix(step, "replace: "))
				if !s.killAt(t, dlxctl, flags, step, func() {}, log) {
					missed++
				}
			}
			c, out := s.command(t, dlxctl, flags...)
			if err := c.Run(); err != nil {
				t.Fatalf("the last run: %v\n%s\nthe runs:\n%s", err, out, &told)
			}
			confirmed := published()
			lost, doubled := s.account(t, confirmed)
			if lost > 0 || doubled > 3*200 || missed > 2 {
				t.Errorf("%d of %d messages were lost, %d doubled, %d kills came too late", lost, len(confirmed), doubled, missed)
				s.where(t, confirmed)
				t.Logf("the runs:\n%s\n%s", &told, out)
			}
			s.replaced(t)
			stop()
			t.Logf("%d published, %d lost, %d doubled, %d kills too late\n%s%s", len(confirmed), lost, doubled, missed,
				&told, out)
		})
	}
}

// Stopped by the end of its context at each line that it prints, and run again: none is lost or
// doubled.
func TestReplaceStoppedAtEachStep(t *testing.T) {
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	stop := s.consumeThrough(t, "new")
	published := s.publish(t, 400*time.Millisecond)
	stops := 0
	for _, step := range replaceSteps() {
		r := s.replacer(t)
		ctx, cancel := context.WithCancel(t.Context())
		said := r.Report
		r.Report = func(format string, args ...any) {
			said(format, args...)
			if strings.HasPrefix(fmt.Sprintf(format, args...), step) {
				cancel()
			}
		}
		err := r.Run(ctx)
		if ctx.Err() != nil && err != nil {
			stops++
		} else if err != nil {
			t.Fatalf("until %q: %v", step, err)
		}
		cancel()
	}
	if err := s.replacer(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	confirmed := published()
	lost, doubled := s.account(t, confirmed)
	if lost > 0 || doubled > 0 || stops < len(replaceSteps())/2 {
		t.Errorf("%d of %d messages were lost, %d doubled, in %d stops", lost, len(confirmed), doubled, stops)
		s.where(t, confirmed)
	}
	s.replaced(t)
	stop()
	t.Logf("%d published, %d lost, %d doubled, %d stops", len(confirmed), lost, doubled, stops)
}

// Killed at random moments while messages wait, and run again: none is lost, and doubled is at most
// what the mover had in flight at each kill.
func TestReplaceKilled(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for round, types := range brokertest.Share(directions()) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], nil)
			const n = 10_000
			brokertest.Fill(t, s.target.Confirming(t), "f", "", n, 100)
			published := s.publish(t, 400*time.Millisecond)
			r := rand.New(rand.NewPCG(uint64(round), 3)) //nolint:gosec // the same moments each time
			kills := 0
			for range brokertest.Rounds(6, 12) {
				c, out := s.command(t, dlxctl, "--yes", "--settle", "50ms", "--wait", "20s", "--lock-timeout", "20s")
				if killed(t, c, out, time.Duration(500+r.IntN(5000))*time.Millisecond) {
					kills++
				}
			}
			stop := s.consumeThrough(t, "new")
			c, out := s.command(t, dlxctl, "--yes", "--settle", "50ms", "--wait", "60s", "--lock-timeout", "20s")
			if err := c.Run(); err != nil {
				t.Fatalf("the last run: %v\n%s", err, out)
			}
			confirmed := published()
			for i := range n {
				confirmed[fmt.Sprint(i)] = true
			}
			lost, doubled := s.account(t, confirmed)
			if lost > 0 || doubled > kills*200 {
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
				s.where(t, confirmed)
			}
			s.replaced(t)
			stop()
			t.Logf("%d kills, %d published, %d lost, %d doubled", kills, len(confirmed), lost, doubled)
		})
	}
}

// What waits in a queue without consumers keeps its order, and stays in front of what comes
// meanwhile.
func TestReplaceInOrder(t *testing.T) {
	t.Parallel()
	for _, types := range brokertest.Share(directions()) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], nil)
			const n = 3_000
			ch := s.target.Confirming(t)
			brokertest.Fill(t, ch, "f", "", n, 100)
			r, more := s.replacer(t), 0
			said := r.Report
			r.Report = func(format string, args ...any) {
				said(format, args...)
				m := amqp091.Publishing{MessageId: fmt.Sprint(n + more), DeliveryMode: amqp091.Persistent}
				c, err := ch.PublishWithDeferredConfirm("f", "", true, false, m)
				if err != nil || !c.Wait() {
					t.Errorf("publish: %v", err)
				}
				more++
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.replaced(t)
			deliveries, err := s.target.Channel(t).Consume("new", "", true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]string, n+more)
			for i := range got {
				got[i] = (<-deliveries).MessageId
			}
			want := make([]string, n+more)
			for i := range want {
				want[i] = fmt.Sprint(i)
			}
			if !slices.Equal(got[:n], want[:n]) {
				t.Errorf("what waited is not in order: %q", got)
			}
			// Some of those that came at a switch may be behind later ones.
			slices.Sort(got[n:])
			slices.Sort(want[n:])
			if !slices.Equal(got[n:], want[n:]) {
				t.Errorf("after what waited come %q", got[n:])
			}
		})
	}
}

// Consumers that do not subscribe again are counted: the replacement waits for them, and ends
// without them only with consent.
func TestReplaceMissesConsumers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	s.connect(t, s.target.Tool(t, "policymaker", "monitoring")) // sees the connections of others
	silent := s.target.Channel(t)
	if _, err := silent.Consume("new", "silent", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	stop := s.consumeThrough(t, "new")
	defer stop()
	// A connection that the statistics do not show yet, which are late, is not named.
	brokertest.Eventually(t, "the statistics to show both consumers", func() bool {
		names, err := s.m.Subscribers(t.Context(), "new")
		return err == nil && len(names) == 2
	})
	r := s.replacer(t)
	r.Wait = 3 * time.Second
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "1 consumer, and had 2") {
		t.Errorf("it returns %v", err)
	}
	named := regexp.MustCompile(`still connected, and does not consume it: (\S+ -> \S+) .*/api/connections/`).FindAllStringSubmatch(fmt.Sprint(err), -1)
	if len(named) != 1 {
		t.Fatalf("it names %v: %v", named, err)
	}
	s.target.Call(t, "DELETE", "connections/"+url.PathEscape(named[0][1]), nil) // as it says
	brokertest.Eventually(t, "the connection of the silent consumer to be closed", silent.IsClosed)
	s.endsWithoutThem(t)
}

// endsWithoutThem ends a replacement that misses consumers: messages come to the queue all the
// time, and with consent the run ends.
func (s *stage) endsWithoutThem(t *testing.T) {
	t.Helper()
	s.send(t, "f", "", "one", nil)
	if lost, doubled := s.account(t, map[string]bool{"one": true}); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	r := s.replacer(t)
	r.Allow = append(r.Allow, plan.Consent{Hazard: topology.StopsConsumers, Object: "new"})
	if err := r.Run(t.Context()); err != nil {
		t.Error(err)
	}
	s.replaced(t)
}

// A message that no consumer acknowledges keeps the queue: after the wait everything is as it was.
func TestReplaceRollsBack(t *testing.T) {
	t.Parallel()
	for _, typ := range brokertest.Share([]string{"classic", "quorum"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), typ, map[string]string{"classic": "quorum", "quorum": "classic"}[typ], nil)
			before := s.inspect(t)
			stuck := s.target.Channel(t)
			deliveries := brokertest.Consume(t, stuck, "new", 1)
			s.send(t, "f", "", "held", nil)
			held := <-deliveries
			stop := s.consumeThrough(t, "new")
			published := s.publish(t, 400*time.Millisecond)
			r := s.replacer(t)
			r.Wait = 10 * time.Second // the rollback waits as long for the switch while messages come to the hold
			if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "is not empty") {
				t.Errorf("it returns %v", err)
			}
			confirmed := published()
			if err := held.Reject(false); err != nil { // no dead-lettering
				t.Error(err)
			}
			s.allArrive(t, confirmed)
			stop()
			s.tidy(t)
			if d := cmp.Diff(bindingsOf(before), bindingsOf(s.inspect(t))); d != "" {
				t.Errorf("bindings (-before +after):\n%s", d)
			}
			if left := migrate.Unfinished(s.want, s.inspect(t)); len(left) > 0 {
				t.Errorf("the hold of %v is left", left)
			}
		})
	}
}

// bindingsOf returns the bindings of the queue new, without those of the return path.
func bindingsOf(state topology.State) []string {
	var out []string
	for _, b := range state.Have.Bindings {
		if b.Destination == "new" && b.Source != topology.ReturnExchangeName("shop") {
			out = append(out, b.Identity())
		}
	}
	slices.Sort(out)
	return out
}

// Stopped at any step before the deletion, a replacement is rolled back under load: the queue is as
// it was, and each message has come once. Afterwards abort refuses.
func TestReplaceAborted(t *testing.T) {
	t.Parallel()
	for _, step := range brokertest.Share(replaceSteps()[:7]) {
		t.Run(strings.TrimPrefix(step, "replace: "), func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			before := s.inspect(t)
			stop := s.consumeThrough(t, "new")
			published := s.publish(t, 400*time.Millisecond)
			r := s.replacer(t)
			ctx, cancel := context.WithCancel(t.Context())
			r.Report = func(format string, args ...any) {
				if strings.HasPrefix(fmt.Sprintf(format, args...), step) {
					cancel()
				}
			}
			if err := r.Run(ctx); err == nil {
				t.Fatal("it was not stopped")
			}
			deleted := step == "replace: deleted"
			r = s.replacer(t)
			r.Legacy = []string{"new"}
			err := r.Abort(t.Context(), s.without(t))
			if deleted != errors.Is(err, migrate.ErrRefused) || err != nil && !deleted {
				t.Errorf("abort returns %v", err)
			}
			if deleted {
				if err := s.replacer(t).Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			confirmed := published()
			s.allArrive(t, confirmed)
			stop()
			s.tidy(t)
			after := s.inspect(t)
			if d := cmp.Diff(bindingsOf(before), bindingsOf(after)); d != "" {
				t.Errorf("bindings (-before +after):\n%s", d)
			}
			if plan.Differs(s.want, after, "new") == deleted {
				t.Errorf("the queue is replaced: %t", !deleted)
			}
			if left := migrate.Unfinished(s.want, after); len(left) > 0 {
				t.Errorf("the hold of %v is left", left)
			}
		})
	}
}

// A service that declares the queue with the old arguments between its deletion and its
// declaration, and binds it, does not end the replacement.
func TestReplaceAgainstAService(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	stop := s.consumeThrough(t, "new")
	defer stop()
	published := s.publish(t, 400*time.Millisecond)
	r, times := s.replacer(t), 0
	said := r.Report
	service := s.target.Channel(t)
	r.Report = func(format string, args ...any) {
		said(format, args...)
		if fmt.Sprintf(format, args...) == "replace: deleted new" && times == 0 {
			times++
			old := amqp091.Table{"x-queue-type": "classic"}
			if _, err := service.QueueDeclare("new", true, false, false, false, old); err != nil {
				t.Error(err)
			}
			if err := service.QueueBind("new", "later.#", "t", false, nil); err != nil {
				t.Error(err)
			}
		}
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	confirmed := published()
	lost, doubled := s.account(t, confirmed)
	if lost > 0 || doubled > 0 || times != 1 {
		t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
		s.where(t, confirmed)
	}
	s.tidy(t)
	kept := slices.ContainsFunc(s.inspect(t).Have.Bindings, func(b topology.Binding) bool {
		return b.Destination == "new" && b.Key == "later.#"
	})
	if !kept {
		t.Error("the binding of the service is gone")
	}
}

// Consumers of a queue that a service declares again after its deletion are counted as they were
// before: those that do not subscribe again are missed, by the same run, and by the next one where
// the first was killed.
func TestReplaceAgainstAServiceMissesConsumers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			for range 3 {
				brokertest.Consume(t, s.target.Channel(t), "new", 0)
			}
			stop := s.consumeThrough(t, "new")
			defer stop()
			service := s.target.Channel(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, times := s.replacer(t), 0
			r.Wait = 3 * time.Second
			said := r.Report
			r.Report = func(format string, args ...any) {
				said(format, args...)
				if fmt.Sprintf(format, args...) == "replace: deleted new" && times == 0 {
					times++
					old := amqp091.Table{"x-queue-type": "classic"}
					if _, err := service.QueueDeclare("new", true, false, false, false, old); err != nil {
						t.Error(err)
					}
					if killed {
						cancel()
					}
				}
			}
			err := r.Run(ctx)
			if killed {
				r = s.replacer(t)
				r.Wait = 3 * time.Second
				err = r.Run(t.Context())
			}
			if times != 1 || !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "1 consumer, and had 4") {
				t.Errorf("after %d deletions it returns %v", times, err)
			}
			s.endsWithoutThem(t)
		})
	}
}

// What cannot be replaced without losing messages is refused with all reasons, and nothing is
// written.
func TestReplaceIsRefused(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		have  func(t *testing.T, s *stage, ch *amqp091.Channel)
		allow []plan.Consent
		says  string
	}{
		"without consent": {
			func(t *testing.T, s *stage, _ *amqp091.Channel) { t.Helper(); s.legacy(t, "classic", nil) },
			[]plan.Consent{{Hazard: topology.ReplacesQueue, Object: "other"}},
			"",
		},
		"a stream": {
			func(t *testing.T, s *stage, _ *amqp091.Channel) { t.Helper(); s.legacy(t, "stream", nil) }, nil, "it is a stream",
		},
		"expiring": {
			func(t *testing.T, s *stage, _ *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", amqp091.Table{"x-expires": 600000})
			}, nil, "(expires)",
		},
		"the target of a dead-letter queue": {
			func(t *testing.T, s *stage, ch *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", nil)
				brokertest.Declare(t, ch, "wait", amqp091.Table{
					"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "new",
				})
			}, nil, "the queue wait dead-letters to new by its name",
		},
		"an auto-delete queue": {
			func(t *testing.T, _ *stage, ch *amqp091.Channel) {
				t.Helper()
				if _, err := ch.QueueDeclare("new", true, true, false, false, nil); err != nil {
					t.Fatal(err)
				}
			}, nil, "the broker deletes it with its last consumer",
		},
		"one that keys may lead to": {
			func(t *testing.T, s *stage, ch *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", nil)
				brokertest.Declare(t, ch, "wait", amqp091.Table{
					"x-dead-letter-exchange": "", "x-message-ttl": 1000,
				})
			}, nil, "the queue wait dead-letters to the default exchange",
		},
		"publishers by name": {
			func(t *testing.T, s *stage, ch *amqp091.Channel) {
				t.Helper()
				old := amqp091.Table{"x-queue-type": "classic"}
				brokertest.Declare(t, ch, "new", old)
				s.send(t, "", "new", "by name", nil)
			}, nil, "publishers may send to it by its name",
		},
		"a policy on the hold": {
			func(t *testing.T, s *stage, _ *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", nil)
				s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/all",
					map[string]any{"pattern": ".*", "definition": map[string]any{"max-length": 10}, "apply-to": "queues"})
			}, nil, "the policy all",
		},
		"a queue of another client with the name of the hold": {
			func(t *testing.T, s *stage, ch *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", nil)
				s.foreign(t, ch, topology.ReplacementHoldName("shop", "new"), nil)
			}, nil, ".hold exists, and is none of those that a replacement makes",
		},
		"a hold that drops messages": {
			func(t *testing.T, s *stage, ch *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", nil)
				s.foreign(t, ch, topology.ReplacementHoldName("shop", "new"), amqp091.Table{
					"x-managed-by": topology.DeskMark("shop"), "x-max-length": 5,
				})
			}, nil, ".hold exists, and is none of those that a replacement makes",
		},
		"a queue of another client with the name of the trial": {
			func(t *testing.T, s *stage, ch *amqp091.Channel) {
				t.Helper()
				s.legacy(t, "classic", nil)
				s.foreign(t, ch, topology.SwitchExchangeName("shop", "new")+".trial", nil)
			}, nil, ".trial exists, and is none of those that a replacement makes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "    replaces: old\n", "", 1)
			s := newStageIn(t, brokertest.VHost(t), file, "", nil)
			s.declares = "new"
			tc.have(t, s, s.target.Channel(t))
			before := s.target.Definitions(t)
			r := s.replacer(t)
			if tc.allow != nil {
				r.Allow = tc.allow
			}
			err := r.Run(t.Context())
			if tc.says != "" && (!errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), tc.says)) || tc.says == "" && err != nil {
				t.Errorf("it returns %v", err)
			}
			if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s", d)
			}
		})
	}
}

// foreign declares a quorum queue, as another client does, with a message in it.
func (s *stage) foreign(t *testing.T, ch *amqp091.Channel, name string, more amqp091.Table) {
	t.Helper()
	args := amqp091.Table{"x-queue-type": "quorum"}
	maps.Copy(args, more)
	brokertest.Declare(t, ch, name, args)
	s.send(t, "", name, "foreign", nil)
}

// While messages fail and wait for their retries, the queue that dlxctl made is replaced: each
// comes back, once.
func TestReplaceWithRetriesOnTheirWay(t *testing.T) {
	t.Parallel()
	for _, types := range brokertest.Share(directions()) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			entry := `{name: new, type: %s, bindings: [{exchange: events, key: "order.#"}]}`
			file := func(typ string) string { return fmt.Sprintf(managedFile, "2s", fmt.Sprintf(entry, typ)) }
			before := newStageIn(t, target, file(types[0]), "", nil)
			before.apply(t, before.want)
			s := newStageIn(t, target, file(types[1]), "", nil)
			s.process(t)
			stop := s.failOnce(t, "new")
			ch, confirmed := s.target.Confirming(t), map[string]bool{}
			quit, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for n := 0; ; n++ {
					select {
					case <-quit:
						return
					case <-time.After(5 * time.Millisecond):
					}
					id := fmt.Sprint(n)
					c, err := ch.PublishWithDeferredConfirm("events", "order.new", true, false,
						amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent})
					if err != nil || !c.Wait() {
						t.Errorf("a message was not confirmed: %v", err)
						return
					}
					confirmed[id] = true
				}
			}()
			wait(t, time.Second)
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(quit)
			<-done
			s.allArrive(t, confirmed)
			s.replaced(t)
			stop()
		})
	}
}

// failOnce consumes as a service does that reconnects, and rejects each message once.
func (s *stage) failOnce(t *testing.T, queue string) (stop func()) {
	t.Helper()
	return s.consuming(t, queue, consumer{on: func(d amqp091.Delivery) error {
		if _, again := d.Headers[s.want.CountHeader]; !again {
			return d.Reject(false) // it is dead-lettered, and comes back
		}
		s.mu.Lock()
		s.seen[d.MessageId]++
		s.mu.Unlock()
		return d.Ack(false)
	}})
}

// A message that expires in the hold is dead-lettered as it would have been in the queue.
func TestReplaceDeadLettersWhatExpires(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	r := s.replacer(t)
	said := r.Report
	r.Report = func(format string, args ...any) {
		said(format, args...)
		if strings.HasPrefix(fmt.Sprintf(format, args...), "replace: proving") {
			c, err := s.target.Confirming(t).PublishWithDeferredConfirm("f", "", true, false,
				amqp091.Publishing{MessageId: "short", DeliveryMode: amqp091.Persistent, Expiration: "100"})
			if err != nil || !c.Wait() {
				t.Errorf("publish: %v", err)
			}
		}
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replaced(t)
	d, ok, err := s.target.Channel(t).Get("shop.quick.failed", true)
	if err != nil || !ok || d.MessageId != "short" || d.RoutingKey != topology.AddressKey("new") {
		t.Errorf("the failed queue has %q with the key %q: %t, %v", d.MessageId, d.RoutingKey, ok, err)
	}
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		t.Fatalf("it has died %d times", len(deaths))
	}
	death, _ := deaths[0].(amqp091.Table) // the processor goes by it
	if death["queue"] != topology.ReplacementHoldName("shop", "new") || death["exchange"] != "f" ||
		death["reason"] != "expired" {
		t.Errorf("its death is %v", death)
	}
}

// A message that expires in the hold is dead-lettered as it would have been in the queue, also
// where the queue has its dead-lettering from a policy of another team.
func TestReplaceDeadLettersByAPolicyOfOthers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStageOf(t, brokertest.VHost(t), "classic", "quorum", nil, "    deadLetterBy: unmanaged\n")
	ch := s.target.Channel(t)
	brokertest.DeclareExchange(t, ch, "dlx", "direct", nil)
	brokertest.Declare(t, ch, "expired", nil)
	brokertest.Bind(t, ch, "expired", "gone", "dlx", nil)
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/team", map[string]any{
		"pattern": "^new$", "apply-to": "queues",
		"definition": map[string]any{"dead-letter-exchange": "dlx", "dead-letter-routing-key": "gone"},
	})
	brokertest.Eventually(t, "the policy to be in effect", func() bool {
		return s.inspect(t).QueuePolicies["new"] == "team"
	})
	r, _ := s.during(t, "replace: proving", 1, func() {
		m := amqp091.Publishing{MessageId: "short", DeliveryMode: amqp091.Persistent, Expiration: "100"}
		brokertest.PublishConfirmed(t, s.target.Confirming(t), "f", "", m)
	})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replaced(t)
	if n := s.count(t, "expired"); n["short"] != 1 || len(n) != 1 {
		t.Errorf("of the message that expired, the queue of the policy has %v", n)
	}
}

// A service that binds the queue while its messages go to the hold keeps that binding, and what is
// said of doubled messages is true.
func TestReplaceWhileAServiceBinds(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{"replace: proving", "replace: declared", "replace: moving"} {
		t.Run(strings.TrimPrefix(step, "replace: "), func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			stop := s.consumeThrough(t, "new")
			defer stop()
			published := s.publish(t, 400*time.Millisecond)
			r, service := s.replacer(t), s.target.Channel(t)
			var told strings.Builder
			said, bound := r.Report, false
			r.Report = func(format string, args ...any) {
				said(format, args...)
				fmt.Fprintf(&told, format+"\n", args...)
				if strings.HasPrefix(fmt.Sprintf(format, args...), step) && !bound {
					bound = true
					for _, key := range []string{"later.#", "order.#"} { // one that is new, and one that it had
						if err := service.QueueBind("new", key, "t", false, nil); err != nil {
							t.Error(err)
						}
					}
				}
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			lost, doubled := s.account(t, confirmed)
			if lost > 0 || doubled > 0 && !strings.Contains(told.String(), "a service has doubled by its binding") {
				t.Errorf("%d of %d messages were lost, %d doubled:\n%s", lost, len(confirmed), doubled, &told)
			}
			s.tidy(t)
			for _, key := range []string{"later.#", "order.#"} {
				if !slices.ContainsFunc(s.inspect(t).Have.Bindings, func(b topology.Binding) bool {
					return b.Destination == "new" && b.Key == key
				}) {
					t.Errorf("the binding %s of the service is gone", key)
				}
			}
			t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
		})
	}
}

// The node is killed in each stage of a replacement, under publishers and consumers that reconnect,
// and starts again: the run goes on. It is stopped then, and the next one goes on. Nothing that was
// confirmed is lost.
func TestReplaceWhileTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	s := replaceStage(t, node.VHost(t), "classic", "quorum", nil)
	published := s.publishThrough(t)
	stop := s.consumeThrough(t, "new")
	allow := plan.Allow(topology.ReplacesQueue, topology.DropsRouting)
	// A node that was killed before it knew the new queue by name has one without a leader.
	leaderless := func(err error) bool {
		if err == nil || !strings.Contains(err.Error(), "the queue has no leader, and docs/same-name.md says") {
			return false
		}
		s.target.Call(t, "DELETE", "queues/"+url.PathEscape(s.target.VHost)+"/new", nil)
		t.Log("deleted a queue without a leader")
		return true
	}
	for _, step := range brokertest.Share([]string{
		"replace: bind the switch", "replace: switch from new", "replace: proving", "replace: deleted", "replace: moving",
		"replace: switch from its hold", "replace: bind new",
	}) {
		struck, again := false, false
		r := s.replacer(t)
		r.Allow = allow
		said := r.Report
		ctx, stopped := context.WithCancel(t.Context())
		r.Report = func(format string, args ...any) {
			said(format, args...)
			line := fmt.Sprintf(format, args...)
			switch {
			case strings.HasPrefix(line, step) && !struck:
				struck = true
				node.Kill(t)
			case struck && !again && strings.HasPrefix(line, "new: trying again in "):
				again = true
				node.Start(t)
			case again && strings.HasPrefix(line, "replace: "):
				stopped() // it goes on by itself; the next run is struck elsewhere
			}
		}
		err := r.Run(ctx)
		stopped()
		if struck && !again {
			t.Errorf("%s: it did not try again: %v", step, err)
			node.Start(t)
		}
		t.Logf("%s: struck %t, went on %t, %v", step, struck, again, err)
		leaderless(err)
	}
	undisturbed := func() error {
		r := s.replacer(t)
		r.Allow = append(slices.Clone(allow), plan.Consent{Hazard: topology.StopsConsumers, Object: "new"})
		return r.Run(t.Context())
	}
	err := undisturbed()
	if leaderless(err) {
		err = undisturbed()
	}
	if err != nil {
		t.Fatal(err)
	}
	confirmed := published()
	lost, doubled := s.account(t, confirmed) // a consumer that loses its connection sees messages again
	if lost > 0 {
		t.Errorf("%d of %d messages were lost", lost, len(confirmed))
		s.where(t, confirmed)
	}
	stop()
	s.replaced(t)
	t.Logf("%d confirmed, %d lost, %d came again", len(confirmed), lost, doubled)
}

// What the broker refuses to declare is known before anything is routed elsewhere or deleted.
func TestReplaceWithARefusedDeclaration(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	for i, q := range s.want.Queues {
		if q.Name == "new" { // no file has it: validate and plan refuse such values
			s.want.Queues[i].Arguments = q.Arguments.With("x-quorum-initial-group-size", int64(-1))
		}
	}
	before := bindingsOf(s.inspect(t))
	err := s.replacer(t).Run(t.Context())
	if !errors.Is(err, migrate.ErrRefused) {
		t.Errorf("it returns %v", err)
	}
	if d := cmp.Diff(before, bindingsOf(s.inspect(t))); d != "" || !s.exists(t, "new") {
		t.Errorf("bindings (-before +after):\n%s", d)
	}
	s.tidy(t)
	if left := migrate.Unfinished(s.want, s.inspect(t)); len(left) > 0 {
		t.Errorf("the hold of %v is left", left)
	}
}
