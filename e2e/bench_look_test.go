package e2e_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// BenchmarkLook compares a look at a whole queue by dlxctl peek with its floor: a bare client that
// consumes as much, throws it away, and closes the channel. Both end when the queue has everything
// again. dlxctl also starts, reads the virtual host, and reads and hashes each message.
func BenchmarkLook(b *testing.B) {
	dlxctl := build(b)
	for _, s := range []struct {
		kind     string
		messages int
		rounds   int
	}{{"quorum", 100_000, 3}, {"classic", 100_000, 3}, {"quorum", 1_000_000, 1}} {
		b.Run(fmt.Sprintf("%s/messages=%d", s.kind, s.messages), func(b *testing.B) {
			target := brokertest.VHost(b)
			const queue = "dead"
			fillLarge(b, target, queue, s.kind, s.messages)
			p := program{path: dlxctl, target: target, file: filepath.Join(b.TempDir(), "topology.yaml")}
			p.prepare(b, size{queues: 1, typ: s.kind})
			for b.Loop() {
				compare(b, s.rounds,
					func() time.Duration { return takeAndGiveBack(b, target, queue, s.messages) },
					func() usage {
						u := p.run(b, "peek", queue, "-n", "0", "--handle", "000000000000", // no message has it
							"--hold-limit", "1000000", "--hold-time", "5m")
						awaitMessages(b, target.Channel(b), queue, s.messages)
						return u
					},
				)
			}
		})
	}
}

// fillLarge declares a queue with many messages of 1 KiB.
func fillLarge(b *testing.B, target brokertest.Target, queue, kind string, n int) {
	b.Helper()
	ch := target.Confirming(b)
	args := amqp091.Table{"x-queue-type": kind}
	if kind == "quorum" {
		args["x-delivery-limit"] = int64(1<<31 - 1)
	}
	brokertest.Declare(b, ch, queue, args)
	const batch = 10_000
	for range n / batch {
		brokertest.Fill(b, ch, "", queue, batch, 1024)
	}
	awaitMessages(b, ch, queue, n)
}

func awaitMessages(b *testing.B, ch *amqp091.Channel, queue string, n int) {
	b.Helper()
	brokertest.Eventually(b, "the messages of "+queue, func() bool {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		return q.Messages == n
	})
}

// takeAndGiveBack is the floor of a look.
func takeAndGiveBack(b *testing.B, target brokertest.Target, queue string, n int) time.Duration {
	b.Helper()
	began := time.Now()
	ch := target.Channel(b)
	const most = 65535
	for taken, i := 0, 0; taken < n; i++ {
		part := min(most, n-taken)
		if err := ch.Qos(part, 0, false); err != nil {
			b.Fatal(err)
		}
		deliveries, err := ch.Consume(queue, fmt.Sprintf("floor-%03d", i), false, false, false, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		for range part {
			<-deliveries
		}
		taken += part
	}
	if err := ch.Close(); err != nil {
		b.Fatal(err)
	}
	awaitMessages(b, target.Channel(b), queue, n)
	return time.Since(began)
}
