package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// An argument of a queue in use cannot change, and with --skip-blocked its backoff does not change
// either. After the rest of the file is applied, messages that its consumer rejects are not lost:
// they return through the previous backoff.
func TestSkippingABlockedQueueLosesNothing(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const messages = 20
	for _, queueType := range []string{"quorum", "classic"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			text := "version: 1\nname: shop\ndefaults: {type: " + queueType + "}\n" +
				"backoff: {s: {tiers: [100ms]}, t: {tiers: [200ms]}}\nqueues: [{name: d, backoff: s}]\n"
			changed := strings.Replace(text, "backoff: s}", "backoff: t, arguments: {x-message-ttl: 600000}}", 1)
			before, after := writeTopology(t, text), writeTopology(t, changed)
			start(t, target, "apply", "--yes", "-f", before).exits(t, 0)

			came := make(chan map[string]int, 1)
			go consumeTwice(t, target.Channel(t), messages, came)
			brokertest.Eventually(t, "the plan to see the consumer", func() bool {
				_, out := dlxctl(target, "plan", "-f", after)
				return strings.Contains(out, "-/+ queue d: ")
			})
			code, out := dlxctl(target, "apply", "--yes", "--skip-blocked", "-f", after)
			if code != 3 || !strings.Contains(out, "queue d is blocked (see above)") {
				t.Fatalf("apply exits with %d:\n%s", code, out)
			}
			ch := target.Channel(t)
			for i := range messages {
				brokertest.PublishConfirmed(t, ch, "", "d", amqp091.Publishing{MessageId: fmt.Sprint(i)})
			}
			worker := start(t, target, "process", "-f", before)
			var times map[string]int
			brokertest.Eventually(t, "all messages to be retried", func() bool {
				select {
				case times = <-came:
					return true
				default:
					return false
				}
			})
			worker.signal(t, 15)
			worker.exits(t, 0)
			for i := range messages {
				if n := times[fmt.Sprint(i)]; n != 2 {
					t.Errorf("message %d was delivered %d times, not twice", i, n)
				}
			}
			start(t, target, "plan", "--detailed-exitcode", "-f", before).exits(t, 2) // the other backoff exists as well
		})
	}
}

// consumeTwice rejects the first delivery of each message of d and acknowledges the retry. After
// all retries it sends the number of deliveries of each message.
func consumeTwice(t *testing.T, ch *amqp091.Channel, messages int, came chan<- map[string]int) {
	t.Helper()
	deliveries, err := ch.Consume("d", "", false, false, false, false, nil)
	if err != nil {
		t.Error(err)
		return
	}
	times := map[string]int{}
	for left := messages; left > 0; {
		m, open := <-deliveries
		if !open {
			return // the test has ended
		}
		if times[m.MessageId]++; m.Headers["count"] == nil {
			err = m.Reject(false)
		} else {
			left--
			err = m.Ack(false) // the retry arrived
		}
		if err != nil {
			return
		}
	}
	came <- times
}
