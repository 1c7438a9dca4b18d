package apply_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// hooks is a reporter that does something at two moments of a run.
type hooks struct {
	waits  func() // before the run waits for tiers; nil: nothing
	writes func() // before each step of the run writes
	// results gets what the run says of what it has done. Nil: nothing does.
	results func(line string)
	// confirm is asked for consent. Nil: the run has it.
	confirm func() error
}

func (hooks) Planned(plan.Plan) error { return nil }

func (h hooks) Confirm(context.Context) error {
	if h.confirm != nil {
		return h.confirm()
	}
	return nil
}

func (h hooks) Progress(context.Context, int) (step, finish func()) {
	h.writes()
	return func() {}, func() {}
}

func (h hooks) Result(line string) {
	if h.results != nil {
		h.results(line)
	}
}
func (hooks) Unprocessed([]plan.Unprocessed) {}

func (h hooks) Notice(string) {
	if h.waits != nil {
		h.waits()
	}
}

// clear carries out a run for want with consent to hazards. It fails the test unless the run is
// unfinished, and names the consent that a queue needs.
func (s *stage) clear(t *testing.T, target brokertest.Target, want topology.Compiled,
	run func(*apply.Runner, context.Context) error, wait time.Duration, during hooks, queue string,
	hazards ...topology.Hazard,
) {
	t.Helper()
	endpoint := managementtest.Endpoint(t, target)
	session, err := apply.Open(endpoint, want)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	runner := apply.Runner{
		Session: session, Wait: wait, Options: plan.Options{Allow: plan.Allow(hazards...)}, Reporter: during,
	}
	var unfinished *apply.UnfinishedError
	err = run(&runner, t.Context())
	if !errors.As(err, &unfinished) || !strings.Contains(err.Error(), "loses-messages="+queue) {
		t.Errorf("the run ends with %v", err)
	}
}

// A message that reaches a queue after the count by which the queue was to be deleted stays there,
// and the run ends with the consent that the queue needs. A consent without a name is one to the
// plan that was shown, in which the queue was empty.
func TestAMessageArrivesAfterTheCount(t *testing.T) {
	t.Parallel()
	for name, hazards := range map[string][]topology.Hazard{
		"no consent":             {topology.DropsRouting},
		"consent without a name": {topology.DropsRouting, topology.LosesMessages},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			s := newStage(t, "quorum", target, target, target)
			const tier = "shop.a.retry.1m"
			unroutable := topology.UnroutableName("shop")
			ch := target.Confirming(t)
			brokertest.PublishConfirmed(t, ch, "", tier, amqp091.Publishing{Body: []byte("waits")})
			emptied, late := false, false
			s.clear(t, target, plan.Nothing(load(t, s.file("a"))), (*apply.Runner).Destroy, time.Minute, hooks{
				waits: func() {
					if _, err := ch.QueuePurge(tier, false); err != nil {
						t.Error(err)
					}
					emptied = true
				},
				writes: func() {
					if emptied && !late {
						late = true
						brokertest.PublishConfirmed(t, ch, "", unroutable, amqp091.Publishing{Body: []byte("late")})
					}
				},
			}, unroutable, hazards...)
			if n := brokertest.Ready(t, ch, unroutable); n != 1 || !late {
				t.Errorf("%s has %d messages, one was sent: %t", unroutable, n, late)
			}
		})
	}
}

