package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// without returns what Abort asks for: the topology without the successors of legacy queues.
func (s *stage) without(t *testing.T) func(legacy []string) (topology.Compiled, error) {
	t.Helper()
	return func(legacy []string) (topology.Compiled, error) {
		decoded, _, err := spec.Decode([]spec.Source{{Name: "f", Data: []byte(s.file)}},
			func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		return spec.Compile(decoded.Without(func(q spec.Queue) bool { return slices.Contains(legacy, q.Replaces) }))
	}
}

// abort rolls back. It waits for what the statistics still show, a consumer that has gone say, as
// the text of the error says: run abort again.
func (s *stage) abort(t *testing.T, r *migrate.Runner) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; { // each abort looks at the tiers for some seconds
		err := r.Abort(t.Context(), s.without(t))
		if err == nil {
			return
		}
		if !errors.Is(err, migrate.ErrWaiting) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Stopped after any step of the cutover, or after a later stage, the migration
// is rolled back under load: the broker has the definitions it had, and every
// message is in the legacy queue, once.
func TestAbort(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		for steps := range 8 {
			if typ == "quorum" && steps%3 != 1 {
				continue // their deletion takes its time
			}
			t.Run(fmt.Sprintf("%s after %d steps", typ, steps), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, typ, nil)
				before := s.target.Definitions(t)
				pause := 200 * time.Millisecond
				if steps == 4 { // in the middle of the cutover, with four times the load
					pause = 50 * time.Millisecond
				}
				published := s.publish(t, pause)
				stop := s.consume(t, "old")
				r := s.runner(t)
				r.Until = migrate.Prepare
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range steps {
					s.step(t)
				}
				s.abort(t, s.runner(t))
				confirmed := published()
				if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
					t.Errorf("definitions (-before +after):\n%s", d)
				}
				s.allArrive(t, confirmed)
				stop()
			})
		}
	}
}

// step does one step of the cutover.
func (s *stage) step(t *testing.T) {
	t.Helper()
	s.stepWith(t, migrate.NextChanges)
}

// stepWith does the step that next returns.
func (s *stage) stepWith(t *testing.T, next func(migrate.Move, topology.State) []plan.Change) {
	t.Helper()
	state := s.inspect(t)
	for _, m := range migrate.Moves(s.want, state) {
		changes := next(m, state)
		slices.SortStableFunc(changes, func(a, b plan.Change) int { return int(a.Phase - b.Phase) })
		if err := apply.Execute(t.Context(), s.m, plan.Plan{Changes: changes}, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, 200*time.Millisecond)
}

// A new version that starts again and binds its queue while the migration is rolled back does not
// end the rollback. Each message of that binding comes twice until abort unbinds the queue. abort
// says of how many that may be so.
func TestAbortWhileTheServiceBinds(t *testing.T) {
	t.Parallel()
	count := regexp.MustCompile(`up to ([\d,]+) messages? of these are doubled`)
	for _, at := range []string{"abort: delete", "abort: (moved|delete)", "while it moves", "before"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			s.until(t, migrate.Drain)
			published := s.publish(t, 200*time.Millisecond)
			brokertest.Eventually(t, "the new version to have messages", func() bool { return s.ready(t, "new") > 0 })
			ch := s.target.Channel(t)
			bind := func() {
				if err := ch.QueueBind("new", "", "f", false, nil); err != nil {
					t.Error(err)
				}
			}
			if at == "before" { // a service has done so after an abort that was killed
				s.killAbort(t)
				bind()
				brokertest.Eventually(t, "a message that comes twice", func() bool { return s.ready(t, "new") > 0 })
			}
			var said strings.Builder
			most, times := 0, 3
			r := s.runner(t)
			r.Report = func(format string, args ...any) {
				text := fmt.Sprintf(format, args...)
				fmt.Fprintln(&said, text)
				if match := count.FindStringSubmatch(text); match != nil {
					most += number(t, match[1])
				}
				if times > 0 && regexp.MustCompile(at).MatchString(text) {
					times--
					bind()
				}
			}
			var once sync.Once
			r.Progress = func(int64) (step, finish func()) {
				return func() {
					if at == "while it moves" {
						once.Do(bind)
					}
				}, func() {}
			}
			s.abort(t, r)
			confirmed := published()
			stop := s.consume(t, "old")
			lost, doubled := s.account(t, confirmed)
			stop()
			if lost > 0 || doubled > most || most > 0 && !strings.Contains(said.String(), "the queue new was bound again") {
				t.Errorf("%d of %d messages were lost, %d doubled, %d at most, it says:\n%s", lost, len(confirmed), doubled, most, &said)
			}
			t.Logf("%d published, %d doubled, at most %d, it says:\n%s", len(confirmed), doubled, most, &said)
		})
	}
}

