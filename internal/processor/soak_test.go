package processor_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const (
	// soakTime is a variable of the environment: how long TestSoak lasts, as 10m.
	soakTime = "DLXCTL_SOAK"
	// shortSoak is how long it lasts else, with a fault every shortBreak.
	shortSoak, shortBreak = 30 * time.Second, 5 * time.Second
	longBreak             = 15 * time.Second
)

// soak is two processors under load, one of which is killed now and then.
type soak struct {
	*stage

	node    *brokertest.Server
	wire    *brokertest.Proxy
	load    *worker
	victim  *processorChild
	big     []string  // messages with headers near frame_max
	faults  []fault   // what was done to them
	samples []vitals  // of the processor that is not killed
	front   string    // the URL that leads through the wire
	log     *os.File  // of both processors
	begin   time.Time // of the load
}

// fault is a disturbance, from its beginning to when it was over.
type fault struct {
	name     string
	from, to time.Time
}

func (f fault) String() string {
	return f.name + " " + f.from.Format(time.TimeOnly) + " to " + f.to.Format(time.TimeOnly)
}

// TestSoak keeps two processors under constant load and does at random what
// happens in years: connections are cut, the node stops or is killed, a processor
// is killed, alarms come and go, headers are as large as they can be. Every
// message that the broker confirmed arrives; a double was in the loop during a
// fault, or while a processor lost its connection; the processor that lived through
// it all has not grown.
func TestSoak(t *testing.T) {
	t.Parallel()
	long, every := shortSoak, shortBreak
	if text := os.Getenv(soakTime); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakTime, err)
		}
		every = longBreak
	}
	node := brokertest.Node(t)
	s := &soak{node: node, stage: onNode(t, node, `
version: 1
name: shop
defaults: {backoff: quick}
backoff:
  quick: {tiers: [50ms, 200ms]}
exchanges:
  - {name: events}
queues:
  - {name: work, bindings: [{exchange: events, key: "#"}]}
`)}
	front, wire := brokertest.NewProxy(t, s.target)
	s.front, s.wire = front.URL, wire
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	s.log = log
	pause(t, time.Second) // see Kill
	survivor := s.child(t)
	s.victim = s.child(t)
	s.begin = time.Now()
	s.load = tireless(t, s.target)
	s.work(t, 5*time.Second)
	s.samples = append(s.samples, survivor.vitals(t))

	seed := rand.Uint64()
	t.Logf("%s with a fault every %s, seed %d", long, every, seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // chance, and not a secret
	kinds := []struct {
		name string
		do   func(*testing.T)
	}{
		{"connections cut", func(*testing.T) { wire.Cut() }},
		{"processor killed", s.killVictim},
		{"large headers", s.largeHeaders},
		{"alarm", s.alarm},
		{"node stopped", func(t *testing.T) { t.Helper(); node.Stop(t); node.Start(t) }},
		{"node killed", func(t *testing.T) { t.Helper(); node.Kill(t); node.Start(t) }},
	}
	order := random.Perm(len(kinds))
	for i := 0; i < len(kinds) || time.Since(s.begin) < long; i++ {
		if i > 0 && i%len(kinds) == 0 { // each once, in any order, and again
			order = random.Perm(len(kinds))
		}
		kind := kinds[order[i%len(kinds)]]
		f := fault{name: kind.name, from: time.Now()}
		kind.do(t)
		f.to = time.Now()
		s.faults = append(s.faults, f)
		s.work(t, max(time.Second, every-time.Since(f.from)))
		s.samples = append(s.samples, survivor.vitals(t))
	}
	s.settle(t, survivor)
}

// work lets it run on for a while, and checks that messages come through.
func (s *soak) work(t *testing.T, d time.Duration) {
	t.Helper()
	before := s.load.published()
	pause(t, d)
	brokertest.Eventually(t, "the load to go on", func() bool { return s.load.published() > before })
}

func (s *soak) killVictim(t *testing.T) {
	t.Helper()
	s.victim.end(t, syscall.SIGKILL)
	s.victim = s.child(t)
}