// The messages of a failed queue whose processor has ended move only with consent, also where the
// plan has no change. The run counts them, and says which have no queue any more, and which are
// dead letters, as their queue has no retries.
func TestAHandOverNeedsConsent(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	const failed = "shop.a.failed"
	ch := target.Confirming(t)
	if _, err := ch.Consume(failed, "processor", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	brokertest.Bind(t, ch, failed, "@qn", "shop.failed", nil)
	for _, address := range []string{"@q", "@qa", "@qn"} {
		brokertest.PublishConfirmed(t, ch, "shop.failed", address, amqp091.Publishing{Body: []byte("failed")})
	}
	brokertest.Unbind(t, ch, failed, "@qn", "shop.failed", nil)
	endpoint := managementtest.Endpoint(t, target)
	run := func(leave string, during hooks, o plan.Options) error {
		file := s.file("b") + "  - {name: qn, backoff: none}\n"
		for _, line := range []string{"  a: {tiers", "  - {name: qa,", leave} {
			file = strings.Replace(file, line, "#"+line, 1)
		}
		session, err := apply.Open(endpoint, load(t, file))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if err := session.Lock(t.Context(), "apply", time.Minute, func(string) {}); err != nil {
			t.Fatal(err)
		}
		during.writes = func() {}
		return (&apply.Runner{Session: session, Options: o, Reporter: during}).Run(t.Context())
	}
	brokertest.Eventually(t, "an apply with a processor", func() bool {
		return run("#", hooks{}, plan.Options{Allow: plan.Allow(topology.DropsRouting)}) == nil
	})
	if err := ch.Cancel("processor", false); err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil { // its messages return to the queue
		t.Fatal(err)
	}
	ch = target.Confirming(t)
	no, results := errors.New("no"), ""
	if err := run("#", hooks{confirm: func() error { return no }}, plan.Options{}); !errors.Is(err, no) {
		t.Errorf("without consent the run ends with %v", err)
	}
	if n := brokertest.Ready(t, ch, failed); n != 3 {
		t.Errorf("%s has %d messages", failed, n)
	}
	note := func(line string) { results += line + "\n" }
	err := run("  - {name: qb,", hooks{results: note}, plan.Options{SkipBlocked: true})
	if !errors.Is(err, plan.ErrHazard) || !strings.HasPrefix(err.Error(), "3 messages moved; ") {
		t.Errorf("the run that skips ends with %v", err)
	}
	const want = "shop.a.failed: moved 1 message to the current backoff of their queue\n" +
		"shop.a.failed: moved 1 message to the dead-letter queue, as the backoff of their queue is none or native\n" +
		"shop.a.failed: moved 1 message to shop.unroutable, as their queue is gone\n"
	if results != want {
		t.Errorf("the run says %q", results)
	}
	for _, queue := range []string{"qn.dead", topology.UnroutableName("shop")} {
		if n := brokertest.Ready(t, ch, queue); n != 1 {
			t.Errorf("%s has %d messages", queue, n)
		}
	}
}

// interrupting is a reporter that interrupts a run once everything is written.
type interrupting struct {
	hooks
	interrupt func()
}

func (i interrupting) Progress(context.Context, int) (step, finish func()) {
	return func() {}, i.interrupt
}

// A run that is interrupted after its last change says that, and not that a check has failed.
func TestAnInterruptBeforeTheVerification(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	endpoint := managementtest.Endpoint(t, target)
	session, err := apply.Open(endpoint, spectest.Compile(t, "version: 1\nname: shop\nexchanges: [{name: events}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithCancel(t.Context())
	runner := apply.Runner{Session: session, Reporter: interrupting{interrupt: cancel}}
	err = runner.Run(ctx)
	const want = "1 change written, but interrupted before verification; run apply again"
	var unfinished *apply.UnfinishedError
	if !errors.As(err, &unfinished) || err.Error() != want {
		t.Errorf("the run ends with %v", err)
	}
}

// A queue that turns out to have messages when it is to be deleted keeps its dead-lettering, also
// where that is a policy: what its consumers reject then is a failure as before.
func TestAQueueThatStaysKeepsItsPolicy(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			s := &stage{target: target, consumer: target, kind: kind}
			s.file = func(queue string) string {
				file := strings.Replace(s.backoffs("a"), "{name: q,", "{name: q, deadLetterBy: policy,", 1)
				return strings.Replace(file, "- {name: q,", queue+"- {name: q,", 1)
			}
			s.connect(t, target)
			s.apply(t, s.m, "", 100*time.Millisecond)
			ch := target.Confirming(t)
			deliveries := brokertest.Consume(t, ch, "q", 0)
			without := load(t, s.file("# "))
			state, err := s.m.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p := plan.Make(without, state, plan.Options{})
			allow := plan.Allow(topology.DropsRouting, topology.StopsConsumers)
			if err := plan.Check(p, allow); err != nil {
				t.Fatal(err)
			}
			brokertest.PublishConfirmed(t, ch, "e", "k", amqp091.Publishing{Body: []byte("late")})
			d := <-deliveries
			err = apply.ExecuteWithReroutes(t.Context(), s.m, without, plan.Allowed(p, allow), 0, func(plan.Change) {})
			if !errors.Is(err, broker.ErrRefused) {
				t.Fatalf("a queue with a message: %v", err)
			}
			if err := d.Reject(false); err != nil { // it fails: that is the test
				t.Fatal(err)
			}
			brokertest.Eventually(t, "the failure", func() bool { return brokertest.Ready(t, ch, "shop.a.failed") == 1 })
		})
	}
}

