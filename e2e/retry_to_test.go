package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
)

// retryToFile returns a topology whose queue work retries to another one.
func retryToFile(to string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: quick}
backoff: {quick: {tiers: [2s, 2s, 2s]}}
exchanges: [{name: events}]
queues:
  - {name: work, retryTo: %s, bindings: [{exchange: events, key: "#"}]}
  - {name: left}
  - {name: right}
`, to)
}

// While messages are published and rejected, the queue to which work retries changes twice. Each
// message comes once to one of the queues, those which waited to the one that the file named when
// they failed, and none is lost or doubled.
func TestRetryToChangesUnderTraffic(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := writeTopology(t, retryToFile("left"))
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "--log-level", "debug", "-f", path)
	p.logs(t, "connected")

	retried := func(n int) {
		t.Helper()
		brokertest.Eventually(t, fmt.Sprintf("%d messages to wait", n), func() bool {
			return strings.Count(p.stderr.String(), "retried message") >= n
		}, &p.stderr)
	}

	work, out := target.Channel(t), target.Confirming(t)
	deliveries := brokertest.Consume(t, work, "work", 20)
	go func() {
		for d := range deliveries {
			if d.Reject(false) != nil {
				return // the test is over
			}
		}
	}()
	const early = 50
	for i := range early {
		brokertest.PublishConfirmed(t, out, "events", "a", amqp091.Publishing{MessageId: fmt.Sprintf("early-%d", i)})
	}
	retried(early)
	stop := brokertest.PublishEvery(t, target.Confirming(t), "events", "a", 5*time.Millisecond)
	for i, to := range []string{"right", "left"} {
		replace(t, path, retryToFile(to))
		brokertest.Eventually(t, "the file to be in effect", func() bool {
			return strings.Count(p.stderr.String(), "files changed and are in effect") == i+1
		}, &p.stderr)
		retried(strings.Count(p.stderr.String(), "retried message") + 100)
	}
	n := stop() + early

	queues := map[string]string{} // by message
	in := target.Channel(t)
	brokertest.Eventually(t, fmt.Sprintf("all %d messages", n), func() bool {
		for _, queue := range []string{"left", "right"} {
			for {
				m, ok, err := in.Get(queue, true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if before, twice := queues[m.MessageId]; twice {
					t.Errorf("%s is in %s, and was in %s", m.MessageId, queue, before)
				}
				queues[m.MessageId] = queue
				if m.Headers["retry-first-queue"] != "work" || m.Headers["retry-queue"] != queue ||
					m.Headers["retry-attempts"] != int64(1) || m.RoutingKey != "a" {
					t.Errorf("%s in %s: %v", m.MessageId, queue, m.Headers)
				}
			}
		}
		return len(queues) == n
	}, &p.stderr)
	for i := range early {
		if id := fmt.Sprintf("early-%d", i); queues[id] != "left" {
			t.Errorf("%s, which failed before the file changed, came to %s", id, queues[id])
		}
	}
	for _, queue := range []string{"shop.unroutable", "work.dead", "left.dead", "right.dead"} {
		awaitDepth(t, target, queue, 0)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// A processor whose file retries to a queue that is not applied yet keeps the previous file: its
// messages come back to their own queue until the queue is there, and none is unroutable.
func TestRetryToWaitsForItsQueue(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := writeTopology(t, strings.ReplaceAll(backoffFile("50ms"), "{name: work,", "{name: other}, {name: work,"))
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	p.logs(t, "connected")
	replace(t, path, strings.ReplaceAll(backoffFile("50ms"), "{name: work,", "{name: new}, {name: work, retryTo: new,"))
	p.logs(t, "'dlxctl apply' with the same files and overlays creates it")

	ch := target.Confirming(t)
	in := brokertest.Consume(t, target.Channel(t), "work", 0)
	fails := func(id string) {
		t.Helper()
		brokertest.PublishConfirmed(t, ch, "events", "a", amqp091.Publishing{MessageId: id})
		if d := taken(t, in); d.MessageId != id || d.Reject(false) != nil {
			t.Fatalf("%s is delivered", d.MessageId)
		}
	}
	fails("before")
	if d := taken(t, in); d.MessageId != "before" || d.Ack(false) != nil || d.Headers["retry-first-queue"] != nil {
		t.Fatalf("it comes back as %s with %v", d.MessageId, d.Headers)
	}
	start(t, target, "apply", "--yes", "-f", path, "--allow", "drops-routing").exits(t, 0)
	p.logs(t, "files changed and are in effect")
	fails("after")
	d := brokertest.Take(t, ch, "new")
	if d.MessageId != "after" || d.Headers["retry-first-queue"] != "work" || d.Ack(false) != nil {
		t.Errorf("%s with %v", d.MessageId, d.Headers)
	}
	awaitDepth(t, target, "shop.unroutable", 0)
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// With its rights the processor sees whether the queue of retryTo exists. Without the right on it,
// it goes on, and says so.
func TestRetryToRights(t *testing.T) {
	needsLine(t, "4.3") // before, any user is told
	t.Parallel()
	target := brokertest.VHost(t)
	text := retryToFile("left")
	path := writeTopology(t, text)
	succeeds(t, target, "apply", "--yes", "-f", path)
	var all generate.Grant
	for _, g := range generate.Rights(compiled(t, text)) {
		if g.User == "processor" {
			all = g
		}
	}
	const unsure = "whether a queue of retryTo, or of dead of a match, exists is not known"
	for name, g := range map[string]generate.Grant{"all": all, "without left": without(all, right{"write", "left"})} {
		code, out := dlxctl(as(t, target, g), "process", "--until-empty", "-f", path)
		if says := strings.Contains(out, unsure); code != 0 || says == (name == "all") {
			t.Errorf("%s: exits with %d:\n%s", name, code, out)
		}
	}
	if n := len(without(all, right{"write", "left"}).Write); n != len(all.Write)-1 {
		t.Errorf("the processor has no right on left: %v", all.Write)
	}
}

// Queues that retry to each other: a message that always fails goes round until it has no tier
// left, and is a dead letter where it failed last.
func TestACircleOfRetryToEnds(t *testing.T) {
	t.Parallel()
	path := writeTopology(t, `