// A new version that binds its queue while abort waits for the tiers does not double messages as
// long as that takes.
func TestAbortUnbindsWhileItWaitsForTheTiers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	file := strings.Replace(fmt.Sprintf(topologyFile, "classic"), "[100ms]", "[5m]", 1)
	s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
	s.until(t, migrate.Drain)
	brokertest.PublishConfirmed(t, s.target.Confirming(t), s.want.Backoffs[0].RetryExchange, topology.AddressKey("new"),
		amqp091.Publishing{Headers: amqp091.Table{s.want.CountHeader: int64(1)}})
	s.send(t, "f", "", "moved", nil)
	r, said := s.listen(t)
	r.Wait = 8 * time.Second
	report, ch, service := r.Report, s.target.Channel(t), sync.WaitGroup{}
	r.Report = func(format string, args ...any) {
		report(format, args...)
		if strings.HasPrefix(format, "abort: moved") {
			service.Go(func() {
				wait(t, 2*time.Second) // it has seen that the successor is empty and has no binding
				if err := ch.QueueBind("new", "", "f", false, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
	err := r.Abort(t.Context(), s.without(t))
	service.Wait()
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(said.String(), "the queue new was bound again") {
		t.Errorf("it ends with %v, and says:\n%s", err, said)
	}
	for _, b := range s.inspect(t).Have.Bindings {
		if b.Destination == "new" && b.Source == "f" {
			t.Errorf("messages still come to both queues:\n%s", said)
		}
	}
}

// What a consumer of the new version holds while abort moves the others, and gives back then, goes
// to the legacy queue too, in the same run.
func TestAbortMovesWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	s.until(t, migrate.Drain)
	ch := s.target.Channel(t)
	for i := range 8 {
		s.send(t, "f", "", fmt.Sprint(i), nil)
	}
	for range 5 {
		brokertest.Eventually(t, "a consumer to hold a message", func() bool {
			_, ok, err := ch.Get("new", false)
			return ok && err == nil
		})
	}
	brokertest.Eventually(t, "the counts", func() bool {
		usage := s.inspect(t).Usage["new"]
		return usage.Ready == 3 && usage.Unacknowledged == 5
	})
	r := s.runner(t)
	r.Wait = time.Minute
	r.Report = func(format string, args ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, args...), "abort: moved 3 messages") {
			_ = ch.Close()
		}
	}
	if err := r.Abort(t.Context(), s.without(t)); err != nil {
		t.Error(err)
	}
	if n := s.ready(t, "old"); n != 8 {
		t.Errorf("%d messages are in the legacy queue", n)
	}
}

// killAbort begins to roll back, and stops when all messages go to the legacy queue.
func (s *stage) killAbort(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := s.runner(t)
	r.Report = func(format string, args ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, args...), "abort: moved") {
			cancel()
		}
	}
	if err := r.Abort(ctx, s.without(t)); err == nil {
		t.Fatal("it was not stopped")
	}
}

