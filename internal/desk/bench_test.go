package desk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/relay"
)

const (
	replayed     = 10_000
	replayRounds = 5
	replayWindow = 256 // of a replay without a rate
	relayQueue   = "shop.bench"
)

// BenchmarkReplay compares the send of a replay without a rate with the relay by itself, in one run
// on one broker, with the same messages, from a quorum queue, with the same window. The two take
// turns. The clock runs from when the first messages are seen in the work queue until all are: the
// end of the run, which proves that its hold is empty, is not in it.
func BenchmarkReplay(b *testing.B) {
	for _, typ := range queueKinds() {
		b.Run(typ, func(b *testing.B) {
			s := newShop(b, typ)
			args := amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1), "x-overflow": "reject-publish"}
			if _, err := s.ch.QueueDeclare(relayQueue, true, false, false, false, args); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.compareReplay(b)
			}
		})
	}
}

// sent is what sending took, for each message.
type sent struct{ seconds, cpu float64 }

// measure waits until all messages are in billing, which begin moves there.
func (s *shop) measure(b *testing.B, begin func()) sent {
	b.Helper()
	before := brokertest.CPUSeconds()
	begin()
	first, took := brokertest.Arrivals(b, s.target.Channel(b), "billing", replayed)
	return sent{took.Seconds() / float64(replayed-first), (brokertest.CPUSeconds() - before) / replayed}
}

// compareReplay reports how fast both send.
func (s *shop) compareReplay(b *testing.B) {
	b.Helper()
	seconds, cpu := map[string][]float64{}, map[string][]float64{} // for each message
	ways := []struct {
		name string
		send func(*testing.B) sent
	}{{"relay", s.relayOnce}, {"replay", s.replayOnce}}
	for round := range replayRounds {
		for i := range ways {
			way := ways[(i+round)%len(ways)]
			x := way.send(b)
			cpu[way.name] = append(cpu[way.name], x.cpu)
			seconds[way.name] = append(seconds[way.name], x.seconds)
			if _, err := s.ch.QueuePurge("billing", false); err != nil { // copies made by this benchmark
				b.Fatal(err)
			}
		}
	}
	var ratios []float64
	for i, floor := range seconds["relay"] {
		ratios = append(ratios, floor/seconds["replay"][i])
	}
	b.ReportMetric(0, "ns/op")
	for name, list := range seconds {
		b.ReportMetric(1/brokertest.Median(list), name+"-msg/s")
		b.ReportMetric(brokertest.Median(cpu[name])*1e5, name+"-cpu-s/100k")
	}
	b.ReportMetric(brokertest.Median(ratios), "replay/relay")
	b.ReportMetric(slices.Min(ratios), "least-replay/relay")
	b.ReportMetric(slices.Max(ratios), "most-replay/relay")
}

// deadLetters publishes dead letters of 1 KiB.
func (s *shop) deadLetters(b *testing.B, exchange, key string) {
	b.Helper()
	const batch = 1000
	body := `{"order": %d, "text": "` + strings.Repeat("x", 1000) + `"}`
	for from := 0; from < replayed; from += batch {
		var list []amqp091.Publishing
		for i := range batch {
			m := deadLetter("billing", "order.chosen", fmt.Sprint(from+i), from+i)
			m.Body = fmt.Appendf(nil, body, from+i)
			list = append(list, m)
		}
		brokertest.PublishConfirmed(b, s.ch, exchange, key, list...)
	}
}

// replayOnce replays all dead letters of billing, and measures the send.
func (s *shop) replayOnce(b *testing.B) sent {
	b.Helper()
	s.deadLetters(b, "shop.dead", "order.chosen")
	s.awaitReady(b, "billing.dead", replayed)
	run := s.takenOnly(b, replayed)
	ended := make(chan error, 1)
	out := s.measure(b, func() {
		go func() {
			r, err := s.desk.Resume(b.Context(), run, &desk.SendOptions{}, func(desk.Progress) {})
			if err == nil && r.Moved != replayed {
				err = fmt.Errorf("moved %d of %d: %s", r.Moved, replayed, r.Stopped)
			}
			ended <- err
		}()
	})
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return out
}

// relayOnce moves as many messages with the relay alone.
func (s *shop) relayOnce(b *testing.B) sent {
	b.Helper()
	s.deadLetters(b, "", relayQueue)
	s.awaitReady(b, relayQueue, replayed)
	in, err := amqp.DialToConsume(b.Context(), s.desk.Endpoint)
	if err != nil {
		b.Fatal(err)
	}
	out, err := amqp.Dial(b.Context(), s.desk.Endpoint)
	if err != nil {
		b.Fatal(err)
	}
	source, err := in.Consume(relayQueue, replayWindow, 32<<20)
	if err != nil {
		b.Fatal(err)
	}
	sink, err := out.Publisher(replayWindow)
	if err != nil {
		b.Fatal(err)
	}
	r := relay.Relay{Source: source, Sink: sink, Handler: plainHandler{}, UntilEmpty: true}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	sent := s.measure(b, func() { go func() { ended <- r.Run(ctx) }() })
	if err := errors.Join(<-ended, in.Close(), out.Close()); err != nil {
		b.Fatal(err)
	}
	return sent
}

// plainHandler moves messages to billing by the way that a replay takes.
type plainHandler struct{}

func (plainHandler) Move(d amqp091.Delivery) relay.Move {
	m := relay.Republish(d, amqp091.Table{"count": int32(0)})
	return relay.Move{Exchange: "shop.return", Key: "@billing", Message: m}
}

func (plainHandler) Refused(_ amqp091.Delivery, m relay.Move, _ string) relay.Move { return m }

func (plainHandler) Moved(amqp091.Delivery, relay.Move) {}