func (s *soak) alarm(t *testing.T) {
	t.Helper()
	s.node.Alarm(t, true)
	pause(t, 2*time.Second)
	s.node.Alarm(t, false)
}

// largeHeaders publishes messages whose headers hardly fit a frame, and fit none
// once the broker and the processor have added their headers.
func (s *soak) largeHeaders(t *testing.T) {
	t.Helper()
	s.reconnect(t)
	for i := range 10 {
		id := fmt.Sprintf("big %d", len(s.big))
		s.publish(t, "events", "big",
			amqp091.Publishing{MessageId: id, Headers: amqp091.Table{"big": strings.Repeat("x", 130_000+100*i)}})
		s.big = append(s.big, id)
	}
}

// settle ends the load, waits for the last message and draws the balance.
func (s *soak) settle(t *testing.T, survivor *processorChild) {
	t.Helper()
	sent := append(s.load.stop(), s.big...)
	took := time.Since(s.begin)
	s.reconnect(t)
	seen := map[string][]passage{}
	slow := time.Now().Add(time.Minute + took/5) // then it says what is missing, for the log of a failure
	deadline := slow.Add(4 * time.Minute)
	for missing := len(sent); missing > 0; pause(t, 50*time.Millisecond) {
		for _, queue := range []string{"work.dead", "shop.unroutable"} {
			s.collect(t, queue, seen)
		}
		missing = 0
		for _, id := range sent {
			if len(seen[id]) == 0 {
				missing++
			}
		}
		if missing > 0 && time.Now().After(slow) {
			t.Logf("%d of %d messages are not there: %s", missing, len(sent), s.whereabouts(t, sent, seen))
			slow = deadline
		}
		if missing > 0 && time.Now().After(deadline) {
			t.Fatalf("%d of %d messages are lost: %s", missing, len(sent), s.whereabouts(t, sent, seen))
		}
	}
	for _, queue := range []string{"work", "shop.quick.failed", "shop.quick.retry.50ms", "shop.quick.retry.200ms"} {
		s.untilNothingIn(t, queue)
	}
	for _, queue := range []string{"work.dead", "shop.unroutable"} {
		s.collect(t, queue, seen)
	}
	doubled, unexplained := 0, 0
	reasons := append(s.faults, s.outages(t)...)
	for id, copies := range seen {
		doubled += len(copies) - 1
		if len(copies) > 1 && !explained(copies, reasons) {
			unexplained++
			t.Errorf("message %s is there %d times, and no fault says why: %v; faults: %v", id, len(copies), copies, reasons)
		}
	}
	s.samples = append(s.samples, survivor.vitals(t))
	s.grown(t)
	names := map[string]int{}
	for _, f := range s.faults {
		names[f.name]++
	}
	t.Logf("%s, %d faults %v: %d published, 0 lost, %d doubled (%d unexplained), %d more that were never confirmed",
		took.Round(time.Second), len(s.faults), names, len(sent), doubled, unexplained, len(seen)-len(sent))
	survivor.end(t, syscall.SIGTERM)
	s.victim.end(t, syscall.SIGTERM)
}

