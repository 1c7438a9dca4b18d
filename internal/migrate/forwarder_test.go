package migrate_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// forwarding makes the legacy queue a forwarder, to which a publisher sends by name. stop gives how
// many messages were confirmed.
func (s *stage) forwarding(t *testing.T, idle time.Duration) (stop func() int) {
	t.Helper()
	r := s.runner(t)
	r.Idle, r.Wait, r.Forward = idle, time.Second, true
	stop = s.publishByName(t, 100*time.Millisecond, 1<<30)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stop
}

// collect empties a queue until n different messages have come.
func (s *stage) collect(t *testing.T, queue string, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for end := time.Now().Add(2 * time.Minute); len(got) < n && time.Now().Before(end); wait(t, 50*time.Millisecond) {
		for id, times := range s.count(t, queue) {
			got[id] += times
		}
	}
	return got
}

// A forwarder stays while messages come to it, with the plan as if the legacy queue were gone, and
// goes with that queue once nothing has come for --idle.
func TestForwarderIsRetired(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			stop := s.forwarding(t, 2*time.Second)
			brokertest.Eventually(t, "the forwarder to be seen", func() bool {
				list := migrate.Statuses(s.want, s.inspect(t))
				return len(list) == 1 && list[0].Forwards && strings.Contains(list[0].String(), "it forwards")
			})
			more := s.want
			more.Bindings = append(slices.Clone(more.Bindings), topology.Binding{
				Source: "t", Destination: "new", DestinationType: topology.ToQueue, Key: "late.#",
				Label: topology.Label{Role: topology.RoleBusiness, Queue: "new"},
			})
			p := plan.Make(more, s.inspect(t), plan.Options{})
			if len(p.Changes) != 1 || p.Changes[0].Name != "t -> new (late.#)" {
				t.Errorf("plan does not bind the successor: %v", p.Changes)
			}
			for _, w := range p.Warnings {
				if w.Name == "migration-pending" {
					t.Errorf("plan still waits for the migration: %s", w.Text)
				}
			}
			r := s.runner(t)
			r.Idle = 5 * time.Second
			if err := r.Run(t.Context()); err != nil || !s.exists(t, "old") {
				t.Fatalf("while messages come, it ends with %v; the legacy queue exists: %t", err, s.exists(t, "old"))
			}
			published := stop()
			if err := s.cautious(t).Run(t.Context()); err != nil || !s.exists(t, "old") {
				t.Fatalf("without consent, it ends with %v; the legacy queue exists: %t", err, s.exists(t, "old"))
			}
			// The statistics of a moment ago may still tell of messages: then it is left alone.
			brokertest.Eventually(t, "the legacy queue to go", func() bool {
				if err := s.runner(t).Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				return !s.exists(t, "old")
			})
			if got := s.collect(t, "new", published); len(got) != published {
				t.Errorf("%d of %d messages came", len(got), published)
			}
			s.tidy(t)
		})
	}
}

// A forwarder is retired though messages wait in a retry queue that dead-letters by their keys, and
// that other queues always use. While that is not proved, its messages say why it stays.
func TestForwarderNextToARetryQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := shared(t, "quorum", 3*time.Second, []string{"stays"}, []string{"old"}, []string{"old"})
	s.send(t, "work", "stays", "stays-0", nil)
	s.fail(t, "stays")
	s.forwarding(t, time.Second)()
	r, said := s.listen(t)
	r.Allow, r.Wait = plan.Allow(topology.DropsRouting), 0
	// The statistics of a moment ago may still tell of messages: then it is left alone.
	run := func() {
		if err := r.Run(t.Context()); err != nil {
			t.Fatalf("it ends with %v:\n%s", err, said)
		}
	}
	brokertest.Eventually(t, "the reason why old stays", func() bool {
		run()
		return strings.Contains(said.String(), "retire: old keeps forwarding to old.v2, as other queues use shared too")
	}, said)
	r.Wait = time.Minute
	brokertest.Eventually(t, "the end of old", func() bool {
		run()
		return !s.exists(t, "old")
	}, said)
	s.goOn(t, "stays-0")
}

