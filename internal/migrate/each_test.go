package migrate_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// fleet is a stage with many queues, which the file has as queues of another type than the broker:
// q00, q01 and so on, each with a consumer that reconnects. The last of them are replaced by
// successors, as r00, r01.
type fleet struct {
	*stage

	have   string   // the type of the queues that exist
	queues []string // those that are replaced under their names
	moved  []string // legacy queues
	sends  int      // how often send was called
	atOnce string   // how many queues a run moves at a time. Empty: 8
	paused sync.Map // how long after its last cancel each consumer had a message, by queue
	gaps   sync.Map // the longest time between two messages of each consumer, by queue
}

// newFleet declares the queues.
func newFleet(tb testing.TB, target brokertest.Target, have, want string, replaced, moved int) *fleet {
	tb.Helper()
	f := &fleet{have: have}
	var b strings.Builder
	b.WriteString(`
version: 1
name: shop
defaults: {backoff: quick, type: quorum}
backoff: {quick: {tiers: [100ms]}}
exchanges:
  - {name: t}
  - {name: d, type: direct}
  - {name: f, type: fanout}
  - {name: h, type: headers}
queues:
`)
	entry := func(name, more, key string) {
		fmt.Fprintf(&b, `  - {name: %s, type: %s, %sbindings: [{exchange: t, key: "%s.#"}, {exchange: d, key: %s}, {exchange: f},`+
			` {exchange: h, headers: {to: %s}}]}`+"\n", name, want, more, key, key, key)
	}
	for i := range replaced {
		f.queues = append(f.queues, fmt.Sprintf("q%02d", i))
		entry(f.queues[i], "", f.queues[i])
	}
	for i := range moved {
		f.moved = append(f.moved, fmt.Sprintf("r%02d", i))
		entry(f.moved[i]+".v2", "replaces: "+f.moved[i]+", ", f.moved[i])
	}
	f.stage = newStageIn(tb, target, b.String(), "", nil)
	ch := target.Channel(tb)
	for name, kind := range map[string]string{"t": "topic", "d": "direct", "f": "fanout", "h": "headers"} {
		brokertest.DeclareExchange(tb, ch, name, kind, nil)
	}
	for _, name := range slices.Concat(f.queues, f.moved) {
		f.declare(tb, ch, name, nil)
	}
	return f
}

// declare declares a queue and binds it as the file says.
func (f *fleet) declare(tb testing.TB, ch *amqp091.Channel, name string, args amqp091.Table) {
	tb.Helper()
	all := amqp091.Table{"x-queue-type": f.have}
	maps.Copy(all, args)
	brokertest.Declare(tb, ch, name, all)
	for _, b := range []struct {
		key, exchange string
		args          amqp091.Table
	}{{name + ".#", "t", nil}, {name, "d", nil}, {"", "f", nil}, {"", "h", amqp091.Table{"to": name, "x-match": "all"}}} {
		brokertest.Bind(tb, ch, name, b.key, b.exchange, b.args)
	}
}

// serve consumes from a queue as a service does that subscribes again 100 ms after a cancel. Each
// message counts once for each queue.
func (f *fleet) serve(tb testing.TB, queue string) (stop func()) {
	tb.Helper()
	name := strings.TrimSuffix(queue, ".v2")
	var canceled, last time.Time
	var gap time.Duration
	return f.consuming(tb, queue, consumer{
		prefetch: 100,
		canceled: func() { canceled = time.Now() },
		on: func(d amqp091.Delivery) error {
			if !canceled.IsZero() {
				f.paused.Store(queue, time.Since(canceled))
				canceled = time.Time{}
			}
			if now := time.Now(); !last.IsZero() && now.Sub(last) > gap {
				gap = now.Sub(last)
				f.gaps.Store(queue, gap)
			}
			last = time.Now()
			f.mu.Lock()
			f.seen[name+"/"+d.MessageId]++
			f.mu.Unlock()
			return d.Ack(false)
		},
	})
}

