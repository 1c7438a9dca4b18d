package processor_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	benchMessages = 20_000
	benchPrefetch = 1000
)

// BenchmarkProcess compares the processor with the floor, in one run on one
// broker with the same messages of 1 KiB: a bare loop that consumes, publishes
// mandatory with confirms, many at once, and acknowledges many at once. The
// ratio is what deciding and accounting cost.
func BenchmarkProcess(b *testing.B) {
	for _, typ := range []string{"quorum", "classic"} {
		b.Run(typ, func(b *testing.B) {
			s := newStage(b, strings.Replace(parkAtOnce, "backoff: slow", "backoff: slow, type: "+typ, 1))
			var ours, bare time.Duration
			for b.Loop() {
				b.StopTimer()
				s.fill(b, benchMessages)
				b.StartTimer()
				begin := time.Now()
				p := s.processor(b)
				p.Prefetch = benchPrefetch
				untilEmpty(b, p)
				ours += time.Since(begin)

				b.StopTimer()
				s.purge(b)
				s.fill(b, benchMessages)
				b.StartTimer()
				begin = time.Now()
				bareLoop(b, s)
				bare += time.Since(begin)
				s.purge(b)
			}
			perSecond := func(d time.Duration) float64 { return float64(b.N*benchMessages) / d.Seconds() }
			b.ReportMetric(0, "ns/op") // the two together mean nothing
			b.ReportMetric(perSecond(ours), "processor-msg/s")
			b.ReportMetric(perSecond(bare), "bare-msg/s")
			b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
		})
	}
}

// purge empties the retry queue: its messages would wait for an hour.
func (s *stage) purge(b *testing.B) {
	b.Helper()
	if _, err := s.eyes.QueuePurge("shop.slow.retry.1h", false); err != nil { // made by this benchmark
		b.Fatal(err)
	}
}

// bareLoop moves the messages of the failed queue without a thought.
func bareLoop(b *testing.B, s *stage) {
	b.Helper()
	in, out := s.target.Channel(b), s.target.Channel(b)
	if err := in.Qos(benchPrefetch, 0, false); err != nil {
		b.Fatal(err)
	}
	if err := out.Confirm(false); err != nil {
		b.Fatal(err)
	}
	confirms := out.NotifyPublish(make(chan amqp.Confirmation, benchPrefetch))
	deliveries, err := in.Consume("shop.slow.failed", "", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	for confirmed := 0; confirmed < benchMessages; {
		select {
		case d := <-deliveries:
			if err := out.PublishWithContext(b.Context(), "shop.slow.dlx", d.RoutingKey, true, false, amqp.Publishing{
				MessageId: d.MessageId, DeliveryMode: d.DeliveryMode, Headers: amqp.Table{"count": int64(1)}, Body: d.Body,
			}); err != nil {
				b.Fatal(err)
			}
		case <-confirms:
			confirmed++
			for more := true; more; { // what has arrived is acknowledged at once
				select {
				case <-confirms:
					confirmed++
				default:
					more = false
				}
			}
			// The confirms come in the order of the deliveries, whose tags count from one.
			if err := in.Ack(uint64(confirmed), true); err != nil {
				b.Fatal(err)
			}
		}
	}
}