// retrying makes a forwarder of which n retries wait in old.wait. It returns a runner with consent,
// and what it says.
func (s *stage) retrying(t *testing.T, n int) (*migrate.Runner, *strings.Builder) {
	t.Helper()
	s.homeMade(t, "classic", time.Hour, "old.first", "old.wait")
	s.forwarding(t, time.Second)()
	s.count(t, "new")
	r, said := s.listen(t)
	r.Idle = 3 * time.Second // a slow broker is quiet for a while, too
	brokertest.Eventually(t, "statistics that tell of no message", func() bool {
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said.String(), "once no publisher sends to its name any more")
	}, said)
	brokertest.Fill(t, s.target.Confirming(t), "", "old.first", n, 10)
	s.rejectAll(t, "old.first", n)
	r.Allow = plan.Allow(topology.DropsRouting)
	return r, said
}

// A forwarder waits for what is in a retry queue: a message that comes back does not end that.
func TestForwarderAwaitsRetries(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	r, said := s.retrying(t, 1)
	r.Wait = time.Minute
	report := r.Report
	r.Report = func(format string, args ...any) {
		report(format, args...)
		if strings.HasPrefix(format, "retire: waiting up to") { // the queue no longer forwards
			s.rejectAll(t, "old.wait", 1)
		}
	}
	if err := r.Run(t.Context()); err != nil || s.exists(t, "old") {
		t.Errorf("it ends with %v:\n%s", err, said)
	}
	if got := s.count(t, "new"); len(got) != 1 {
		t.Errorf("%v came", got)
	}
}

// A forwarder to which retries come back for longer than --wait stays, and migrate says why.
func TestForwarderGetsRetriesForLong(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	r, said := s.retrying(t, 200)
	r.Wait = 0
	report := r.Report
	r.Report = func(format string, args ...any) {
		report(format, args...)
		if strings.HasSuffix(format, "to see whether a message still comes to it") {
			s.comeBack(t, "old.wait", 100*time.Millisecond)
		}
	}
	if err := r.Run(t.Context()); err != nil || !strings.Contains(said.String(),
		"retire: old keeps forwarding to new, as messages still come back to old by its name from old.first, old.wait; run migrate again, or with --wait 4h2m\n") {
		t.Errorf("it ends with %v:\n%s", err, said)
	}
}

// A forwarder whose policy, or whose queue, is gone when its turn comes, because an earlier attempt
// got so far, is migrated to its end.
func TestForwarderIsGone(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, gone := range []string{"policies", "queues"} {
		t.Run(gone, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			s.forwarding(t, 2*time.Second)()
			name := "old"
			if gone == "policies" {
				name = topology.ForwardPolicyName("shop", "old")
			}
			r := s.runner(t)
			r.Parallel = 1
			r.QueueProgress = func(int) (step, finish func()) { // what to do is known, and nothing is begun
				s.target.Call(t, "DELETE", gone+"/"+url.PathEscape(s.target.VHost)+"/"+url.PathEscape(name), nil)
				return func() {}, func() {}
			}
			if err := r.Run(t.Context()); err != nil || s.exists(t, "old") {
				t.Errorf("it ends with %v; the legacy queue exists: %t", err, s.exists(t, "old"))
			}
			if got := r.Results(); len(got) != 1 || got[0].Outcome != migrate.Done {
				t.Errorf("the results are %+v", got)
			}
			s.tidy(t)
		})
	}
}

// An abort takes the forwarder away first, and comes to its end: each message is in the legacy
// queue, once.
func TestAbortAForwarder(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			before := s.target.Definitions(t)
			published := s.forwarding(t, 2*time.Second)()
			r := s.runner(t)
			r.Wait = 10 * time.Second
			began := time.Now()
			s.abort(t, r)
			t.Logf("it took %s", time.Since(began))
			got := s.collect(t, "old", published)
			copies := 0
			for _, n := range got {
				copies += n
			}
			if len(got) != published || copies != published {
				t.Errorf("%d of %d messages came, in %d copies", len(got), published, copies)
			}
			if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s", d)
			}
		})
	}
}

