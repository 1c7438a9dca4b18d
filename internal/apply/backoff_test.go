package apply_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// stage is a virtual host in which publishers and rejecting consumers keep a work queue
// busy, and no processor consumes the failed queues: a failed message stays where the
// broker routed it.
type stage struct {
	target   brokertest.Target // of the publishers
	consumer brokertest.Target
	kind     string
	m        *management.Client
	// file returns the topology of a variant, and places are the queues that a message can reach.
	// The first two get some in each test.
	file   func(variant string) string
	places []string

	mu        sync.Mutex
	confirmed map[string]bool
	loads     int // how often load was called
	rejected  atomic.Int64
}

// backoffs returns a topology of the queue q with a backoff. The backoffs a and b each have
// another queue, so that they stay.
func (s *stage) backoffs(backoff string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s}
backoff:
  a: {tiers: [1m]}
  b: {tiers: [2m, 3m]}
exchanges: [{name: e}]
queues:
  - {name: q, backoff: %s, bindings: [{exchange: e, key: k}]}
  - {name: qa, backoff: a, bindings: [{exchange: e, key: ka}]}
  - {name: qb, backoff: b, bindings: [{exchange: e, key: kb}]}
`, s.kind, backoff)
}

func load(tb testing.TB, file string) topology.Compiled {
	tb.Helper()
	return spectest.Compile(tb, file)
}

// newStage applies the topology with the backoff a. The changes go through target, and the
// consumers are connected to consumer: nodes of one cluster.
func newStage(t *testing.T, kind string, target, publisher, consumer brokertest.Target) *stage {
	t.Helper()
	s := &stage{target: publisher, consumer: consumer, kind: kind, confirmed: map[string]bool{}}
	s.file, s.places = s.backoffs, []string{"shop.a.failed", "shop.b.failed", "q.dead", topology.UnroutableName("shop")}
	s.connect(t, target)
	s.apply(t, s.m, "a", 100*time.Millisecond)
	return s
}

// connect opens the connections for the changes.
func (s *stage) connect(t *testing.T, target brokertest.Target) {
	t.Helper()
	endpoint := managementtest.Endpoint(t, target)
	s.m = managementtest.Client(t, target)
	conn, err := amqp.Dial(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.m.UseAMQP(conn)
}

// apply changes the backoff of q, and verifies that no change is left.
func (s *stage) apply(t *testing.T, c apply.Converger, backoff string, settle time.Duration) {
	t.Helper()
	want := load(t, s.file(backoff))
	if err := s.carry(t.Context(), c, want, settle); err != nil {
		t.Fatal(err)
	}
	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := laterOnly(plan.Make(want, state, plan.Options{})); !p.Empty() {
		t.Fatalf("after the change to %s these changes are left: %+v", backoff, p.Changes)
	}
}

func (s *stage) carry(ctx context.Context, c apply.Converger, want topology.Compiled, settle time.Duration) error {
	state, err := s.m.Inspect(ctx)
	if err != nil {
		return err
	}
	p := laterOnly(plan.Make(want, state, plan.Options{}))
	if err := plan.Check(p, plan.Allow(topology.UncountedNack)); err != nil {
		return err
	}
	return apply.ExecuteWithReroutes(ctx, c, want, p, settle, func(plan.Change) {})
}

// load publishes from two connections, with a pause after each batch of messages, and
// rejects with two consumers until stop, which waits until each message was rejected.
func (s *stage) load(t *testing.T, pause time.Duration) (stop func()) {
	t.Helper()
	for range 2 {
		ch := s.consumer.Channel(t)
		deliveries := brokertest.Consume(t, ch, "q", 500)
		go func() {
			for d := range deliveries {
				if d.Reject(false) == nil { // the message fails: that is the load
					s.rejected.Add(1)
				}
			}
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var publishers sync.WaitGroup
	crashing := s.consumer.Dial(t)
	publishers.Go(func() { s.crash(ctx, crashing) })
	s.publish(ctx, t, &publishers, pause, "e", "k", nil)
	return func() {
		cancel()
		publishers.Wait()
		complete(t, "messages that are rejected", len(s.confirmed), func() int { return int(s.rejected.Load()) })
	}
}

// publish publishes from two connections until ctx ends, with a pause after each batch of messages.
func (s *stage) publish(ctx context.Context, t *testing.T, publishers *sync.WaitGroup, pause time.Duration,
	exchange, key string, headers amqp091.Table,
) {
	t.Helper()
	s.loads++
	id := func(publisher, n int) string { return fmt.Sprintf("%d-%d-%d", s.loads, publisher, n) }
	for p := range 2 {
		ch := s.target.Confirming(t)
		publishers.Go(func() {
			window := brokertest.Load(100)
			for n := 0; ctx.Err() == nil; n += window {
				var waiting []*amqp091.DeferredConfirmation
				for i := range window {
					c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false,
						amqp091.Publishing{MessageId: id(p, n+i), DeliveryMode: amqp091.Persistent, Headers: headers})
					if err != nil {
						return // what was not confirmed does not count
					}
					waiting = append(waiting, c)
				}
				for i, c := range waiting {
					if c.Wait() {
						s.mu.Lock()
						s.confirmed[id(p, n+i)] = true
						s.mu.Unlock()
					}
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		})
	}
}

// crash consumes and disconnects without an acknowledgement, repeatedly: the broker requeues
// its messages.
func (s *stage) crash(ctx context.Context, conn *amqp091.Connection) {
	for ctx.Err() == nil {
		ch, err := conn.Channel()
		if err != nil {
			return
		}
		_ = ch.Qos(20, 0, false)
		deliveries, err := ch.Consume("q", "", false, false, false, false, nil)
		if err != nil {
			return
		}
		select {
		case <-deliveries:
		case <-ctx.Done():
		}
		_ = ch.Close()
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// account reads all queues that a failed message can reach, and counts by message-id the
// lost and the duplicated messages, and those in the unroutable queue.
//
// mayDouble is how many messages the broker itself may have duplicated: at-least-once
// dead-lettering has up to 32 messages of a queue in flight, and publishes them again
// after a restart.
func (s *stage) account(t *testing.T, mayDouble int) {
	t.Helper()
	seen := map[string]int{}
	came := map[string]int{}
	misplaced := 0
	var mu sync.Mutex
	for _, queue := range s.places {
		ch := s.target.Channel(t)
		deliveries := brokertest.Consume(t, ch, queue, 2000)
		go func() {
			for d := range deliveries {
				mu.Lock()
				seen[d.MessageId]++
				came[queue]++
				if queue == topology.UnroutableName("shop") {
					misplaced++
				}
				mu.Unlock()
				_ = d.Ack(false) // counted; it is the test that ends here
			}
		}()
	}
	total := func() int {
		mu.Lock()
		defer mu.Unlock()
		sum := 0
		for _, n := range came {
			sum += n
		}
		return sum
	}
	complete(t, "failures", len(s.confirmed), func() int { mu.Lock(); defer mu.Unlock(); return len(seen) })
	for last := -1; last != total(); wait(t, 500*time.Millisecond) { // what is doubled comes too
		last = total()
	}
	mu.Lock()
	defer mu.Unlock()
	lost, doubled := 0, 0
	for id := range s.confirmed {
		if seen[id] == 0 {
			lost++
		}
	}
	for _, n := range seen {
		doubled += n - 1
	}
	t.Logf("%d messages failed: %v; %d lost, %d doubled, %d misplaced", len(s.confirmed), came, lost, doubled, misplaced)
	if lost > 0 || doubled > mayDouble || misplaced > 0 {
		t.Errorf("of %d messages %d were lost, %d doubled, %d misplaced", len(s.confirmed), lost, doubled, misplaced)
	}
	if len(s.confirmed) < 100 || came[s.places[0]] == 0 || came[s.places[1]] == 0 {
		t.Errorf("this proves nothing: %v", came)
	}
}

// changesUnderLoad changes the backoff of q six times while publishers pause so long between two
// batches, with a wait before each change, and checks that no failure is lost or doubled.
func (s *stage) changesUnderLoad(t *testing.T, pause, between, settle time.Duration) {
	t.Helper()
	stop := s.load(t, pause)
	for _, backoff := range []string{"b", "a", "none", "b", "none", "a"} {
		wait(t, between)
		s.apply(t, s.m, backoff, settle)
	}
	stop()
	s.account(t, 0)
}

// Under full load a queue changes its backoff six times: no failed message is lost or
// duplicated, and none reaches a queue that does not belong to the backoff.
func TestBackoffsChangeUnderLoad(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			s := newStage(t, kind, target, target, target)
			s.changesUnderLoad(t, 5*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond)
		})
	}
}

// The same in a cluster: changes through one node, publishers and consumers on the others. There
// the engine changes too.
func TestBackoffsChangeInACluster(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	t.Run("backoffs", func(t *testing.T) {
		t.Parallel()
		target := nodes[0].VHost(t)
		s := newStage(t, "quorum", target, nodes[1].See(t, target), nodes[2].See(t, target))
		s.changesUnderLoad(t, 50*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond)
	})
	t.Run("engines", func(t *testing.T) {
		t.Parallel()
		target := nodes[0].VHost(t)
		s := newEngineStage(t, "policy", target)
		s.target, s.consumer = nodes[1].See(t, target), nodes[2].See(t, target)
		stop := s.requeue(t, 50*time.Millisecond)
		for _, backoff := range []string{"n", "a", "m", "n", "a"} {
			wait(t, 300*time.Millisecond)
			s.apply(t, s.m, backoff, 500*time.Millisecond)
		}
		stop()
		s.account(t, 0)
	})
}

// A control: binding one failed queue before unbinding the other duplicates failed
// messages. If it did not, the other tests would prove nothing.
func TestBindThenUnbindDuplicatesFailures(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	stop := s.load(t, 0)
	ch := target.Channel(t)
	for range 3 {
		brokertest.Bind(t, ch, "shop.b.failed", "@q", "shop.failed", nil)
		wait(t, 200*time.Millisecond)
		brokertest.Unbind(t, ch, "shop.b.failed", "@q", "shop.failed", nil)
	}
	stop()
	doubled := func() int {
		n := 0
		for _, queue := range []string{"shop.a.failed", "shop.b.failed"} {
			n += brokertest.Ready(t, target.Channel(t), queue)
		}
		return n - len(s.confirmed)
	}
	brokertest.Eventually(t, "a failure that is doubled", func() bool { return doubled() > 0 })
}

// While a run of the desk listens to the failures of a queue, its binding matches them, so that
// the next exchange gets none. No failure is lost then. Those of the time of a step are doubled.
func TestBackoffChangesWhileARunListens(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	ch := target.Channel(t)
	if _, err := ch.QueueDeclare("shop.desk.r1.brake", false, true, true, false, amqp091.Table{
		topology.ArgMaxLength: int64(10),
	}); err != nil {
		t.Fatal(err)
	}
	brokertest.Bind(t, ch, "shop.desk.r1.brake", "@q", "shop.failed", amqp091.Table{
		topology.ArgManagedBy: topology.DeskMark("shop"),
	})
	stop := s.load(t, 50*time.Millisecond)
	for _, backoff := range []string{"b", "none", "a"} {
		s.apply(t, s.m, backoff, 100*time.Millisecond)
	}
	stop()
	s.account(t, len(s.confirmed))
}

// killer carries out some changes and then fails, like a process that is killed.
type killer struct {
	apply.Converger

	mu   sync.Mutex
	left int
}

var errKilled = errors.New("killed")

func (k *killer) Apply(ctx context.Context, c plan.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left < 0 {
		return errKilled
	}
	return k.Converger.Apply(ctx, c)
}

// stopped carries out so many steps of a change to a backoff, and no more.
func (s *stage) stopped(t *testing.T, steps int, backoff string, settle time.Duration) {
	t.Helper()
	err := s.carry(t.Context(), &killer{Converger: s.m, left: steps}, load(t, s.file(backoff)), settle)
	if !errors.Is(err, errKilled) {
		t.Fatalf("it was not stopped after %d steps: %v", steps, err)
	}
}

// stoppedAfterEachStep stops the changes from a to a backoff and back after each of so many steps.
// Another run continues them, and then one with another file, which has other or a.
func (s *stage) stoppedAfterEachStep(t *testing.T, steps int, backoff, other string) {
	t.Helper()
	const settle = 50 * time.Millisecond
	for n := range steps {
		for _, to := range []string{backoff, "a"} {
			s.stopped(t, n, to, settle)
			s.apply(t, s.m, to, settle)
		}
		for _, to := range []string{other, "a"} {
			_ = s.carry(t.Context(), &killer{Converger: s.m, left: n}, load(t, s.file(backoff)), settle)
			s.apply(t, s.m, to, settle)
		}
	}
}

// A change is stopped after each step, and continued by another run, and by a run with
// another file.
func TestBackoffChangeStoppedAfterEachStep(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			s := newStage(t, kind, target, target, target)
			stop := s.load(t, 50*time.Millisecond)
			s.stoppedAfterEachStep(t, 4, "b", "none")
			stop()
			s.account(t, 0)
		})
	}
}

// nodeRestarts restarts the node after each of so many steps of a change from a to a backoff, and
// stops the change back there too. Failures come before and after, by what begins a load.
func (s *stage) nodeRestarts(t *testing.T, node *brokertest.Server, steps int, backoff string,
	begin func(t *testing.T, pause time.Duration) (stop func()),
) {
	t.Helper()
	burst := func() {
		stop := begin(t, 20*time.Millisecond)
		wait(t, 300*time.Millisecond)
		stop()
	}
	for n := range steps {
		for _, to := range []string{backoff, "a"} {
			s.stopped(t, n, to, 0)
			burst()
			if to == backoff {
				node.Stop(t)
				node.Start(t)
				s.connect(t, s.target)
			}
			burst()
			s.apply(t, s.m, to, 50*time.Millisecond)
		}
	}
	burst()
	s.account(t, steps*32)
}

// A node restarts while a change is half done: what the broker has stored is enough to
// continue.
func TestNodeRestartsDuringBackoffChange(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	target := node.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	s.nodeRestarts(t, node, 4, "b", s.load)
}

// A queue moves to another backoff and back a hundred times.
func TestBackoffChangesAHundredTimes(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	before := target.Definitions(t)
	stop := s.load(t, 500*time.Millisecond)
	for range 50 {
		for _, backoff := range []string{"b", "a"} {
			if err := s.carry(t.Context(), s.m, load(t, s.file(backoff)), 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	s.account(t, 0)
	if d := cmp.Diff(before, target.Definitions(t)); d != "" {
		t.Errorf("the changes left objects behind (-before +after):\n%s", d)
	}
}

// command returns a run of dlxctl apply.
func (s *stage) command(ctx context.Context, t *testing.T, dlxctl, backoff, settle string) (c *exec.Cmd,
	out *bytes.Buffer,
) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(file, []byte(s.file(backoff)), 0o600); err != nil {
		t.Fatal(err)
	}
	c = exec.CommandContext(ctx, dlxctl, "apply", "--yes", "-f", file, "--settle", settle, "--lock-timeout", "20s")
	c.Env = append(os.Environ(), "RABBITMQ_URL="+s.target.URL, "RABBITMQ_API_URL="+s.target.API)
	out = &bytes.Buffer{}
	c.Stdout, c.Stderr = out, out
	return c, out
}

// way returns where the broker routes failures of q now: the destinations of the failed
// exchange, and after a bar those of its alternate exchange.
func (s *stage) way(t *testing.T) string {
	t.Helper()
	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]string{}
	for _, b := range state.Have.Bindings {
		if b.Key == "@q" {
			at[b.Source] = append(at[b.Source], b.Destination)
		}
	}
	return strings.Join(at["shop.failed"], " ") + "|" + strings.Join(at["shop.failed.next"], " ")
}

// SIGKILL ends the program after each step of a change, and the next run continues.
func TestApplyKilledAfterEachStep(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	stop := s.load(t, 50*time.Millisecond)
	for _, step := range []string{
		"shop.a.failed|shop.b.failed", "|shop.b.failed", "shop.b.failed|shop.b.failed",
		"shop.b.failed|",
	} {
		c, out := s.command(t.Context(), t, dlxctl, "b", "1500ms") // long enough to be met after each step
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		brokertest.Eventually(t, "the step "+step, func() bool { return s.way(t) == step })
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // its exit code says how it ended
		if c.ProcessState.ExitCode() != -1 || s.way(t) != step {
			t.Fatalf("it was not killed after %s: %s, and failures go %s:\n%s", step, c.ProcessState, s.way(t), out)
		}
		c, out = s.command(t.Context(), t, dlxctl, "b", "100ms")
		if err := c.Run(); err != nil {
			t.Fatalf("apply: %v\n%s", err, out)
		}
		s.apply(t, s.m, "a", 100*time.Millisecond)
	}
	stop()
	s.account(t, 0)
}

// SIGKILL ends the program at any moment of a backoff change, repeatedly.
func TestApplyKilledDuringBackoffChange(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	target := brokertest.VHost(t)
	s := newStage(t, "quorum", target, target, target)
	stop := s.load(t, 50*time.Millisecond)
	run := func(backoff string, kill time.Duration) bool {
		ctx := t.Context()
		if kill > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, kill) // its end is SIGKILL
			defer cancel()
		}
		c, out := s.command(ctx, t, dlxctl, backoff, "100ms")
		err := c.Run()
		if err != nil && ctx.Err() == nil {
			t.Fatalf("apply: %v\n%s", err, out)
		}
		return err != nil
	}
	kills := 0
	order := []string{"b", "a", "none"}
	for i := range 18 {
		if run(order[i%3], time.Duration(150+i*97%1300)*time.Millisecond) {
			kills++
		}
	}
	run("b", 0)
	stop()
	s.account(t, 0)
	if t.Logf("%d kills", kills); kills == 0 {
		t.Error("no run was killed: this proves nothing")
	}
}

// complete waits until a number is reached, as long as it grows.
func complete(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	for last, end := -1, time.Now(); ; wait(t, 50*time.Millisecond) {
		n := count()
		if n >= want {
			return
		}
		if n > last {
			last, end = n, time.Now().Add(30*time.Second)
		}
		if time.Now().After(end) {
			t.Errorf("found %d of %d %s, and no more arrive", n, want, what)
			return
		}
	}
}

// wait lets the load run for a while.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
