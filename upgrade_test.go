package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// earlier is the last commit whose planes have a fanout exchange for each backoff in
// place of one exchange for all failures.
const earlier = "ac13076"

// earlierProgram builds dlxctl as it was then, from the history of the repository.
func earlierProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, step := range []string{
		fmt.Sprintf("git archive %s | tar -x -C %s", earlier, dir),
		fmt.Sprintf("cd %s && go build -o %s/dlxctl .", dir, dir),
	} {
		if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", step).CombinedOutput(); err != nil {
			t.Fatalf("build dlxctl as of %s; this takes a clone with its history: %v\n%s", earlier, err, out)
		}
	}
	return filepath.Join(dir, "dlxctl")
}

// What an earlier release made goes on working, is moved over in place, and can change its
// backoffs then: under traffic, with processors of the earlier release and of this one,
// each message ends once as a dead letter of its own queue.
func TestAPlaneOfAnEarlierReleaseIsMovedOver(t *testing.T) {
	t.Parallel()
	old := earlierProgram(t)
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			text := func(billing, mail string) string {
				return fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s}
backoff: {a: {tiers: [200ms, 300ms]}, b: {tiers: [100ms, 100ms, 100ms]}}
exchanges: [{name: e}]
queues:
  - {name: billing, backoff: %s, bindings: [{exchange: e, key: billing}]}
  - {name: mail, backoff: %s, deadLetterBy: policy, bindings: [{exchange: e, key: mail}]}
  - {name: audit, backoff: none, bindings: [{exchange: e, key: audit}]}
  - {name: keeps.a, backoff: a}
  - {name: keeps.b, backoff: b}
`, kind, billing, mail)
			}
			first, second := file(t, text("a", "a")), file(t, text("b", "b"))
			run := func(program string, args ...string) {
				t.Helper()
				c := exec.CommandContext(t.Context(), program, args...)
				c.Env = append(os.Environ(), "RABBITMQ_URL="+target.URL, "RABBITMQ_API_URL="+target.API)
				if out, err := c.CombinedOutput(); err != nil {
					t.Fatalf("%s %q: %v\n%s", program, args, err, out)
				}
			}
			run(old, "apply", "--yes", "-f", first)
			processor := exec.CommandContext(t.Context(), old, "process", "-f", first)
			processor.Env = append(os.Environ(), "RABBITMQ_URL="+target.URL)
			if err := processor.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = processor.Wait() }) // it ends with the test's context
			for _, queue := range []string{"billing", "mail", "audit"} {
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
			ch := target.Channel(t)
			if err := ch.Confirm(false); err != nil {
				t.Fatal(err)
			}
			published := 0
			publish := func(n int) {
				t.Helper()
				for range n {
					for _, queue := range []string{"billing", "mail", "audit"} {
						c, err := ch.PublishWithDeferredConfirm("e", queue, true, false, amqp.Publishing{MessageId: fmt.Sprintf("%s-%d", queue, published), DeliveryMode: amqp.Persistent})
						if err != nil || !c.Wait() {
							t.Fatalf("publish: %v", err)
						}
					}
					published++
				}
			}
			publish(100)
			if code, out := dlxctl(target, "apply", "--yes", "-f", first); code != 0 {
				t.Fatalf("apply over what is there exits with %d:\n%s", code, out)
			}
			publish(100)
			newer := start(t, target, "process", "-f", second)
			t.Cleanup(func() { _ = newer.Process.Kill(); <-newer.ended })
			for i, file := range []string{second, first, second} {
				if code, out := dlxctl(target, "apply", "--yes", "-f", file); code != 0 {
					t.Fatalf("change %d exits with %d:\n%s", i, code, out)
				}
				if code, out := dlxctl(target, "plan", "--detailed-exitcode", "-f", file); code != 0 {
					t.Fatalf("after change %d something is left to do:\n%s", i, out)
				}
				publish(100)
			}
			for _, queue := range []string{"billing", "mail", "audit"} {
				seen := map[string]int{}
				eventually(t, "each message of "+queue+" as a dead letter", func() bool {
					for {
						d, ok, err := ch.Get(queue+".dead", true)
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							return len(seen) >= published
						}
						seen[d.MessageId]++
					}
				})
				for id, n := range seen {
					if n != 1 {
						t.Errorf("%s came %d times", id, n)
					}
				}
			}
			if q, err := target.Channel(t).QueueDeclarePassive("shop.unroutable", true, false, false, false, nil); err != nil || q.Messages > 0 {
				t.Errorf("shop.unroutable holds %d messages (%v)", q.Messages, err)
			}
		})
	}
}