// A run that is killed while the forwarder is paused, and an abort that is killed once it has
// stopped the forwarder, go on where they were: nothing is lost.
func TestForwarderKilled(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for name, tc := range map[string]struct {
		at   []string // what is said when the kill comes
		args []string
		end  string // the queue with all messages
	}{
		"retire": {[]string{"retire: old forwards to new; waiting", "retire: deleted old"}, nil, "new"},
		"abort":  {[]string{"abort: stop forwarding", "abort: create the switch", "abort: moved"}, []string{"abort"}, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			published := s.forwarding(t, 2*time.Second)()
			flags := append(tc.args, "--yes", "--settle", "300ms", "--wait", "30s", "--lock-timeout", "20s")
			if name == "retire" {
				flags = append(flags, "--idle", "3s")
			}
			run := func(at string) (killed bool) {
				t.Helper()
				return s.killAt(t, dlxctl, flags, at, func() {
					if at == "retire: old forwards to new; waiting" {
						brokertest.Eventually(t, "the forwarder to be paused", func() bool {
							list := migrate.Statuses(s.want, s.inspect(t))
							return len(list) == 1 && list[0].Paused
						})
					}
				}, func(string) {})
			}
			kills := 0
			for i, at := range tc.at {
				if name == "retire" { // a run leaves it alone while the statistics tell of messages
					brokertest.Eventually(t, "a run to say "+at, func() bool { return run(at) })
					kills++
				} else if run(at) { // a run that is killed late has done the next steps too
					kills++
				}
				if name == "retire" && i == 0 { // what comes while migrate does not run stays, and is moved on later
					ch := s.target.Channel(t)
					if err := ch.Publish("", "old", true, false,
						amqp091.Publishing{MessageId: "late", DeliveryMode: amqp091.Persistent}); err != nil {
						t.Fatal(err)
					}
					published++
				}
			}
			if kills == 0 {
				t.Error("no run was killed")
			}
			t.Logf("%d of %d runs were killed", kills, len(tc.at))
			gone := func() bool {
				c, out := s.command(t, dlxctl, flags...)
				if err := c.Run(); err != nil {
					t.Fatalf("the last run: %v\n%s", err, out)
				}
				if name == "abort" {
					return true
				}
				return !s.exists(t, "old")
			}
			brokertest.Eventually(t, "the end", gone)
			if got := s.collect(t, tc.end, published); len(got) != published {
				t.Errorf("%d of %d messages came: %s", len(got), published, fmt.Sprint(got))
			}
			s.tidy(t)
		})
	}
}

// Once the broker has confirmed nothing for the grace period, --forward does not go on: a forwarder
// forwards at most once, and what comes back may go to a successor that accepts nothing.
func TestForwardAfterADrainInDoubt(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	s.cutOver(t)
	var muted atomic.Bool
	through := brokertest.NewFilter(t, s.user, func(client, server net.Conn) {
		drains, buffer := false, make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			drains = drains || bytes.Contains(buffer[:n], []byte("dlxctl migrate shop old"))
			if drains && muted.Load() {
				continue
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	r := s.runner(t)
	r.Endpoint = managementtest.Endpoint(t, through)
	// Messages still come when the time is over, and that is before the successor counts as stuck.
	r.Endpoint.Heartbeat, r.Forward, r.Wait, r.Idle = 10*time.Minute, true, time.Second, 7*time.Second
	brokertest.PublishConfirmed(t, s.target.Confirming(t), "", "old", numbered(0, 3)...)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	ch := s.target.Confirming(t)
	brokertest.Eventually(t, "the backlog in the successor", func() bool { return brokertest.Ready(t, ch, "new") == 3 })
	muted.Store(true)
	brokertest.PublishConfirmed(t, ch, "", "old", numbered(3, 6)...)
	if err := <-ended; !errors.Is(err, relay.ErrGrace) {
		t.Errorf("it ends with %v", err)
	}
	if state := s.inspect(t); len(state.Have.Policies) > 0 && state.QueuePolicies["old"] != "" {
		t.Errorf("the legacy queue forwards: %v", state.QueuePolicies)
	}
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.count(t, "new"); len(got) != 6 || s.exists(t, "old") {
		t.Errorf("%d of 6 messages came: %v", len(got), got)
	}
}

// numbered returns messages with the ids from first up to last, without it.
func numbered(first, last int) (messages []amqp091.Publishing) {
	for id := first; id < last; id++ {
		messages = append(messages, amqp091.Publishing{MessageId: fmt.Sprint(id), Body: []byte("b")})
	}
	return messages
}