// ending interrupts a run once it has replaced a queue.
type ending struct {
	apply.Converger

	interrupt func()
}

func (e ending) Apply(ctx context.Context, c plan.Change) error {
	err := e.Converger.Apply(ctx, c)
	if c.Action == plan.Replace {
		e.interrupt()
	}
	return err
}

// The binding of a service at a queue that is replaced outlives a run that is interrupted behind
// the replacement. No later run would know of it.
func TestAReplacedQueueKeepsTheBindingsOfOthers(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			s := newStage(t, kind, target, target, target)
			brokertest.Bind(t, target.Channel(t), "q", "x", "amq.direct", nil)
			s.file = func(arguments string) string {
				return strings.Replace(s.backoffs("a"), "{name: q,", "{name: q, arguments: {"+arguments+"},", 1)
			}
			const change = "x-message-ttl: 60000"
			want, allow := load(t, s.file(change)), plan.Allow(topology.DropsRouting)
			var p plan.Plan
			brokertest.Eventually(t, "a queue of which the broker knows that it is unused", func() bool {
				state, err := s.m.Inspect(t.Context())
				p = plan.Make(want, state, plan.Options{})
				return err == nil && plan.Check(p, allow) == nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			err := apply.ExecuteWithReroutes(ctx, ending{s.m, cancel}, want, plan.Allowed(p, allow), 0, func(plan.Change) {})
			if part, is := errors.AsType[*apply.PartialError](err); !is || len(part.Pending) == 0 {
				t.Fatalf("the run was not interrupted: %v", err)
			}
			s.apply(t, s.m, change, 0)
			state, err := s.m.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			of := func(b topology.Binding) bool { return b.Source == "amq.direct" && b.Destination == "q" }
			if !slices.ContainsFunc(state.Have.Bindings, of) {
				t.Error("the binding of the service is gone")
			}
		})
	}
}

