package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// Under traffic through four exchanges, one run replaces 300 queues. Whenever a run ends, finished
// or not, each confirmed message was consumed, or is in its queue or in the hold of it: none is
// lost.
func TestThreeHundredAtOnce(t *testing.T) {
	t.Parallel()
	if brokertest.Rounds(0, 1) == 0 {
		t.Skip("a quarter of an hour; it runs each night")
	}
	dlxctl := brokertest.Program(t)
	for _, parallel := range []string{"8", "24"} { //nolint:paralleltest // each wants the machine for itself
		t.Run(parallel, func(t *testing.T) {
			f := newFleet(t, brokertest.VHost(t), "classic", "quorum", 300, 0)
			f.rest, f.atOnce = time.Second, parallel
			for _, q := range f.queues {
				defer f.serve(t, q)()
			}
			all := map[string]bool{}
			for run := 1; ; run++ {
				published, began := f.send(t, 0.5), time.Now()
				c, stdout, stderr := f.each(t, dlxctl, "-o", "json")
				results, code := outcomes(t, c, stdout, stderr)
				maps.Copy(all, published())
				t.Logf("run %d: exit code %d after %s, %s; load %s", run, code, time.Since(began).Round(time.Second),
					tallyOf(results), load(t))
				logUnusual(t, stderr.String())
				f.accountFor(t, all)
				if code == 0 {
					break
				}
				if run == 1 {
					t.Errorf("the first run did not replace all queues")
				}
				if run == 10 {
					t.Fatal("the tenth run did not either")
				}
			}
			var pauses []float64
			f.paused.Range(func(_, v any) bool {
				pauses = append(pauses, v.(time.Duration).Seconds()) //nolint:forcetypeassert // serve stores no other
				return true
			})
			slices.Sort(pauses)
			_, doubled := f.account(t, all)
			t.Logf("%d published, %d doubled; %d consumers were canceled and got a message again after %.1f s (median), %.1f s at most",
				len(all), doubled, len(pauses), brokertest.Median(pauses), pauses[len(pauses)-1])
			if left := f.differing(f.inspect(t)); len(left) > 0 {
				t.Errorf("not replaced: %v", left)
			}
			f.tidy(t)
		})
	}
}

// tallyOf counts outcomes.
func tallyOf(results map[string]migrate.Result) string {
	n := map[migrate.Outcome]int{}
	for _, r := range results {
		n[r.Outcome]++
	}
	return fmt.Sprint(n)
}