// send publishes to all queues until stop, through each exchange: so many messages a second to each
// queue. stop returns what was confirmed, as serve counts it.
func (f *fleet) send(tb testing.TB, perSecond float64) (stop func() map[string]bool) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	names := slices.Concat(f.queues, f.moved)
	confirmed := map[string]bool{}
	var done sync.WaitGroup
	f.sends++
	turn := f.sends
	ch := f.target.Confirming(tb)
	returned := ch.NotifyReturn(make(chan amqp091.Return, 10_000))
	done.Go(func() {
		type sent struct {
			confirm *amqp091.DeferredConfirmation
			marks   []string
		}
		var waiting []sent
		settle := func(s sent) {
			if !s.confirm.Wait() {
				return
			}
			for _, mark := range s.marks {
				confirmed[mark] = true
			}
		}
		began, every := time.Now(), time.Duration(float64(time.Second)/perSecond/float64(len(names)))
		for n := 0; ctx.Err() == nil; n++ {
			<-time.After(time.Until(began.Add(time.Duration(n) * every))) // it catches up when it was late
			name, id := names[n%len(names)], fmt.Sprintf("%d-%d", turn, n)
			m := amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{"to": name}}
			exchange, key, marks := "f", "", []string{name + "/" + id}
			switch round := n / len(names); {
			case round%20 == 19 && n%len(names) == 0: // to all
				marks = nil
				for _, to := range names {
					marks = append(marks, to+"/"+id)
				}
			case round%3 == 0:
				exchange, key = "t", name+".placed"
			case round%3 == 1:
				exchange, key = "d", name
			default:
				exchange = "h"
			}
			c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
			if err != nil {
				tb.Errorf("publish: %v", err)
				return
			}
			if waiting = append(waiting, sent{c, marks}); len(waiting) > 500 {
				settle(waiting[0])
				waiting = waiting[1:]
			}
		}
		for _, s := range waiting {
			settle(s)
		}
	})
	return func() map[string]bool {
		cancel()
		done.Wait()
		for len(returned) > 0 {
			r := <-returned
			tb.Errorf("message %s to %s with %q was returned", r.MessageId, r.Exchange, r.RoutingKey)
		}
		return confirmed
	}
}

// each returns a run of dlxctl migrate over all queues, with consent for each of them.
func (f *fleet) each(tb testing.TB, program string, more ...string) (c *exec.Cmd, stdout, stderr *bytes.Buffer) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "topology.yaml")
	if err := os.WriteFile(file, []byte(f.file), 0o600); err != nil {
		tb.Fatal(err)
	}
	args := []string{
		"migrate", "-f", file, "--match", "^[qr]", "--parallel", cmp.Or(f.atOnce, "8"), "--yes", "--settle", "100ms",
		"--idle", "2s", "--lock-timeout", "30s",
	}
	for _, q := range f.queues {
		args = append(args, "--allow", "replaces-queue="+q)
	}
	c = exec.CommandContext(tb.Context(), program, append(args, more...)...)
	c.Env = append(os.Environ(), "RABBITMQ_URL="+f.user.URL, "RABBITMQ_API_URL="+f.target.API)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	c.Stdout, c.Stderr = stdout, stderr
	return c, stdout, stderr
}

