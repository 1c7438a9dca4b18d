package desk_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// shopFile is the topology of the tests: two queues that get the same messages.
func shopFile(typ string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s, backoff: quick}
backoff:
  quick: {tiers: [50ms]}
exchanges:
  - {name: events, type: topic}
queues:
  - {name: billing, bindings: [{exchange: events, key: "order.*"}]}
  - {name: audit, backoff: none, bindings: [{exchange: events, key: "order.*"}]}
`, typ)
}

// shop is a virtual host to which the topology was applied, and a desk.
type shop struct {
	target   brokertest.Target
	topology topology.Compiled
	file     string
	desk     *desk.Desk
	ch       *amqp091.Channel // publishes with confirms
}

func newShop(tb testing.TB, typ string) *shop {
	tb.Helper()
	return newShopOn(tb, brokertest.VHost(tb), shopFile(typ))
}

func newShopOn(tb testing.TB, target brokertest.Target, file string) *shop {
	tb.Helper()
	s := &shop{target: target, file: file}
	var err error
	if s.topology, err = compile(file); err != nil {
		tb.Fatal(err)
	}
	s.desk = s.deskOn(tb, target)
	for tries := 1; ; tries++ {
		state, err := s.desk.Management.Inspect(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		p := plan.Make(s.topology, state, plan.Options{})
		err = apply.ExecuteWithReroutes(tb.Context(), s.desk.Management, s.topology, p, 0, func(plan.Change) {})
		if err == nil {
			break
		}
		// A very busy broker gives up starting a queue, and says so.
		if tries == 3 || !strings.Contains(err.Error(), "cluster_not_formed") {
			tb.Fatal(err)
		}
	}
	s.ch = target.Confirming(tb)
	return s
}

// declare declares a queue.
func (s *shop) declare(tb testing.TB, name string, args amqp091.Table) {
	tb.Helper()
	for tries := 1; ; tries++ {
		_, err := s.ch.QueueDeclare(name, true, false, false, false, args)
		if err == nil {
			return
		}
		// A very busy broker gives up starting a queue, says so, and closes the connection.
		if tries == 3 || !strings.Contains(err.Error(), "cluster_not_formed") {
			tb.Fatal(err)
		}
		s.ch = s.target.Confirming(tb)
	}
}

func compile(file string) (topology.Compiled, error) {
	c, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(file)}},
		func(string) (string, bool) { return "", false })
	return c, err
}

// deskOn returns a desk of the topology on a target, such as a proxy.
func (s *shop) deskOn(tb testing.TB, target brokertest.Target) *desk.Desk {
	tb.Helper()
	d := deskOf(tb, target)
	d.Topology, d.By = s.topology, "tester@here"
	d.Reader = &deadletter.Reader{Known: deadletter.Knows(s.topology)}
	return d
}

// deadLetter returns a dead letter of a work queue as a processor writes it.
func deadLetter(queue, key, id string, n int) amqp091.Publishing {
	at := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC).Add(time.Duration(n+1) * time.Millisecond)
	return amqp091.Publishing{
		MessageId: id, DeliveryMode: amqp091.Persistent, ContentType: "application/json", Type: "order",
		Body: fmt.Appendf(nil, `{"order": %d}`, n),
		Headers: amqp091.Table{
			"count": int32(-1), "retry-queue": queue, "retry-exchange": "events", "retry-routing-key": key,
			"retry-attempts": int64(2), "retry-reason": "rejected", "CC": []any{"@" + queue},
			"retry-first-failed-at": at.Format("2006-01-02T15:04:05.000Z"),
			"retry-last-failed-at":  at.Add(time.Minute).Format("2006-01-02T15:04:05.000Z"), "mine": int64(n),
		},
	}
}

// bury puts n dead letters into billing.dead. Every fourth has the key order.chosen. One in 50 of
// those equals the one before, and has no message-id.
func (s *shop) bury(tb testing.TB, n int) (chosen, rest []string) {
	tb.Helper()
	var order []amqp091.Publishing
	for i := range n {
		m := deadLetter("billing", "order.stays", fmt.Sprint(i), i)
		if i%4 == 0 {
			m = deadLetter("billing", "order.chosen", fmt.Sprint(i), i)
			if i%200 < 8 { // pairs of equal ones without an id
				m = deadLetter("billing", "order.chosen", "", i-i%8)
			}
			chosen = append(chosen, identity(m.MessageId, m.Body))
		} else {
			rest = append(rest, identity(m.MessageId, m.Body))
		}
		order = append(order, m)
	}
	s.buryAll(tb, order)
	return chosen, rest
}

// buryAll fills the empty billing.dead.
func (s *shop) buryAll(tb testing.TB, order []amqp091.Publishing) {
	tb.Helper()
	var last *amqp091.DeferredConfirmation
	for _, m := range order {
		key, _ := m.Headers["retry-routing-key"].(string)
		var err error
		if last, err = s.ch.PublishWithDeferredConfirm("shop.dead", key, true, false, m); err != nil {
			tb.Fatal(err)
		}
	}
	last.Wait()
	s.awaitReady(tb, "billing.dead", len(order))
}

// awaitReady waits until a queue has n messages ready: those of a killed process come back a moment
// later.
func (s *shop) awaitReady(tb testing.TB, queue string, n int) {
	tb.Helper()
	has := 0
	brokertest.Eventually(tb, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		has = readyIn(tb, s.ch, queue)
		return has == n
	}, &has)
}

func identity(id string, body []byte) string { return id + " " + string(body) }

func identities(list []amqp091.Delivery) []string {
	var out []string
	for _, d := range list {
		out = append(out, identity(d.MessageId, d.Body))
	}
	return out
}

// request asks for the messages with the key order.chosen.
func request(tb testing.TB, action desk.Action) desk.Request {
	tb.Helper()
	f, err := deadletter.NewFilter(`key == "order.chosen"`)
	if err != nil {
		tb.Fatal(err)
	}
	return desk.Request{Action: action, Queue: "billing.dead", Filter: f, Reason: "test"}
}

// execute proposes and executes.
func (s *shop) execute(tb testing.TB, r desk.Request) desk.Result {
	tb.Helper()
	p, err := s.desk.Propose(tb.Context(), r)
	if err != nil {
		tb.Fatal(err)
	}
	if len(p.Refusals) > 0 {
		tb.Fatalf("refused: %v", p.Refusals)
	}
	result, err := s.desk.Execute(tb.Context(), p, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// onlyRun returns the run that has not ended. It is empty if there is none.
func (s *shop) onlyRun(tb testing.TB) string {
	tb.Helper()
	runs, err := s.desk.Runs(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	switch len(runs) {
	case 0:
		return ""
	case 1:
		return runs[0].ID
	default:
		tb.Fatalf("%d runs: %+v", len(runs), runs)
		return ""
	}
}

// drained removes what is ready in a queue, in order.
func (s *shop) drained(tb testing.TB, queue string) []amqp091.Delivery {
	tb.Helper()
	return s.read(tb, queue, true)
}

// peeked returns the messages of a queue, which stay there in their order.
func (s *shop) peeked(tb testing.TB, queue string) []amqp091.Delivery {
	tb.Helper()
	return s.read(tb, queue, false)
}

// read returns the messages of a queue, and removes them or leaves them there.
func (s *shop) read(tb testing.TB, queue string, remove bool) []amqp091.Delivery {
	tb.Helper()
	n := readyIn(tb, s.ch, queue)
	if n == 0 {
		return nil
	}
	ch := s.target.Channel(tb)
	if err := ch.Qos(n, 0, false); err != nil {
		tb.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "read", false, false, false, false, nil)
	if err != nil {
		tb.Fatal(err)
	}
	late := time.After(time.Minute)
	var out []amqp091.Delivery
	for len(out) < n {
		select {
		case d := <-deliveries:
			out = append(out, d)
		case <-late:
			tb.Fatalf("%s had %d messages, want %d", queue, len(out), n)
		}
	}
	if remove {
		if err := ch.Ack(0, true); err != nil {
			tb.Fatal(err)
		}
	}
	if err := ch.Close(); err != nil {
		tb.Fatal(err)
	}
	left := n
	if remove {
		left = 0
	}
	s.awaitReady(tb, queue, left)
	return out
}

// tidy checks that nothing of a run is left on the broker.
func (s *shop) tidy(tb testing.TB) { tb.Helper(); s.tidyOf(tb, "shop.desk.") }

// tidyOf checks that nothing is left whose name begins so.
func (s *shop) tidyOf(tb testing.TB, prefix string) {
	tb.Helper()
	var left []string
	brokertest.Eventually(tb, "the run to be gone", func() bool {
		state, err := s.desk.Management.Inspect(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		left = nil
		for _, q := range state.Have.Queues {
			if strings.HasPrefix(q.Name, prefix) && q.Name != topology.LogName("shop") {
				left = append(left, q.Name)
			}
		}
		for _, e := range state.Have.Exchanges {
			if strings.HasPrefix(e.Name, prefix) {
				left = append(left, e.Name)
			}
		}
		return len(left) == 0
	}, &left)
}

// counts counts equal texts.
func counts(list []string) map[string]int {
	out := map[string]int{}
	for _, s := range list {
		out[s]++
	}
	return out
}

// compareCounts reports what is lost and what is doubled.
func compareCounts(want, got []string) (lost, doubled int) {
	has := counts(got)
	for id, n := range counts(want) {
		lost += max(0, n-has[id])
		doubled += max(0, has[id]-n)
		delete(has, id)
	}
	for n := range maps.Values(has) {
		doubled += n
	}
	return lost, doubled
}

// childTask tells the test binary to be a desk that a test can kill: it holds a task as JSON.
const childTask = "DLXCTL_TEST_DESK_TASK"

// task is what a child does: it executes, or resumes or returns a run. It prints a line for each
// step.
type task struct {
	URL, API, File string
	Action         desk.Action
	Queue          string // empty is billing.dead, or dlq without a file
	Where          string // empty is those with the key order.chosen, or all without a file
	Send           desk.SendOptions
	Run            string // empty is a new one
	Edited         *deadletter.Edited
	NewKey         string // of the edited message
	Return         bool
	Hold           bool // also with few messages
	// StallAt makes the child wait to be killed, in that phase, at so many messages. Zero is never.
	StallAt int
	StallIn desk.Phase
	// Copying is that of Desk.Copying. Zero is the default.
	Copying int
	// Hurry is the kind of a policy that is set when the child has copied HurryAt messages, see
	// shop.hurry. Empty: none. The child reads policies every 3 s, and can be killed before it knows.
	Hurry        string
	HurryAt, TTL int
}

func child() error {
	var k task
	if err := json.Unmarshal([]byte(os.Getenv(childTask)), &k); err != nil {
		return err
	}
	e, err := broker.Config{URL: k.URL, API: k.API}.Resolve()
	if err != nil {
		return err
	}
	m, err := management.New(e)
	if err != nil {
		return err
	}
	d := &desk.Desk{Endpoint: e, Management: m, By: "child"}
	if k.Hold {
		d.Holding()
	}
	d.Copying(k.Copying)
	if k.Hurry != "" {
		d.Guarding(3 * time.Second)
	}
	if k.File == "" {
		if err := discover(context.Background(), d); err != nil {
			return err
		}
		return k.run(d)
	}
	c, err := compile(k.File)
	if err != nil {
		return err
	}
	d.Topology, d.Reader = c, &deadletter.Reader{Known: deadletter.Knows(c)}
	return k.run(d)
}

// discover makes a desk that of a virtual host without a topology file.
func discover(ctx context.Context, d *desk.Desk) error {
	if err := d.Discover(ctx, ""); err != nil {
		return err
	}
	d.Reader = &deadletter.Reader{Known: deadletter.Knows(d.Topology)}
	d.Reader.Known.Route = d.Route
	return nil
}

func (k task) run(d *desk.Desk) error {
	ctx := context.Background()
	say := func(p desk.Progress) {
		fmt.Fprintf(os.Stdout, "%s %d %s\n", p.Phase, p.Done, p.Pausing)
		if k.Hurry != "" && p.Phase == desk.Taking && p.Done == k.HurryAt {
			fmt.Fprintln(os.Stdout, "hurry")
			_, _ = fmt.Scanln() // the policy is set
		}
		if k.StallAt > 0 && p.Phase == k.StallIn && p.Done >= k.StallAt {
			fmt.Fprintln(os.Stdout, "stalled")
			select {}
		}
	}
	var r desk.Result
	var err error
	switch {
	case k.Return:
		r, err = d.Return(ctx, k.Run, say)
	case k.Run != "":
		r, err = d.Resume(ctx, k.Run, nil, say)
	default:
		f, _ := deadletter.NewFilter(cmp.Or(k.Where, `key == "order.chosen"`))
		request := desk.Request{
			Action: k.Action, Queue: cmp.Or(k.Queue, "billing.dead"), Filter: f, Send: k.Send,
			Edited: k.Edited, Key: k.NewKey,
		}
		if k.File == "" && k.Queue == "" {
			request.Queue, request.Filter = "dlq", nil
		}
		var p desk.Proposal
		p, err = d.Propose(ctx, request)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "proposed")
		r, err = d.Execute(ctx, p, say)
	}
	fmt.Fprintf(os.Stdout, "ended %+v\n", r)
	return err
}

// running is a child that runs.
type running struct {
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	errs  strings.Builder
	read  sync.WaitGroup
}

// start starts a child. At the first line that stop accepts it is killed.
func (s *shop) start(tb testing.TB, k task, stop func(line string) bool) *running {
	tb.Helper()
	k.URL, k.API, k.File = s.target.URL, s.target.API, s.file
	raw, err := json.Marshal(k)
	if err != nil {
		tb.Fatal(err)
	}
	c := &running{cmd: exec.CommandContext(tb.Context(), os.Args[0], "-test.run=^$")} //nolint:gosec // this test binary
	c.cmd.Env = append(os.Environ(), childTask+"="+string(raw))
	c.cmd.Stderr = &c.errs
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c.read.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.mu.Lock()
			c.lines = append(c.lines, lines.Text())
			c.mu.Unlock()
			if lines.Text() == "hurry" {
				s.hurry(tb, k.Hurry, k.TTL)
				fmt.Fprintln(in)
			}
			if stop(lines.Text()) {
				_ = c.cmd.Process.Kill()
			}
		}
	})
	return c
}

// ended waits for the end, and reports whether the child was killed.
func (c *running) ended(tb testing.TB) (killed bool) {
	tb.Helper()
	c.read.Wait()
	err := c.cmd.Wait()
	if err == nil {
		return false
	}
	if c.cmd.ProcessState.ExitCode() != -1 {
		tb.Errorf("the child failed: %v\n%s\n%s", err, c.errs.String(), strings.Join(c.lines, "\n"))
	}
	return true
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
