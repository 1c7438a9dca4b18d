package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// earlierProgram builds dlxctl of the last tag. Without a tag there is no release to upgrade from,
// and the test is skipped.
func earlierProgram(t *testing.T) string {
	t.Helper()
	tag, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0").Output()
	if err != nil {
		t.Skip("no commit that this one follows has a tag: there is no earlier release")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
		`git -C .. archive "$0" | tar -x -C "$1" && cd "$1" && go build -o dlxctl .`, strings.TrimSpace(string(tag)), dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build dlxctl of %s: %v\n%s", tag, err, out)
	}
	return filepath.Join(dir, "dlxctl")
}

// The last release and this one work side by side, as docs/upgrade.md says: one applies the
// topology of the other, and processors of both share the failed queues. Each message ends once, in
// the dead-letter queue of its own queue.
func TestUpgradeFromTheLastRelease(t *testing.T) {
	t.Parallel()
	earlier, target := earlierProgram(t), brokertest.VHost(t)
	file := writeTopology(t, `
version: 1
name: shop
backoff: {a: {tiers: [200ms, 300ms]}, b: {tiers: [100ms, 100ms, 100ms]}}
exchanges: [{name: e}]
queues:
  - {name: billing, backoff: a, bindings: [{exchange: e, key: billing}]}
  - {name: mail, backoff: b, type: classic, deadLetterBy: policy, bindings: [{exchange: e, key: mail}]}
`)
	runs := func(args ...string) *process {
		t.Helper()
		p := commandOf(t, target, exec.CommandContext(t.Context(), earlier, args...))
		p.begin(t)
		return p
	}
	queues, ch, published := []string{"billing", "mail"}, target.Confirming(t), 0
	publish := func() {
		t.Helper()
		for range 100 {
			for _, queue := range queues {
				brokertest.PublishConfirmed(t, ch, "e", queue, amqp091.Publishing{MessageId: fmt.Sprint(queue, " ", published)})
			}
			published++
		}
	}
	runs("apply", "--yes", "-f", file).exits(t, 0)
	for _, queue := range queues {
		deliveries, err := target.Channel(t).Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for d := range deliveries {
				_ = d.Reject(false) // each message fails each time
			}
		}()
	}
	defer runs("process", "-f", file).kill()
	publish()
	succeeds(t, target, "apply", "--yes", "-f", file)
	publish()
	defer start(t, target, "process", "-f", file).kill()
	publish()
	for _, queue := range queues {
		seen := map[string]int{}
		brokertest.Eventually(t, "each message of "+queue+" as a dead letter", func() bool {
			for id, n := range brokertest.Drain(t, ch, queue+".dead") {
				seen[id] += n
			}
			return len(seen) >= published
		}, &seen)
		for id, n := range seen {
			if n != 1 || !strings.HasPrefix(id, queue+" ") {
				t.Errorf("%q is in %s.dead %d times", id, queue, n)
			}
		}
	}
	if n := brokertest.Ready(t, ch, "shop.unroutable"); n > 0 {
		t.Errorf("%d messages are in shop.unroutable", n)
	}
	succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
}