// load returns the load of the machine.
func load(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// logUnusual logs what a run printed but for its usual steps.
func logUnusual(t *testing.T, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "replace: ") && !strings.HasPrefix(line, "done: ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// accountFor says of each confirmed message that no consumer got whether it waits in its queue or
// in the hold of it. It fails if one does not. What waits is counted again and again, as the counts
// of quorum queues are late, and consumers still work.
func (f *fleet) accountFor(t *testing.T, confirmed map[string]bool) {
	t.Helper()
	ch := f.target.Channel(t)
	missing := func() map[string]int {
		out := map[string]int{}
		f.mu.Lock()
		defer f.mu.Unlock()
		for mark := range confirmed {
			if f.seen[mark] == 0 {
				queue, _, _ := strings.Cut(mark, "/")
				out[queue]++
			}
		}
		return out
	}
	var lost []string
	for end := time.Now().Add(2 * time.Minute); ; wait(t, time.Second) {
		lost = lost[:0]
		held := 0
		for queue, n := range missing() {
			waits := 0
			for _, name := range []string{queue, topology.ReplacementHoldName("shop", queue)} {
				q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
				if err != nil { // it does not exist, and the channel is closed
					ch = f.target.Channel(t)
				}
				waits += q.Messages
			}
			held += n
			if waits < n {
				lost = append(lost, fmt.Sprintf("%s: %d did not come, %d wait", queue, n, waits))
			}
		}
		if len(lost) == 0 {
			t.Logf("%d of %d messages wait in queues and holds; the others were consumed", held, len(confirmed))
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	slices.Sort(lost)
	t.Errorf("messages are nowhere:\n%s", strings.Join(lost, "\n"))
	f.where(t, confirmed)
}

// Again and again the node cannot elect leaders for six seconds, and so fails to declare quorum
// queues (541), as a busy one does: a hold, a trial, and queues that are deleted. The run tries
// again, keeps its lock, and replaces all queues. No message is lost or doubled.
func TestReplaceWhileDeclarationsFail(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	dlxctl := brokertest.Program(t)
	node := brokertest.Node(t)
	f := newFleet(t, node.VHost(t), "classic", "quorum", 12, 0)
	f.rest, f.atOnce = time.Second, "4"
	stop := map[string]func(){}
	for _, q := range f.queues {
		stop[q] = f.serve(t, q)
	}
	defer func() {
		for _, stop := range stop {
			stop()
		}
	}()
	published := f.send(t, 2)
	// The server of the terms and votes stops answering, while the leaders that there are go on: first
	// until a trial has waited too long for its leader, and then again and again.
	trial := strings.TrimSuffix(topology.ReplacementHoldName("shop", "q00"), "hold") + "trial"
	node.Eval(t, fmt.Sprintf(`Meta = maps:get(log_meta, maps:get(names, ra_system:fetch(quorum_queues))),
		Trial = rabbit_misc:r(<<"%s">>, queue, <<"%s">>),
		Wait = fun W(0) -> ok; W(N) -> case rabbit_amqqueue:lookup(Trial) of
			{ok, _} -> timer:sleep(6500); _ -> timer:sleep(20), W(N - 1) end end,
		Stall = fun(For) -> sys:suspend(Meta), For(), sys:resume(Meta), timer:sleep(4000) end,
		spawn(fun() -> Stall(fun() -> Wait(1500) end),
			[Stall(fun() -> timer:sleep(6000) end) || _ <- lists:seq(1, 3)] end), ok.`, f.target.VHost, trial))
	c, stdout, stderr := f.each(t, dlxctl, "-o", "json")
	results, code := outcomes(t, c, stdout, stderr)
	said := stderr.String()
	logUnusual(t, said)
	// Once a consumer that had subscribed again got no message and no cancel for ten minutes: RabbitMQ
	// had failed to declare its queue. The run ends as it says, and what it advises helps.
	const advice = "restart the services that did not subscribe again, then run the command again"
	restarted := 0
	for _, r := range results {
		if r.Outcome == migrate.Waiting && strings.Contains(r.Error, advice) {
			t.Logf("restarted: %s: %s", r.Queue, r.Error)
			stop[r.Queue]()
			stop[r.Queue] = f.serve(t, r.Queue)
			restarted++
		}
	}
	if code == 2 && restarted > 0 {
		c, stdout, stderr = f.each(t, dlxctl, "-o", "json")
		results, code = outcomes(t, c, stdout, stderr)
	}
	if code != 0 {
		for _, r := range results {
			if r.Outcome != migrate.Done {
				t.Errorf("%s: %s: %s", r.Queue, r.Outcome, r.Error)
			}
		}
		t.Errorf("it exits with %d: %s\n%s", code, tallyOf(results), stderr)
	}
	if !strings.Contains(said, ": trying again in ") || strings.Contains(said, "the lock is taken again") {
		t.Errorf("it did not try again, or lost its lock:\n%s", said)
	}
	confirmed := published()
	f.allArrive(t, confirmed)
	if left := f.differing(f.inspect(t)); len(left) > 0 {
		t.Errorf("not replaced: %v", left)
	}
	f.tidy(t)
}

// While RabbitMQ fails to declare a queue that two queues of a run share, it is listed, and the
// other queue would bind it: that binding would vanish with it, and nothing would restore it.
func TestWhatQueuesShareIsPreparedByOneAtATime(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	f := newFleet(t, node.VHost(t), "quorum", "quorum", 2, 0)
	conn, err := amqp.Dial(t.Context(), f.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f.m.UseAMQP(conn) // as a run does that has the lock
	r := f.runner(t)
	for _, q := range f.queues {
		if err := r.Prepare(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	const shared = "shop.quick.failed"
	brokertest.Delete(t, f.target.Channel(t), shared)
	const meta = "Meta = maps:get(log_meta, maps:get(names, ra_system:fetch(quorum_queues))), "
	node.Eval(t, meta+"sys:suspend(Meta).")
	failed, prepared := make(chan error, 1), make(chan error, 1)
	go func() { failed <- r.Prepare(t.Context(), f.queues[0]) }()
	brokertest.Eventually(t, "the shared queue to be listed", func() bool {
		state := f.inspect(t)
		return slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == shared })
	})
	go func() { prepared <- r.Prepare(t.Context(), f.queues[1]) }()
	if err := <-failed; !errors.Is(err, broker.ErrInternal) {
		t.Fatalf("the broker declared %s: %v", shared, err)
	}
	node.Eval(t, meta+"sys:resume(Meta).")
	err = <-prepared
	if errors.Is(err, broker.ErrInternal) { // it began while the node was still held
		err = r.Prepare(t.Context(), f.queues[1])
	}
	if err == nil {
		err = r.Prepare(t.Context(), f.queues[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	have := f.inspect(t).Have.Bindings
	for _, b := range f.want.Bindings {
		if b.Destination == shared && !slices.ContainsFunc(have, func(h topology.Binding) bool {
			return h.Identity() == b.Identity()
		}) {
			t.Errorf("%s is missing", b.DisplayName())
		}
	}
}

// The broker fails to declare a hold, which leaves a worker that dead-letters at least once. When
// that has given up, after five minutes, it must find the hold: else the node declares no such
// queue from then on.
func TestReplaceKeepsAHoldThatFailed(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	if brokertest.Rounds(0, 1) == 0 {
		t.Skip("six minutes; it runs each night")
	}
	dlxctl := brokertest.Program(t)
	node := brokertest.Node(t)
	f := newFleet(t, node.VHost(t), "classic", "quorum", 1, 0)
	node.Eval(t, failHold(f.target.VHost, "q00"))
	began := time.Now()
	c, stdout, stderr := f.each(t, dlxctl, "-o", "json")
	results, code := outcomes(t, c, stdout, stderr)
	if code != 0 || !strings.Contains(stderr.String(), ".hold: the broker failed: 541") {
		t.Errorf("it exits with %d: %s\n%s", code, tallyOf(results), stderr)
	}
	t.Logf("%s\n%s", time.Since(began).Round(time.Second), stderr)
	ch := f.target.Channel(t)
	for ; ; wait(t, 5*time.Second) {
		if _, err := ch.QueueDeclare("later", true, false, false, false, amqp091.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "f", "x-dead-letter-strategy": "at-least-once",
			"x-overflow": "reject-publish",
		}); err != nil {
			t.Fatalf("after %s: %v", time.Since(began).Round(time.Second), err)
		}
		if time.Since(began) > 6*time.Minute {
			break
		}
		brokertest.Delete(t, ch, "later")
	}
	f.tidy(t)
}

// A later run knows of it too: it keeps the hold that the broker failed to declare in the run
// before.
func TestReplaceKeepsAHoldThatFailedBefore(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	var s *stage
	for try := 1; ; try++ {
		s = replaceStage(t, node.VHost(t), "classic", "quorum", nil)
		node.Eval(t, failHold(s.target.VHost, "new"))
		ctx, stop := context.WithCancel(t.Context())
		first, told := s.during(t, "replace: proving", 1, stop)
		err := first.Run(ctx)
		stop()
		if err != nil && strings.Contains(told.String(), ".hold: the broker failed: ") {
			break
		}
		// A busy node may take so long for the trial that the hold comes after the time for which no
		// leader is elected.
		if try == 4 {
			t.Fatalf("the broker has not failed to declare the hold: %v", err)
		}
		t.Logf("the broker has not failed to declare the hold: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	kept := false
	second, _ := s.during(t, "new gets its messages; its hold", 1, func() { kept = true; stop() })
	if err := second.Run(ctx); !kept || !s.exists(t, topology.ReplacementHoldName("shop", "new")) {
		t.Errorf("it does not keep the hold: %v", err)
	}
}

// failHold returns what lets a node elect no leader for a while once the trial of a queue is gone,
// when its hold is declared.
func failHold(vhost, queue string) string {
	trial := strings.TrimSuffix(topology.ReplacementHoldName("shop", queue), "hold") + "trial"
	return fmt.Sprintf(`Meta = maps:get(log_meta, maps:get(names, ra_system:fetch(quorum_queues))),
		Trial = rabbit_misc:r(<<"%s">>, queue, <<"%s">>),
		Wait = fun W(Gone) -> case rabbit_amqqueue:lookup(Trial) =:= {error, not_found} of
			Gone -> ok; _ -> timer:sleep(2), W(Gone) end end,
		spawn(fun() -> Wait(false), Wait(true), sys:suspend(Meta), timer:sleep(6500), sys:resume(Meta) end), ok.`,
		vhost, trial)
}