version: 1
name: circle
defaults: {backoff: b}
backoff: {b: {tiers: [1s, 2s, 3s]}}
queues: [{name: p, retryTo: q}, {name: q, retryTo: p}]
`)
	code, out := dlxctl(brokertest.VHost(t), "try", "-v", "-f", path)
	for _, want := range []string{
		"dead letter in q.dead with count=-1", "dead letter in p.dead with count=-1", "as predicted: 8 messages in 2 queues",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("try exits with %d, and should say %q:\n%s", code, want, out)
		}
	}
}

// Two processors with two files, which retry to different queues, share the failures: each message
// comes to one of the queues, stays there, and is one dead letter after all its attempts.
func TestRetryToOfTwoFiles(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	left, right := writeTopology(t, retryToFile("left")), writeTopology(t, retryToFile("right"))
	start(t, target, "apply", "--yes", "-f", left).exits(t, 0)
	var processors []*process
	for _, path := range []string{left, right} {
		p := start(t, target, "process", "--prefetch", "20", "-f", path)
		p.logs(t, "connected")
		processors = append(processors, p)
	}
	f := failIn(t, target)
	queues := []string{"work", "left", "right"}
	for _, queue := range queues {
		f.reject(t, queue)
	}
	f.publish(t, "work")
	brokertest.Eventually(t, "both processors to retry", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := map[string]int{}
		for id := range f.delivered {
			queue, _, _ := strings.Cut(id, "/")
			n[queue]++
		}
		return n["left"] > 100 && n["right"] > 100
	})
	f.end(t, &processors[0].stderr, []string{"work", "left", "right", "shop.quick.failed"}, "left.dead", "right.dead")
	f.mu.Lock()
	attempts := map[string]int{} // by message
	for id, n := range f.delivered {
		_, message, _ := strings.Cut(id, "/")
		attempts[message] += n
	}
	for message, n := range attempts {
		inLeft, inRight := f.delivered["left/"+message], f.delivered["right/"+message]
		if n != 4 || inLeft*inRight != 0 {
			t.Errorf("%s is delivered %d times: %d in left, %d in right", message, n, inLeft, inRight)
		}
	}
	f.mu.Unlock()
	awaitDepth(t, target, "work.dead", 0)
	for _, p := range processors {
		p.signal(t, syscall.SIGTERM)
		p.exits(t, 0)
	}
}