// What waits in a tier when a migration is rolled back returns to the legacy
// queue; what is dead already stays in its queue, and that is said.
func TestAbortWithMessagesInTheTiers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStageIn(t, brokertest.VHost(t), strings.Replace(fmt.Sprintf(topologyFile, typ), "[100ms]", "[3s]", 1), typ,
				nil)
			before := s.target.Definitions(t)
			s.until(t, migrate.Drain)
			stopProcessor := s.process(t)
			ch := s.target.Channel(t)
			confirmed := map[string]bool{}
			for i := range 20 {
				id := fmt.Sprint(i)
				confirmed[id] = true
				if err := ch.PublishWithContext(t.Context(), "f", "key", true, false,
					amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent}); err != nil {
					t.Fatal(err)
				}
			}
			s.reject(t, 10)
			var said strings.Builder
			r := s.runner(t)
			r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if err := r.Abort(t.Context(), s.without(t)); !errors.Is(err, migrate.ErrWaiting) ||
				!strings.Contains(err.Error(), "shop.quick.failed (0 messages, 1 consumer)") {
				t.Errorf("while the processor runs it ends with %v", err)
			}
			stopProcessor()
			for end := time.Now().Add(2 * time.Minute); ; { // statistics tell of consumers for up to 5 seconds
				err := r.Abort(t.Context(), s.without(t))
				if err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
			stop := s.consume(t, "old")
			lost, doubled := s.account(t, confirmed)
			stop()
			if lost > 0 || doubled > 0 {
				t.Errorf("%d of %d messages were lost, %d doubled:\n%s", lost, len(confirmed), doubled, &said)
				s.where(t, confirmed)
			}
			if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s\n%s", d, &said)
			}
		})
	}
}

// While the migration is rolled back, messages return from a tier all the time:
// each comes to one of the two queues, and is in the legacy queue at last, once.
func TestAbortWhileMessagesComeBack(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			s.until(t, migrate.Drain)
			stopOld, retry := s.consume(t, "old"), s.retry(t)
			r := s.runner(t)
			turned := make(chan struct{})
			r.Report = func(format string, args ...any) {
				if strings.HasPrefix(fmt.Sprintf(format, args...), "abort: moved ") {
					close(turned)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- r.Abort(t.Context(), s.without(t)) }()
			select {
			case <-turned:
			case err := <-ended:
				t.Fatalf("it ends before it has moved anything, with %v", err)
			}
			confirmed := retry()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			s.allArrive(t, confirmed)
			stopOld()
		})
	}
}

// A migration that was rolled back and is made again, before the tiers are empty,
// turns what comes back with the rest.
func TestMigrateAgainAfterAbort(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	s.until(t, migrate.Drain)
	retry := s.retry(t)
	r := s.runner(t)
	r.Wait = 2 * time.Second
	if err := r.Abort(t.Context(), s.without(t)); !errors.Is(err, migrate.ErrWaiting) {
		t.Fatalf("while messages come back it ends with %v", err)
	}
	s.apply(t, s.want) // as CI does meanwhile
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	confirmed := retry()
	stop := s.consume(t, "new")
	s.allArrive(t, confirmed)
	stop()
	if changes := plan.Make(s.want, s.inspect(t), plan.Options{}).Changes; len(changes) > 0 {
		t.Errorf("plan shows changes: %v", changes)
	}
}

// A migration goes on after an abort that was killed before the cutover, under load: each message
// comes to one of the two queues. TestAMessageHasOneQueueAtEachMoment has all moments and orders.
func TestMigrateAfterAKilledAbort(t *testing.T) {
	t.Parallel()
	for steps := range 4 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			published := s.publish(t, 20*time.Millisecond)
			r := s.runner(t)
			r.Until = migrate.Prepare
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range steps {
				s.stepWith(t, migrate.NextChangesBack)
			}
			if err := s.runner(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			stop := s.consume(t, "new")
			s.allArrive(t, confirmed)
			stop()
		})
	}
}