// strike starts a run and sends it a signal once it has said so many times that a queue is done. It
// returns what the run printed, and its exit code.
func strike(t *testing.T, c *exec.Cmd, signal os.Signal, times int) (printed string, code int) {
	t.Helper()
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if strings.HasPrefix(lines.Text(), "done: ") {
			if times--; times == 0 {
				if err := c.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	_ = c.Wait() // its exit code says how it ended
	return all.String(), c.ProcessState.ExitCode()
}

// closeLock closes the connection with the lock of the next run once it has begun with queues, as
// the broker does when it cannot declare a queue. stop ends the attempts.
func (f *fleet) closeLock(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	before := migrate.Unfinished(f.want, f.inspect(t)) // of a run that was killed
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			state, err := f.m.Inspect(ctx)
			begun := slices.DeleteFunc(migrate.Unfinished(f.want, state), func(q string) bool {
				return slices.Contains(before, q)
			})
			if err != nil || len(begun) < 2 {
				continue
			}
			var list []struct {
				Name   string `json:"name"`
				Client string `json:"user_provided_name"`
				VHost  string `json:"vhost"`
			}
			if err := json.Unmarshal(f.target.Call(t, "GET", "connections", nil), &list); err != nil { //nolint:contextcheck // of the test
				continue
			}
			for _, c := range list {
				if c.VHost == f.target.VHost && strings.HasPrefix(c.Client, "dlxctl migrate shop (") {
					f.target.Call(t, "DELETE", "connections/"+url.PathEscape(c.Name), nil) //nolint:contextcheck // of the test
					return
				}
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// outcomes runs a command to its end and returns what became of each queue.
func outcomes(t *testing.T, c *exec.Cmd, stdout, stderr *bytes.Buffer) (map[string]migrate.Result, int) {
	t.Helper()
	_ = c.Run() // its exit code says how it ended
	var document migrate.ResultDocument
	if err := json.Unmarshal(stdout.Bytes(), &document); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, stdout, stderr)
	}
	out := map[string]migrate.Result{}
	for _, r := range document.Queues {
		out[r.Queue] = r
	}
	return out, c.ProcessState.ExitCode()
}

// A queue whose drain loses its connection is begun anew, and what was moved before counts. The
// connection ends when message 2,001 is acknowledged. At most 1,000 are in flight, so the queue has
// lost more than 1,000 by then: a count that began anew would miss them.
func TestCountsOutliveAConnection(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	const n = 5_000
	s.fill(t, n, 10)
	var ended atomic.Bool
	s.connect(t, onFrame(t, s.user, basicAck, func(_ net.Conn, piece []byte) bool {
		tag := piece[bytes.LastIndex(piece, []byte(basicAck))+len(basicAck):]
		return len(tag) < 8 || binary.BigEndian.Uint64(tag) <= 2_000 || ended.Swap(true)
	}))
	r := s.runner(t)
	r.Parallel, r.DrainNow = 1, true
	var said strings.Builder
	r.Report = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	result, doubled := r.Results()[0], int64(s.ready(t, "new")-n)
	if result.Moved < n || result.Doubled == 0 || doubled < 0 || doubled > result.Doubled ||
		!strings.Contains(said.String(), "old: trying again in ") {
		t.Errorf("%d are doubled; the result is %+v, and it says:\n%s", doubled, result, &said)
	}
}

// Under traffic through four exchanges, 30 queues are replaced or moved, eight at a time. Ctrl-C,
// SIGKILL, the end of the connection with the lock, a queue whose consumer holds a message and one
// that is refused stop none of the others: no message is lost, and doubled is at most what the
// killed movers had in flight.
func TestManyAtOnce(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	dlxctl := brokertest.Program(t)
	f := newFleet(t, brokertest.VHost(t), "classic", "quorum", 28, 2)
	ch := f.target.Channel(t)
	const stuck, refused = "q03", "q07"
	brokertest.Delete(t, ch, refused)
	f.declare(t, ch, refused, amqp091.Table{"x-expires": 3_600_000})
	holding := brokertest.Consume(t, ch, stuck, 1)
	var held amqp091.Delivery
	published := f.send(t, 2)
	held = <-holding
	for _, q := range f.queues {
		defer f.serve(t, q)()
	}
	for _, q := range f.moved {
		defer f.serve(t, q+".v2")()
	}
	wait(t, time.Second)

	c, _, stderr := f.each(t, dlxctl)
	said, code := strike(t, c, syscall.SIGINT, 3)
	for _, text := range []string{" done ", " stopped ", " not begun ", " refused "} {
		if !strings.Contains(said, text) || code != 4 {
			t.Errorf("after Ctrl-C it exits with %d and does not say %q:\n%s\n%s", code, text, said, stderr)
		}
	}
	t.Logf("%s\n%s", said, stderr)
	if !strings.Contains(stderr.String(), "to continue: dlxctl migrate --") ||
		!regexp.MustCompile(`to roll back: dlxctl migrate abort (q\d+ )*q03 `).MatchString(stderr.String()) ||
		strings.Contains(stderr.String(), "ended 30 of 30 queues") {
		t.Errorf("it does not say how to go on: %s", stderr)
	}
	c, _, stderr = f.each(t, dlxctl)
	if said, code = strike(t, c, syscall.SIGKILL, 3); code != -1 {
		t.Fatalf("it exits with %d before it was killed:\n%s\n%s", code, said, stderr)
	}
	state := f.inspect(t)
	t.Logf("after the kill: %d are in the middle, %d of %d are not replaced", len(migrate.Unfinished(f.want, state)),
		len(f.differing(state)), len(f.queues))

	results, code := func() (map[string]migrate.Result, int) {
		defer f.closeLock(t)()
		c, stdout, stderr := f.each(t, dlxctl, "--wait", "20s", "-o", "json")
		defer func() {
			t.Logf("%s\n%s", stdout, stderr)
			if !strings.Contains(stderr.String(), "the connection with the lock has ended; the lock is taken again") {
				t.Error("the lock was not lost")
			}
		}()
		return outcomes(t, c, stdout, stderr)
	}()
	waits, refuses := results[stuck].Outcome, results[refused].Outcome
	if code != 4 || waits != migrate.Waiting || refuses != migrate.Refused {
		t.Errorf("it exits with %d, %s is %s, %s is %s", code, stuck, waits, refused, refuses)
	}
	for name, r := range results {
		// On a busy machine the consumers of others need longer than 20 s too.
		if name != stuck && name != refused && r.Outcome != migrate.Done && r.Outcome != migrate.Waiting {
			t.Errorf("%s is %s: %s", name, r.Outcome, r.Error)
		}
	}
	left := ""
	brokertest.Eventually(t, "all but two queues to be replaced", func() bool {
		state = f.inspect(t)
		names := f.differing(state)
		if slices.Equal(names, []string{stuck, refused}) {
			return true
		}
		c, stdout, stderr := f.each(t, dlxctl, "--wait", "20s", "-o", "json")
		outcomes(t, c, stdout, stderr)
		left = fmt.Sprintf("%v\n%s\n%s", names, stdout, stderr)
		return false
	}, &left)
	if left := migrate.Unfinished(f.want, state); len(left) > 0 {
		t.Errorf("in the middle: %v", left)
	}
	if err := held.Ack(false); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	f.seen[stuck+"/"+held.MessageId]++
	f.mu.Unlock()
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	c, stdout, stderr := f.each(t, dlxctl, "-o", "json")
	results, code = outcomes(t, c, stdout, stderr)
	if code != 4 || len(results) != 2 || results[stuck].Outcome != migrate.Done {
		t.Errorf("at last it exits with %d:\n%s\n%s", code, stdout, stderr)
	}
	c, stdout, stderr = f.each(t, dlxctl, "-o", "json")
	if results, code = outcomes(t, c, stdout, stderr); code != 3 || len(results) != 1 {
		t.Errorf("with the refused queue alone it exits with %d:\n%s\n%s", code, stdout, stderr)
	}
	confirmed := published()
	lost, doubled := f.account(t, confirmed)
	if lost > 0 || doubled > 8*200 {
		t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
		f.where(t, confirmed)
	}
	f.tidy(t)
	state = f.inspect(t)
	for _, q := range f.moved {
		if f.exists(t, q) {
			t.Errorf("the legacy queue %s is left", q)
		}
	}
	for _, c := range plan.Make(f.want, state, plan.Options{}).Changes {
		if !strings.Contains(c.Name, refused) {
			t.Errorf("left to do: %s %s %s: %s", c.Action, c.Kind, c.Name, c.Reason)
		}
	}
	t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
}

// Twenty times one way and the other, on one node and on three, a queue is replaced under its name
// with 500 messages a second through four exchanges, and dlxctl is killed once each time, at
// another step: no message is lost, and doubled is at most what the killed movers had in flight.
func TestReplaceTwentyTimes(t *testing.T) {
	t.Parallel()
	rounds := brokertest.Rounds(0, 20)
	if rounds == 0 {
		t.Skip("ten minutes; it runs each night")
	}
	//nolint:paralleltest // each wants the machine for itself
	t.Run("one node", func(t *testing.T) {
		target := brokertest.VHost(t)
		replaceAgainAndAgain(t, newFleet(t, target, "classic", "quorum", 1, 0), target, rounds)
	})
	//nolint:paralleltest // each wants the machine for itself
	t.Run("three nodes", func(t *testing.T) {
		nodes := brokertest.Cluster(t)
		f := newFleet(t, nodes[0].VHost(t), "classic", "quorum", 1, 0)
		replaceAgainAndAgain(t, f, nodes[1].See(t, f.target), rounds)
	})
}

// replaceAgainAndAgain replaces the queue of a fleet so many times, with its publisher and its
// consumer at clients.
func replaceAgainAndAgain(t *testing.T, f *fleet, clients brokertest.Target, rounds int) {
	t.Helper()
	dlxctl := brokertest.Program(t)
	f.target = clients
	stop := f.serve(t, "q00")
	published, began := f.send(t, 500), time.Now()
	r := rand.New(rand.NewPCG(1, 4)) //nolint:gosec // the same moments each time
	kills, steps := 0, replaceSteps()
	for round := range rounds {
		types := []string{"quorum", "classic"}
		entry := "name: q00, type: "
		f.file = strings.Replace(f.file, entry+types[(round+1)%2], entry+types[round%2], 1)
		f.want = spectest.Compile(t, f.file)
		c, _, _ := f.each(t, dlxctl)
		after := time.Duration(r.IntN(400)) * time.Millisecond
		if killAtLine(t, c, steps[round%len(steps)], after) {
			kills++
		}
		c, stdout, stderr := f.each(t, dlxctl)
		if err := c.Run(); err != nil {
			t.Fatalf("round %d: %v\n%s\n%s", round, err, stdout, stderr)
		}
		if left := f.differing(f.inspect(t)); len(left) > 0 {
			t.Fatalf("round %d: it is not replaced:\n%s\n%s", round, stdout, stderr)
		}
	}
	confirmed := published()
	rate := float64(len(confirmed)) / time.Since(began).Seconds()
	lost, doubled := f.account(t, confirmed)
	if lost > 0 || doubled > kills*200 || kills < rounds*3/4 {
		t.Errorf("%d of %d messages were lost, %d doubled, %d kills", lost, len(confirmed), doubled, kills)
		f.where(t, confirmed)
	}
	stop()
	f.tidy(t)
	t.Logf("%d replacements, %d kills, %d published, %.0f a second, %d lost, %d doubled", rounds, kills, len(confirmed), rate,
		lost, doubled)
}

// killAtLine starts a run and kills it a while after it has printed a line that begins so. It
// reports whether there was such a line.
func killAtLine(t *testing.T, c *exec.Cmd, line string, after time.Duration) bool {
	t.Helper()
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said := strings.ReplaceAll(lines.Text(), "q00", "new"); strings.HasPrefix(said, line) && !killed {
			killed = true
			wait(t, after)
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait() // it was killed
	return killed && c.ProcessState.ExitCode() == -1
}

// differing returns the queues that are not as the file has them.
func (f *fleet) differing(state topology.State) []string {
	return slices.DeleteFunc(slices.Clone(f.queues), func(q string) bool { return !plan.Differs(f.want, state, q) })
}
