package processor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// BenchmarkDelays measures how late delayed messages of 1 KiB are, whose delays are random, up to
// 20 seconds. The node, the publisher, the processor and the consumer share the machine.
func BenchmarkDelays(b *testing.B) {
	node := brokertest.Node(b)
	for _, w := range delayWays(node.Target()) {
		for _, rate := range []int{100, 500, 2000} {
			b.Run(fmt.Sprintf("way=%s/rate=%d", w.name, rate), func(b *testing.B) {
				for b.Loop() {
					measureDelays(b, onNode(b, node, w.file), rate)
				}
			})
		}
	}
}

func measureDelays(b *testing.B, s *stage, rate int) {
	b.Helper()
	const seconds, longest = 15, 20_000
	stop := startProcessor(b, s, 0)
	n := rate * seconds
	arrivals, err := s.target.Channel(b).Consume("work", "", true, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	late := make(chan []time.Duration)
	go func() {
		var all []time.Duration
		for m := range arrivals {
			due, _ := m.Headers[dueHeader].(int64)
			if all = append(all, time.Since(time.UnixMilli(due))); len(all) == n {
				break
			}
		}
		late <- all
	}()
	ch := s.target.Channel(b)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	body, began := make([]byte, 1<<10), time.Now()
	for sent := 0; sent < n; <-tick.C {
		for ; sent < min(n, int(time.Since(began).Seconds()*float64(rate))); sent++ {
			delay := rand.Int64N(longest)
			err := ch.PublishWithContext(b.Context(), "shop.later", "a", false, false, amqp091.Publishing{
				DeliveryMode: amqp091.Persistent, Body: body,
				Headers: amqp091.Table{"x-delay": delay, dueHeader: time.Now().UnixMilli() + delay},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	l := <-late
	stop()
	slices.Sort(l)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(l[0].Milliseconds()), "late-least-ms")
	b.ReportMetric(float64(l[len(l)/2].Milliseconds()), "late-p50-ms")
	b.ReportMetric(float64(l[len(l)*99/100].Milliseconds()), "late-p99-ms")
}
