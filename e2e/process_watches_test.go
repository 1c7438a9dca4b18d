package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// backoffFile returns a topology with one queue that is retried in these tiers.
func backoffFile(tiers string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: quick}
backoff: {quick: {tiers: [%s]}}
exchanges: [{name: events}]
queues: [{name: work, bindings: [{exchange: events, key: "#"}]}]
`, tiers)
}

// replace replaces a file atomically.
func replace(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	writeTo(t, next, text)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// A watched file becomes wrong, is changed before it is applied, and is applied, while messages are
// in all queues of the backoff. Each message ends once in the dead-letter queue, and the last ones
// after all attempts of the new backoff.
func TestProcessWatch(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	short, long := backoffFile("50ms, 150ms"), backoffFile("50ms, 150ms, 250ms")
	path := writeTopology(t, short)
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	stop := poison(t, target)

	p.logs(t, "connected")
	replace(t, path, strings.Replace(long, "tiers", "teirs", 1))
	p.logs(t, "keeping the previous ones")
	replace(t, path, short)
	p.logs(t, "files are as they were before the error, and stay in effect")
	replace(t, path, long)
	p.logs(t, "'dlxctl apply' with the same files and overlays creates it")
	if strings.Contains(p.stderr.String(), "are in effect") {
		t.Error("a file is in effect before it was applied")
	}
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p.logs(t, "files changed and are in effect")
	n := stop()

	ch := target.Channel(t)
	copies, attempts := map[string]int{}, int64(0)
	brokertest.Eventually(t, fmt.Sprintf("all %d messages in work.dead", n), func() bool {
		for {
			m, ok, err := ch.Get("work.dead", true)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return len(copies) == n
			}
			copies[m.MessageId]++
			if last, _ := m.Headers["retry-attempts"].(int64); m.MessageId == fmt.Sprint(n-1) {
				attempts = last
			}
		}
	}, &p.stderr)
	for id, c := range copies {
		if c > 1 {
			t.Errorf("the dead-letter queue holds message %s %d times", id, c)
		}
	}
	if attempts != 4 {
		t.Errorf("the last message was dead-lettered after %d attempts; the new backoff has 4", attempts)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
	if n := strings.Count(p.stderr.String(), "keeping the previous ones"); n > 3 {
		t.Errorf("the same problem was logged %d times", n)
	}
}

// The only backoff is removed from a watched file while messages are in all its queues. The
// processor goes idle, so that apply deletes these queues, and each message ends once in the
// dead-letter queue. When a backoff is added again, the same process retries again.
func TestProcessWatchWithoutBackoff(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	with := backoffFile("50ms, 1s")
	path := writeTopology(t, with)
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	stop := poison(t, target)
	p.logs(t, "connected")
	copies := map[string]int64{}
	died := func(n int) func() bool {
		ch := target.Channel(t)
		return func() bool {
			for {
				m, ok, err := ch.Get("work.dead", true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return len(copies) == n
				}
				if _, double := copies[m.MessageId]; double {
					t.Errorf("the dead-letter queue holds message %s twice", m.MessageId)
				}
				copies[m.MessageId], _ = m.Headers["retry-attempts"].(int64)
			}
		}
	}

	replace(t, path, strings.NewReplacer("defaults: {backoff: quick}", "defaults: {backoff: none}",
		"backoff: {quick: {tiers: [50ms, 1s]}}", "").Replace(with))
	start(t, target, "apply", "--yes", "--wait=1m", "-f", path).exits(t, 0)
	p.logs(t, "idle until the file changes")
	n := stop()
	brokertest.Eventually(t, fmt.Sprintf("all %d messages in work.dead", n), died(n), &p.stderr)
	for _, object := range target.Definitions(t) {
		if strings.Contains(object, "quick") {
			t.Errorf("apply left %s", object)
		}
	}

	replace(t, path, with)
	p.logs(t, "'dlxctl apply' with the same files and overlays creates it")
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	brokertest.Eventually(t, "the file to be in effect", func() bool {
		return strings.Count(p.stderr.String(), "files changed and are in effect") == 2
	}, &p.stderr)
	if err := brokertest.Publish(t.Context(), target.Confirming(t), "events", "a",
		amqp091.Publishing{MessageId: "again"}); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "another message in work.dead", died(n+1), &p.stderr)
	if copies["again"] != 3 {
		t.Errorf("it was dead-lettered after %d attempts; the backoff has 3", copies["again"])
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// poison publishes a message every 5 ms and rejects what the queue work delivers, until the test
// ends. stop ends the publishing and returns the number of messages.
func poison(t *testing.T, target brokertest.Target) (stop func() int) {
	t.Helper()
	in, out := target.Channel(t), target.Channel(t)
	deliveries := brokertest.Consume(t, in, "work", 0)
	if err := out.Confirm(false); err != nil {
		t.Fatal(err)
	}
	go func() {
		for d := range deliveries {
			if d.Reject(false) != nil {
				return // the test is over
			}
		}
	}()
	return brokertest.PublishEvery(t, out, "events", "a", 5*time.Millisecond)
}

// While messages fail, a watched file changes again and again. Each message is one dead letter:
// none that the processor of a previous file has moved comes to the next one.
func TestReloadsUnderTraffic(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := func(owner int) string {
		return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: quick, dead: shared, owner: o%d}
backoff: {quick: {tiers: [200ms, 300ms, 100ms]}}
queues: [{name: a}, {name: b}, {name: c, type: classic}, {name: d, type: classic}]
`, owner)
	}
	path := writeTopology(t, file(0))
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	p.logs(t, "connected")
	f := failIn(t, target)
	queues := []string{"a", "b", "c", "d"}
	for _, queue := range queues {
		f.reject(t, queue)
	}
	f.publish(t, queues...)
	for i := range brokertest.Load(60) {
		replace(t, path, file(i+1))
		brokertest.Eventually(t, "the file to be in effect", func() bool {
			return strings.Count(p.stderr.String(), "files changed and are in effect") > i
		}, &p.stderr)
	}
	f.end(t, &p.stderr, append(queues, "shop.quick.failed"), "shop.dead")
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}
