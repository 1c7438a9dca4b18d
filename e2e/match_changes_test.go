package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The entries with match of a file, in the order of the file.
const (
	matchAll = `{match: '^svc\.', external: true}`
	matchX   = `{match: '^svc\.x', external: true, dead: {queue: x.dead}}`
)

// matchesFile returns a topology with a queue and entries with match.
func matchesFile(backoff string, entries ...string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: %s}
backoff: {a: {tiers: [100ms, 200ms]}, b: {tiers: [200ms, 300ms, 100ms]}}
exchanges: [{name: events}]
queues:
  - {name: work, backoff: a, bindings: [{exchange: events, key: "#"}]}
  - {name: other, backoff: b}
  - %s
`, backoff, strings.Join(entries, "\n  - "))
}

// failing is a virtual host in which services have declared queues that a match covers, publish to
// them, and reject all that they get.
type failing struct {
	target    brokertest.Target
	published []func() int
	mu        sync.Mutex
	delivered map[string]int // by queue and message-id
}

// failIn declares queues of both types, and lets all fail that is published to them.
func failIn(t *testing.T, target brokertest.Target, queues ...string) *failing {
	t.Helper()
	f := &failing{target: target, delivered: map[string]int{}}
	for i, queue := range queues {
		kind := []string{"quorum", "classic"}[i%2]
		args := amqp091.Table{"x-queue-type": kind}
		brokertest.Declare(t, target.Channel(t), queue, args)
		f.reject(t, queue)
	}
	return f
}

// reject begins to reject all that a queue delivers.
func (f *failing) reject(t *testing.T, queue string) {
	t.Helper()
	ch := f.target.Channel(t)
	deliveries := brokertest.Consume(t, ch, queue, 20)
	go func() {
		for d := range deliveries {
			f.mu.Lock()
			f.delivered[queue+"/"+d.MessageId]++
			f.mu.Unlock()
			if d.Reject(false) != nil {
				return // the test is over
			}
		}
	}()
}

// delivers checks how often a message, such as billing/id, was delivered.
func (f *failing) delivers(t *testing.T, message string, times int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.delivered[message]; n != times {
		t.Errorf("%s was delivered %d times, not %d", message, n, times)
	}
}

// publish begins to publish to the queues.
func (f *failing) publish(t *testing.T, queues ...string) {
	t.Helper()
	for _, queue := range queues {
		stop := brokertest.PublishEvery(t, f.target.Confirming(t), "", queue, brokertest.Pause(4*time.Millisecond))
		f.published = append(f.published, stop)
	}
}

// end ends the publishing, and checks that each message is one dead letter, in one of the queues
// dead, and that the other queues are empty.
func (f *failing) end(t *testing.T, state any, queues []string, dead ...string) {
	t.Helper()
	n := 0
	for _, stop := range f.published {
		n += stop()
	}
	ch := f.target.Channel(t)
	once := map[string]string{}
	brokertest.Eventually(t, fmt.Sprintf("%d dead letters", n), func() bool {
		for _, queue := range slices.Concat(dead, []string{"shop.unroutable"}) {
			for {
				m, ok, err := ch.Get(queue, true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				id := fmt.Sprint(m.Headers["retry-queue"], "/", m.MessageId)
				if before, twice := once[id]; twice {
					t.Errorf("%s is in %s, and was in %s", id, queue, before)
				}
				once[id] = queue
				if queue == "shop.unroutable" {
					t.Errorf("%s is unroutable: %v", id, m.Headers)
				}
			}
		}
		return len(once) >= n
	}, func() string { return fmt.Sprintf("%d are there\n%v", len(once), state) })
	for _, queue := range slices.Concat(queues, dead, []string{"shop.unroutable"}) {
		awaitDepth(t, f.target, queue, 0)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	deliveries := 0
	for _, k := range f.delivered {
		deliveries += k
	}
	t.Logf("%d messages, %d deliveries, %d dead letters", n, deliveries, len(once))
}

// While messages fail, entries with match change their order and their backoff, back and again, and
// each third apply is killed. Each message ends once as a dead letter of its own queue.
func TestMatchesChangeUnderTraffic(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.0") {
		t.Skip("before 4.0, match is refused")
	}
	files := []string{
		matchesFile("a", matchX, matchAll), matchesFile("a", matchAll, matchX), matchesFile("b", matchAll, matchX),
		matchesFile("b", matchX, matchAll),
	}
	path := writeTopology(t, files[0])
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	p.logs(t, "connected")
	queues := []string{"svc.x1", "svc.x2", "svc.y1", "svc.y2"}
	f := failIn(t, target, queues...)
	f.publish(t, queues...)
	apply := func() *process {
		return start(t, target, "apply", "--yes", "--lock-timeout", lockFreed, "-f", path)
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same choices each time
	for round := range brokertest.Load(50) {
		replace(t, path, files[(round+1+r.IntN(3))%len(files)])
		if round%3 == 2 {
			apply().killAfter(t, time.Duration(r.IntN(4000))*time.Millisecond)
			if r.IntN(2) == 0 { // another file in the middle
				replace(t, path, files[r.IntN(len(files))])
			}
		}
		again := apply()
		<-again.ended
		if strings.Contains(again.stderr.String(), "another client may be changing it") {
			again = apply()
		}
		again.exits(t, 0)
		start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
	}
	f.end(t, &p.stderr, append(queues, "shop.a.failed", "shop.b.failed"), "x.dead", "shop.dead")
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// A processor whose file has no match yet retries what fails in a queue that apply has covered
// since.
func TestAMatchIsAddedWhileAProcessorRuns(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.0") {
		t.Skip("before 4.0, match is refused")
	}
	without := writeTopology(t, matchesFile("a", "{name: third}"))
	with := writeTopology(t, matchesFile("a", "{name: third}", matchAll))
	start(t, target, "apply", "--yes", "-f", without).exits(t, 0)
	p := start(t, target, "process", "-f", without)
	p.logs(t, "connected")
	ch := target.Confirming(t)
	brokertest.Declare(t, ch, "svc.a", amqp091.Table{"x-queue-type": "quorum"})
	start(t, target, "apply", "--yes", "--allow", "drops-routing", "-f", with).exits(t, 0)
	brokertest.PublishConfirmed(t, ch, "", "svc.a", amqp091.Publishing{MessageId: "a"})
	if d := brokertest.Take(t, ch, "svc.a"); d.Reject(false) != nil {
		t.Fatal("it cannot be rejected")
	}
	brokertest.Eventually(t, "it to come back", func() bool {
		if brokertest.Ready(t, ch, "shop.unroutable") > 0 {
			t.Fatalf("it is unroutable\n%s", &p.stderr)
		}
		return brokertest.Ready(t, ch, "svc.a") == 1
	}, &p.stderr)
	d := brokertest.Take(t, ch, "svc.a")
	if d.Headers["retry-attempts"] != int64(1) || d.Headers["retry-queue"] != "svc.a" || d.Ack(false) != nil {
		t.Errorf("it comes back with %v", d.Headers)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// Messages wait for their retry when the entry leaves the file, or when the topology is destroyed.
// None is lost: they come back to their queues.
func TestAMatchEndsWhileMessagesWait(t *testing.T) {
	t.Parallel()
	consents := []string{"--yes", "--allow", "loses-messages", "--allow", "drops-routing", "--allow", "stops-consumers"}
	for name, ends := range map[string]func(file string) []string{
		"the entry leaves the file": func(string) []string {
			return append([]string{"apply", "-f", writeTopology(t, matchesFile("a", "{name: third}"))}, consents...)
		},
		"the topology is destroyed": func(file string) []string {
			return append([]string{"destroy", "--wait", "-f", file}, consents...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			if !target.AtLeast("4.0") {
				t.Skip("before 4.0, match is refused")
			}
			file := writeTopology(t, strings.ReplaceAll(matchesFile("a", matchAll), "[100ms, 200ms]", "[20s]"))
			start(t, target, "apply", "--yes", "-f", file).exits(t, 0)
			p := start(t, target, "process", "-f", file)
			p.logs(t, "connected")
			const each = 50
			ch, want := target.Confirming(t), map[string]int{}
			for i, queue := range []string{"svc.a", "svc.b"} {
				args := amqp091.Table{"x-queue-type": []string{"quorum", "classic"}[i]}
				brokertest.Declare(t, ch, queue, args)
				for id := range each {
					brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{MessageId: fmt.Sprint(queue, "/", id)})
				}
				for range each {
					if d := brokertest.Take(t, ch, queue); d.Reject(false) != nil {
						t.Fatal("it cannot be rejected")
					}
				}
				want[queue] = each
			}
			brokertest.Eventually(t, "all of them to wait", func() bool {
				return brokertest.Ready(t, ch, "shop.a.retry.20s") == 2*each
			})
			brokertest.Eventually(t, "the broker to count them", func() bool {
				p := start(t, target, "status", "-f", file)
				<-p.ended
				return strings.Contains(p.stdout.String(), " 100 ")
			})
			start(t, target, ends(file)...).exits(t, 0)
			for queue, n := range want {
				seen := map[string]bool{}
				for range n {
					seen[brokertest.Take(t, ch, queue).MessageId] = true
				}
				if left := brokertest.Ready(t, ch, queue); len(seen) != n || left > 0 {
					t.Errorf("%s has %d of %d messages and %d copies", queue, len(seen), n, left+n-len(seen))
				}
			}
		})
	}
}

// An apply that adds the first match to a topology in use is interrupted by Ctrl-C after any of its
// writes, and run again. No message of a queue that the topology had is lost or doubled meanwhile,
// and what services declare is retried afterwards.
func TestAddingAMatchIsInterrupted(t *testing.T) {
	t.Parallel()
	for writes := range int64(8) {
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			if !target.AtLeast("4.0") {
				t.Skip("before 4.0, match is refused")
			}
			without := writeTopology(t, matchesFile("a", "{name: third}"))
			with := writeTopology(t, matchesFile("a", "{name: third}", matchX, matchAll))
			start(t, target, "apply", "--yes", "-f", without).exits(t, 0)
			p := start(t, target, "process", "-f", without)
			p.logs(t, "connected")
			f := failIn(t, target)
			f.reject(t, "work")
			f.publish(t, "work")

			wait, reached := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(wait) })
			t.Cleanup(release)
			slow := target
			slow.API = afterWrites(t, target.API, writes, func(http.ResponseWriter, *http.Request) {
				select {
				case reached <- struct{}{}:
				case <-wait:
				}
				<-wait
				panic(http.ErrAbortHandler)
			})
			apply := []string{"apply", "--yes", "--allow", "drops-routing", "--lock-timeout", lockFreed, "-f", with}
			interrupted := start(t, slow, apply...)
			select {
			case <-reached:
				interrupted.signal(t, syscall.SIGINT)
				interrupted.logs(t, "stopping after ")
				release()
				if <-interrupted.ended; interrupted.ProcessState.ExitCode() == 0 { // some writes go over AMQP
					t.Errorf("apply was not interrupted:\n%s", &interrupted.stderr)
				}
			case <-interrupted.ended:
				t.Errorf("apply has no more than %d writes", writes)
			}
			start(t, target, apply...).exits(t, 0)
			start(t, target, "plan", "--detailed-exitcode", "-f", with).exits(t, 0)
			queues := []string{"svc.a", "svc.x"}
			for i, queue := range queues {
				args := amqp091.Table{"x-queue-type": []string{"quorum", "classic"}[i]}
				brokertest.Declare(t, target.Channel(t), queue, args)
				f.reject(t, queue)
			}
			p.signal(t, syscall.SIGTERM) // its file does not know of x.dead
			p.exits(t, 0)
			p = start(t, target, "process", "-f", with)
			p.logs(t, "connected")
			f.publish(t, queues...)
			f.end(t, &p.stderr, append(queues, "work", "shop.a.failed"), "work.dead", "shop.dead", "x.dead")
			p.signal(t, syscall.SIGTERM)
			p.exits(t, 0)
		})
	}
}

// Of two topologies in a virtual host the one that would also dead-letter the queues of the other
// is refused, and nothing is written. Where its pattern excludes them, each retries its own.
func TestTwoTopologiesWithMatches(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.0") {
		t.Skip("before 4.0, match is refused")
	}
	mail := writeTopology(t, `