// A run that waits for tiers ends in time also if the broker goes on refusing to delete one that
// its counts show to be empty and unused, as while the leader of the tier is away. It says why, and
// names those that hold messages.
func TestAWaitEndsWhileATierCannotBeDeleted(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	api, err := url.Parse(target.API)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(api)
	finds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/get") {
			_, _ = io.WriteString(w, "[{}]") // if not, the test fails for it
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(finds.Close)
	endpoint, err := (broker.Config{URL: target.URL, API: finds.URL}).Resolve()
	if err != nil {
		t.Fatal(err)
	}
	const holds = "shop.b.retry.2m"
	brokertest.PublishConfirmed(t, target.Confirming(t), "", holds, amqp091.Publishing{Body: []byte("waits")})
	brokertest.Eventually(t, "the message to be counted",
		func() bool { return target.Queue(t, holds)["messages"] == float64(1) })
	session, err := apply.Open(endpoint, load(t, strings.Replace(s.file("a"), "[2m, 3m]", "[4m]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	runner := apply.Runner{Session: session, Reporter: hooks{writes: func() {}}, Wait: time.Second}
	err = runner.Run(ctx)
	const want = "waited for 1s: shop.b.retry.3m is not deleted: the queue holds a message, and retired tiers still hold " +
		"messages: " + holds + "; run apply again"
	if err == nil || err.Error() != want {
		t.Errorf("the run ends with %v", err)
	}
}

// A failed queue that gets a message while it is to be deleted stays with its return path, and the
// run does not say that everything is done: neither destroy nor apply of a file without queues.
func TestARunNamesWhatWasUsedMeanwhile(t *testing.T) {
	t.Parallel()
	const failed = "shop.a.failed"
	for command, run := range map[string]func(*apply.Runner, context.Context) error{
		"destroy": (*apply.Runner).Destroy, "apply": (*apply.Runner).Run,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			s := newStage(t, "quorum", target, target, target)
			want := load(t, "version: 1\nname: shop\nexchanges: [{name: e}]\n")
			if command == "destroy" {
				want = plan.Nothing(load(t, s.file("a")))
			}
			ch := target.Confirming(t)
			late, results := false, ""
			s.clear(t, target, want, run, 0, hooks{
				writes: func() {
					if !late {
						late = true
						brokertest.PublishConfirmed(t, ch, "", failed, amqp091.Publishing{Body: []byte("late")})
					}
				},
				results: func(line string) { results += line + "\n" },
			}, failed, topology.DropsRouting)
			if n := brokertest.Ready(t, ch, failed); n != 1 || !late {
				t.Errorf("%s has %d messages, one was sent: %t", failed, n, late)
			}
			if !strings.Contains(results, "verified except what was used meanwhile") {
				t.Errorf("the run says %q", results)
			}
		})
	}
}

// A queue of a service that the file no longer covers gets the retry that waits for it. Its address
// goes with a later run.
func TestAQueueThatLeavesGetsItsRetry(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	s := &stage{target: target, consumer: target, kind: "quorum"}
	s.file = func(queue string) string {
		file := strings.Replace(s.backoffs("a"), "tiers: [1m]", "tiers: [20s]", 1)
		return strings.Replace(file, "- {name: q,", queue+"- {name: q,", 1)
	}
	s.connect(t, target)
	ch := target.Confirming(t)
	brokertest.Declare(t, ch, "svc", amqp091.Table{"x-queue-type": "quorum"})
	s.apply(t, s.m, "- {name: svc, external: true, backoff: a}\n  ", 0)
	headers := amqp091.Table{topology.DefaultCountHeader: int64(1)}
	brokertest.PublishConfirmed(t, ch, "shop.a.dlx", "@svc", amqp091.Publishing{Headers: headers})
	without, allow := load(t, s.file("")), plan.Allow(topology.LosesMessages)
	var p plan.Plan
	waiting := func(state topology.State) int64 { return state.Usage["shop.a.retry.20s"].Ready }
	brokertest.Eventually(t, "a plan that counts the message", func() bool {
		state, err := s.m.Inspect(t.Context())
		p = plan.Make(without, state, plan.Options{})
		return err == nil && waiting(state) == 1 && plan.Check(p, allow) == nil
	})
	if err := apply.ExecuteWithReroutes(t.Context(), s.m, without, p, 0, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the retry", func() bool {
		return brokertest.Ready(t, ch, "svc")+brokertest.Ready(t, ch, "shop.unroutable") == 1
	})
	if brokertest.Ready(t, ch, "svc") != 1 {
		t.Error("the retry is unroutable")
	}
	brokertest.Eventually(t, "a plan that removes the address", func() bool {
		state, err := s.m.Inspect(t.Context())
		p = plan.Make(without, state, plan.Options{})
		return err == nil && len(p.Changes) == 1 && p.Changes[0].Name == "shop.return -> svc (@svc)"
	})
}