// retry publishes to the tier of the new queue, as the processor does, as fast as the
// broker confirms. stop gives the message-ids.
func (s *stage) retry(t *testing.T) (stop func() map[string]bool) {
	t.Helper()
	loop := s.want.Backoffs[0]
	headers := amqp091.Table{}
	for _, b := range s.want.Bindings {
		if b.Source == loop.RetryExchange && b.Destination == loop.Tiers[0].Queue {
			headers[s.want.CountHeader] = b.Arguments[s.want.CountHeader]
		}
	}
	ch := s.target.Confirming(t)
	quit, done := make(chan struct{}), make(chan map[string]bool)
	go func() {
		confirmed := map[string]bool{}
		defer func() { done <- confirmed }()
		for n := 0; ; n++ {
			select {
			case <-quit:
				return
			default:
			}
			id := fmt.Sprintf("retry-%d", n)
			c, err := ch.PublishWithDeferredConfirm(loop.RetryExchange, topology.AddressKey("new"), true, false,
				amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: headers})
			if err != nil || !c.Wait() {
				t.Errorf("a message was not confirmed: %v", err)
				return
			}
			confirmed[id] = true
		}
	}()
	return func() map[string]bool { close(quit); return <-done }
}

// Other queues that share the backoff fail all the time: what waits for the tiers to
// be empty ends anyway.
func TestAbortWithASharedBackoff(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			abortWithASharedBackoff(t, typ)
		})
	}
}

func abortWithASharedBackoff(t *testing.T, typ string) {
	t.Helper()
	file := strings.Replace(fmt.Sprintf(topologyFile, typ), "queues:\n", "queues:\n  - {name: other}\n", 1)
	s := newStageIn(t, brokertest.VHost(t), file, typ, nil)
	before := s.target.Definitions(t)
	s.until(t, migrate.Drain)
	if err := apply.Execute(t.Context(), s.m, plan.Make(s.want, s.inspect(t), plan.Options{}),
		func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	loop := s.want.Backoffs[0]
	ch := s.target.Channel(t)
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	t.Cleanup(wait.Wait)
	t.Cleanup(stop)
	wait.Go(func() { // a tier is never empty
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := ch.Publish(loop.RetryExchange, topology.AddressKey("other"), true, false,
				amqp091.Publishing{Headers: amqp091.Table{s.want.CountHeader: int64(1)}}); err != nil {
				t.Error(err)
				return
			}
			<-tick.C
		}
	})
	r := s.runner(t)
	r.Wait = 30 * time.Second
	if err := r.Abort(t.Context(), s.without(t)); err != nil {
		t.Errorf("it ends with %v", err)
	}
	for _, o := range before {
		if !slices.Contains(s.target.Definitions(t), o) {
			t.Errorf("gone: %s", o)
		}
	}
	if s.exists(t, "new") {
		t.Error("the new queue is still there")
	}
}

