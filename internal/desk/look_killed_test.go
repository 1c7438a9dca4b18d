package desk_test

import (
	"bufio"
	"os/exec"
	"slices"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A look that is killed while it holds messages leaves all of them in the queue, in their order.
func TestAKilledLookLosesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range queueKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const queue, n = "dead", 3000
			target := brokertest.VHost(t)
			ch := filledQueue(t, target, queue, n, amqp091.Table{
				// A look needs room for what it holds, and late counts may have what the last one held twice.
				"x-queue-type": kind, "x-overflow": "reject-publish", "x-max-length": int64(4 * n),
			})
			if kind == "quorum" && !target.AtLeast("4.3") {
				setPolicy(t, target, "policies", queue, map[string]any{"delivery-limit": 1 << 30})
			}
			for range 5 {
				killWhileItHolds(t, target, ch, queue, n)
				brokertest.Eventually(t, "the messages to be back", func() bool { return readyIn(t, ch, queue) == n })
			}
			if got := idsOf(consumedFrom(t, target, queue, n)); !slices.Equal(got, numbersFrom(0, n)) {
				t.Error("the order has changed")
			}
		})
	}
}

// killWhileItHolds kills a look at a queue. The look waits, as its output is not read.
func killWhileItHolds(t *testing.T, target brokertest.Target, ch *amqp091.Channel, queue string, all int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), brokertest.Program(t), "peek", queue, "-n", "0", "-o", "jsonl")
	c.Dir = t.TempDir()
	c.Env = append(c.Environ(), "RABBITMQ_URL="+target.URL, "RABBITMQ_API_URL="+target.API)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the look to hold messages", func() bool { return readyIn(t, ch, queue) < all })
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
}