// whereabouts returns which messages are missing, what each queue has, and what the processors
// said.
func (s *soak) whereabouts(t *testing.T, sent []string, seen map[string][]passage) string {
	t.Helper()
	var lines []string
	for _, id := range sent {
		if len(seen[id]) == 0 {
			lines = append(lines, "missing: "+id)
		}
	}
	for _, q := range s.topology.Queues {
		counts := s.target.Queue(t, q.Name)
		lines = append(lines, fmt.Sprintf("%s: %d, %v ready, %v unacknowledged, %v in dead-lettering", q.Name,
			s.ready(t, q.Name), counts["messages_ready"], counts["messages_unacknowledged"], counts["messages_dlx"]))
	}
	log, err := os.ReadFile(s.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\nfaults: %v\n%s", strings.Join(lines, "\n"), s.faults, log)
}

// passage is when a copy of a message passed a processor at first, and at last.
type passage struct{ first, last time.Time }

func (p passage) String() string {
	return p.first.Format(time.TimeOnly) + " to " + p.last.Format(time.TimeOnly)
}

// collect takes out what is in a queue.
func (s *soak) collect(t *testing.T, queue string, into map[string][]passage) {
	t.Helper()
	for {
		m, ok, err := s.eyes.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		last, err := time.Parse(time.RFC3339, fmt.Sprint(m.Headers["retry-last-failed-at"]))
		if err != nil {
			t.Fatalf("a copy has no time: %v", err)
		}
		first, err := time.Parse(time.RFC3339, fmt.Sprint(m.Headers["retry-first-failed-at"]))
		if err != nil {
			first = last // dead-lettered at once
		}
		into[m.MessageId] = append(into[m.MessageId], passage{first, last})
	}
}

// outages are the times in which a processor said that it had no connection, and paused before
// the next try. They begin long after the fault where a message whose headers do not fit a frame
// ends the connection when its turn comes, and end long after one, as pauses double.
func (s *soak) outages(t *testing.T) []fault {
	t.Helper()
	lines, err := os.ReadFile(s.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	var found []fault
	for line := range strings.Lines(string(lines)) {
		_, pause, tries := strings.Cut(strings.TrimSpace(line), " pause=")
		if !tries {
			continue
		}
		took, err := time.ParseDuration(pause)
		if err != nil {
			t.Fatalf("the pause of a processor: %v", err)
		}
		_, stamp, _ := strings.Cut(line, "time=")
		stamp, _, _ = strings.Cut(stamp, " ")
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			t.Fatalf("the time of a processor: %v", err)
		}
		found = append(found, fault{name: "a processor without a connection", from: at, to: at.Add(took)})
	}
	return found
}

// explained reports whether a message that came twice was in the loop during a fault, while a
// processor had no connection, or up to some seconds after: that is how long the broker and the
// processors need until they see that a connection is gone.
func explained(copies []passage, faults []fault) bool {
	const aftermath = 10 * time.Second
	first, last := copies[0].first, copies[0].last
	for _, c := range copies {
		if c.first.Before(first) {
			first = c.first
		}
		if c.last.After(last) {
			last = c.last
		}
	}
	return slices.ContainsFunc(faults, func(f fault) bool {
		return first.Before(f.to.Add(aftermath)) && last.Add(time.Second).After(f.from)
	})
}

// grown compares the first and the last look at the processor that lived on.
func (s *soak) grown(t *testing.T) {
	t.Helper()
	first, last := s.samples[0], s.samples[len(s.samples)-1]
	var most vitals
	for _, v := range s.samples {
		most.Goroutines, most.Heap, most.Resident = max(most.Goroutines, v.Goroutines), max(most.Heap, v.Heap),
			max(most.Resident, v.Resident)
	}
	t.Logf("the processor that lived on, first %+v, last %+v, most %+v", first, last, most)
	if last.Goroutines > first.Goroutines+2 {
		t.Errorf("it had %d goroutines at first and %d in the end", first.Goroutines, last.Goroutines)
	}
	if last.Heap > first.Heap+4<<10 {
		t.Errorf("it had %d KiB on its heap at first and %d KiB in the end", first.Heap, last.Heap)
	}
}

// vitals are the signs of life of a process, in KiB after a garbage collection.
type vitals struct {
	Goroutines, Heap, Resident int
}

// processorChild is a processor in a process of its own.
type processorChild struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// child starts a processor behind the wire.
func (s *soak) child(t *testing.T) *processorChild {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") //nolint:gosec // this test binary
	c.Env = append(os.Environ(), childURL+"="+s.front, childFile+"="+s.file)
	c.Stderr = s.log
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return &processorChild{cmd: c, out: bufio.NewScanner(out)}
}

// end sends a signal and waits for the end.
func (c *processorChild) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil && signal != syscall.SIGKILL {
		t.Errorf("the processor ends with %v", err)
	}
}

// vitals asks the process how it is.
func (c *processorChild) vitals(t *testing.T) vitals {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var v vitals
	if !c.out.Scan() {
		t.Fatal("the processor has ended")
	}
	if err := json.Unmarshal(c.out.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
