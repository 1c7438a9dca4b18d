package processor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const kills = 50

// The processor is killed by SIGKILL again and again under load. Every message
// that was published ends where it belongs; there are no more doubles than
// messages were in flight at the kills.
func TestKilledFiftyTimes(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s, backoff: quick}
backoff:
  quick: {tiers: [50ms, 100ms]}
exchanges:
  - {name: events}
queues:
  - {name: work, bindings: [{exchange: events, key: "#"}]}
`, typ))
			rejectAll(t, s, "work")
			published := brokertest.PublishEvery(t, s.ch, "events", "a", brokertest.Pause(2*time.Millisecond))
			for range kills {
				s.killOne(t)
			}
			n := published()

			p := s.processor(t) // finishes the rest, unharmed
			p.Log = s.quiet()
			stop := run(t, p)
			dead := map[string]int{}
			copies := 0
			brokertest.Eventually(t, fmt.Sprintf("all %d messages in work.dead", n), func() bool {
				for id, c := range s.drain(t, "work.dead") {
					dead[id] += c
					copies += c
				}
				return len(dead) == n
			})
			for _, q := range []string{"shop.quick.retry.50ms", "shop.quick.retry.100ms", "shop.quick.failed"} {
				s.untilNothingIn(t, q)
			}
			stop()
			for id, c := range s.drain(t, "work.dead") {
				dead[id] += c
				copies += c
			}
			if left := s.drain(t, "shop.unroutable"); len(left) > 0 {
				t.Errorf("%d messages are in shop.unroutable", len(left))
			}
			if len(dead) != n {
				t.Errorf("%d message-ids are in work.dead, %d were published", len(dead), n)
			}
			if doubled := copies - n; doubled > kills*prefetch {
				t.Errorf("%d doubled, more than the %d that can have been in flight", doubled, kills*prefetch)
			}
			t.Logf("%d published, %d lost, %d doubled in %d kills", n, n-len(dead), copies-n, kills)
		})
	}
}

// killOne starts a processor in a process of its own, and kills that at a random
// moment of its work.
func (s *stage) killOne(t *testing.T) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") //nolint:gosec // this test binary
	c.Env = append(os.Environ(), childURL+"="+s.target.URL, childFile+"="+s.file)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(30*time.Millisecond + rand.N(250*time.Millisecond))
	defer timer.Stop()
	<-timer.C
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
}

// rejectAll is a consumer to which every message is poison.
func rejectAll(t *testing.T, s *stage, queue string) {
	t.Helper()
	ch := s.target.Channel(t)
	deliveries := brokertest.Consume(t, ch, queue, 100)
	go func() {
		for d := range deliveries {
			if d.Reject(false) != nil {
				return // the test is over
			}
		}
	}()
}

// untilNothingIn waits until a queue is empty; what a look takes goes back.
func (s *stage) untilNothingIn(t *testing.T, queue string) {
	t.Helper()
	brokertest.Eventually(t, queue+" to be empty", func() bool { return s.ready(t, queue) == 0 })
}