// A queue that refuses messages keeps those of the successor in a tier that both share, longer than
// any delay: an abort waits for them, and what returns them stays.
func TestAbortWithAStarvedTier(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	file := strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "queues:\n", "queues:\n  - {name: full}\n", 1)
	s := newStageIn(t, brokertest.VHost(t), file, "quorum", nil)
	s.until(t, migrate.Drain)
	s.apply(t, s.want)
	ch, loop := s.target.Confirming(t), s.want.Backoffs[0]
	retry := func(queue string, n int) {
		for i := range n {
			brokertest.PublishConfirmed(t, ch, loop.RetryExchange, topology.AddressKey(queue), amqp091.Publishing{
				MessageId: fmt.Sprint(queue, "-", i), DeliveryMode: amqp091.Persistent,
				Headers: amqp091.Table{s.want.CountHeader: int64(1)},
			})
		}
	}
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/full", map[string]any{
		"pattern": "^full$", "apply-to": "queues", "priority": 1000,
		"definition": map[string]any{"max-length": 1, "overflow": "reject-publish"},
	})
	retry("full", 60)
	tier := loop.Tiers[0].Queue
	brokertest.Eventually(t, "the queue to refuse messages", func() bool {
		return s.ready(t, tier) == 0 && s.inspect(t).Usage[tier].Other >= 32
	})
	retry("new", 20)
	r := s.runner(t)
	r.Wait = 20 * time.Second
	if err := r.Abort(t.Context(), s.without(t)); !errors.Is(err, migrate.ErrWaiting) {
		t.Errorf("it ends with %v", err)
	}
	if !slices.ContainsFunc(s.inspect(t).Have.Bindings, func(b topology.Binding) bool {
		return b.Source == topology.ReturnExchangeName("shop") && b.Key == topology.AddressKey("new")
	}) {
		t.Errorf("nothing returns the %d messages that are not in old", 20-s.ready(t, "old"))
	}
	for range brokertest.Rounds(0, 1) { // RabbitMQ tries again after three minutes, and after six
		s.target.Call(t, "DELETE", "policies/"+url.PathEscape(s.target.VHost)+"/full", nil)
		r.Wait = 8 * time.Minute
		if err := r.Abort(t.Context(), s.without(t)); err != nil || s.ready(t, "old") != 20 {
			t.Errorf("it ends with %v, and old has %d messages", err, s.ready(t, "old"))
		}
	}
}

// What waits in a tier of the backoff that the successor had before returns to the legacy queue,
// although the abort does not wait for it: its address stays until an apply finds the tiers empty.
func TestAbortAfterAnotherBackoff(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	file := strings.Replace(fmt.Sprintf(topologyFile, "classic"), "queues:\n", "queues:\n  - {name: other}\n", 1)
	file = strings.Replace(file, "[100ms]", fmt.Sprintf("[%s]", 16*broker.Tick), 1) // the plan must still see it there
	s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
	s.until(t, migrate.Drain)
	s.apply(t, s.want)
	loop := s.want.Backoffs[0]
	tier := loop.Tiers[0].Queue
	brokertest.PublishConfirmed(t, s.target.Confirming(t), loop.RetryExchange, topology.AddressKey("new"),
		amqp091.Publishing{MessageId: "waits", Headers: amqp091.Table{s.want.CountHeader: int64(1)}})
	brokertest.Eventually(t, "the tier to be counted", func() bool { return s.inspect(t).Usage[tier].Ready > 0 })
	file = strings.Replace(file, "    replaces: old\n", "    replaces: old\n    backoff: none\n", 1)
	s = newStageIn(t, s.target, file, "", nil)
	p := plan.Make(s.want, s.inspect(t), plan.Options{})
	if err := apply.ExecuteWithReroutes(t.Context(), s.m, s.want, p, 0, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	r, said := s.listen(t)
	if err := r.Abort(t.Context(), s.without(t)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "failed messages of new may still be waiting in a tier: they return to old") {
		t.Errorf("it says:\n%s", said)
	}
	brokertest.Eventually(t, "the message to leave the tier", func() bool { return s.ready(t, tier) == 0 })
	if d := brokertest.Take(t, s.target.Channel(t), "old"); d.MessageId != "waits" {
		t.Errorf("the legacy queue has %q", d.MessageId)
	}
}

// reject rejects the first n messages of the new queue.
func (s *stage) reject(t *testing.T, n int) {
	t.Helper()
	ch := s.target.Channel(t)
	for end := time.Now().Add(2 * time.Minute); n > 0; {
		d, ok, err := ch.Get("new", false)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			n--
			if err := d.Reject(false); err != nil { // it is dead-lettered
				t.Fatal(err)
			}
		} else if time.Now().After(end) {
			t.Fatalf("%d messages did not come", n)
		}
	}
}
