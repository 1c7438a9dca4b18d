package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// earlier is the last commit that compiles a fanout exchange for each backoff, and not one exchange
// for all failures.
const earlier = "ac13076"

// earlierProgram builds dlxctl of a commit from the history of the repository.
func earlierProgram(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	for _, step := range []string{
		fmt.Sprintf("cd .. && git archive %s | tar -x -C %s", commit, dir),
		fmt.Sprintf("cd %s && go build -o %s/dlxctl .", dir, dir),
	} {
		if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", step).CombinedOutput(); err != nil {
			t.Fatalf("build dlxctl of commit %s, which needs a clone with its history: %v\n%s", commit, err, out)
		}
	}
	return filepath.Join(dir, "dlxctl")
}

// A topology of an earlier release keeps working, is upgraded in place, and can change its backoffs
// then: under traffic, with processors of the earlier release and of this one, each message ends
// once as a dead letter of its own queue.
func TestATopologyOfAnEarlierReleaseIsUpgradedInPlace(t *testing.T) {
	t.Parallel()
	old := earlierProgram(t, earlier)
	t.Run("as the page says", func(t *testing.T) {
		t.Parallel()
		followUpgrade(t, old)
	})
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
			first, second := writeTopology(t, text("a", "a")), writeTopology(t, text("b", "b"))
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
			ch := target.Confirming(t)
			published := 0
			publish := func(n int) {
				t.Helper()
				for range n {
					for _, queue := range []string{"billing", "mail", "audit"} {
						m := amqp091.Publishing{MessageId: fmt.Sprintf("%s-%d", queue, published)}
						brokertest.PublishConfirmed(t, ch, "e", queue, m)
					}
					published++
				}
			}
			publish(100)
			succeeds(t, target, "apply", "--yes", "-f", first)
			publish(100)
			newer := start(t, target, "process", "-f", second)
			t.Cleanup(func() { _ = newer.Process.Kill(); <-newer.ended })
			for i, file := range []string{second, first, second} {
				t.Logf("change %d of the backoffs", i)
				succeeds(t, target, "apply", "--yes", "-f", file)
				succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
				publish(100)
			}
			for _, queue := range []string{"billing", "mail", "audit"} {
				seen := map[string]int{}
				brokertest.Eventually(t, "each message of "+queue+" as a dead letter", func() bool {
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
				}, &seen)
				for id, n := range seen {
					if n != 1 {
						t.Errorf("%s was dead-lettered %d times", id, n)
					}
				}
			}
			q, err := ch.QueueDeclarePassive("shop.unroutable", true, false, false, false, nil)
			if err != nil || q.Messages > 0 {
				t.Errorf("shop.unroutable holds %d messages (%v)", q.Messages, err)
			}
		})
	}
}

// followUpgrade follows docs/upgrade.md, in a virtual host to which the earlier program has applied
// the topology of the page.
func followUpgrade(t *testing.T, old string) {
	t.Helper()
	const page = "../docs/upgrade.md"
	r := reader{t, brokertest.VHost(t), t.TempDir()}
	for _, b := range blocks(t, page, "yaml") {
		r.keeps(b)
	}
	if err := os.Symlink(old, filepath.Join(r.dir, "dlxctl-earlier")); err != nil {
		t.Fatal(err)
	}
	r.does("./dlxctl-earlier apply --yes")
	followSession(r, page)
}
