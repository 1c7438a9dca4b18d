package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// ladderFile is a topology whose one queue is retried in these tiers.
func ladderFile(tiers string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: quick}
backoff: {quick: {tiers: [%s]}}
exchanges: [{name: events}]
queues: [{name: work, bindings: [{exchange: events, key: "#"}]}]
`, tiers)
}

// replace puts a text in place of a file, all at once.
func replace(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// A watched file is broken, changed before it is applied, applied, and changed
// back while messages are everywhere in the loop. Each is in the dead-letter
// queue once, and the last ones have climbed the longest ladder.
func TestProcessWatch(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	short, long := ladderFile("50ms, 150ms"), ladderFile("50ms, 150ms, 250ms")
	path := file(t, short)
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	said := func(text string) {
		t.Helper()
		eventually(t, "the processor to say "+text, func() bool { return strings.Contains(p.stderr.String(), text) })
	}
	stop := poison(t, target)

	said("connected")
	replace(t, path, strings.Replace(long, "tiers", "teirs", 1))
	said("the old ones stay in force")
	replace(t, path, long)
	said("'dlxctl apply' makes it")
	if strings.Contains(p.stderr.String(), "are in force") {
		t.Error("a file is in force before it was applied")
	}
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	said("the files changed, and are in force")
	n := stop()

	ch := target.Channel(t)
	copies, attempts := map[string]int{}, int64(0)
	eventually(t, fmt.Sprintf("all %d messages in work.dead", n), func() bool {
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
	})
	for id, c := range copies {
		if c > 1 {
			t.Errorf("message %s is there %d times", id, c)
		}
	}
	if attempts != 4 {
		t.Errorf("the last message is dead after %d attempts; the new ladder has 4", attempts)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
	if n := strings.Count(p.stderr.String(), "the old ones stay"); n > 3 {
		t.Errorf("the same trouble is told %d times", n)
	}
}

// poison publishes a message each 5 ms and rejects what the queue work delivers.
// It rejects until the test ends; stop ends the publishing and gives how many
// there were.
func poison(t *testing.T, target brokertest.Target) (stop func() int) {
	t.Helper()
	in, out := target.Channel(t), target.Channel(t)
	deliveries, err := in.Consume("work", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
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
	return brokertest.Publish(t, out, "events", "a", 5*time.Millisecond)
}