version: 1
name: mail
defaults: {backoff: a}
backoff: {a: {tiers: [100ms]}}
queues: [{match: '^svc\.mail', external: true}]
`)
	start(t, target, "apply", "--yes", "-f", mail).exits(t, 0)
	before := target.Definitions(t)
	for entry, why := range map[string]string{
		matchAll: `topology "mail" gives queues such as svc.mailx their dead-lettering, which the pattern matches too`,
		`{name: svc.mail.new, bindings: [{exchange: events, key: new}]}`: `topology "mail" is for all queues that its pattern matches, also for this one`,
	} {
		refused := start(t, target, "apply", "--yes", "-f", writeTopology(t, matchesFile("a", entry)))
		refused.exits(t, 3)
		if !strings.Contains(refused.stdout.String(), why) {
			t.Errorf("with %s apply prints\n%s%s", entry, &refused.stdout, &refused.stderr)
		}
		if d := cmp.Diff(before, target.Definitions(t)); d != "" {
			t.Errorf("with %s the broker has changed (-before +after):\n%s", entry, d)
		}
	}
	shop := writeTopology(t, matchesFile("a", `{match: '^svc\.(?!mail)', external: true}`))
	start(t, target, "apply", "--yes", "-f", shop).exits(t, 0)
	queues := []string{"svc.mail.1", "svc.mail.2", "svc.other.1", "svc.other.2"}
	f := failIn(t, target, queues...)
	p := start(t, target, "process", "-f", mail, "-f", shop)
	p.logs(t, "connected")
	f.publish(t, queues...)
	for _, file := range []string{mail, shop} {
		start(t, target, "apply", "--yes", "-f", file).exits(t, 0) // the queues are bound
		start(t, target, "plan", "--detailed-exitcode", "-f", file).exits(t, 0)
	}
	f.end(t, &p.stderr, append(queues, "mail.unroutable"), "mail.dead", "shop.dead")
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}
