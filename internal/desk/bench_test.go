package desk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
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
// on one broker: the same messages as they are in a hold, from a quorum queue, with the same
// window, to the same exchange with the same key, CC and headers. The two take turns. The clock
// runs from when the first messages are seen in the work queue until all are there. Neither the
// steps before it are in it, which have figures of their own, nor the end of the run, which proves
// that its hold is empty.
func BenchmarkReplay(b *testing.B) {
	for _, typ := range queueKinds() {
		b.Run(typ, func(b *testing.B) {
			s := newShop(b, typ)
			args := amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(-1), "x-overflow": "reject-publish"}
			brokertest.Declare(b, s.ch, relayQueue, args)
			for b.Loop() {
				s.compareReplay(b)
			}
		})
	}
}

// sent is what sending took, for each message. taking is what it took to take it into the hold, and
// whole is the run from the look to the end; both are of a replay alone.
type sent struct{ seconds, cpu, taking, whole float64 }

// meter measures a send from its first confirmed message on.
type meter struct {
	once sync.Once
	cpu  float64
}

func (m *meter) start() { m.once.Do(func() { m.cpu = brokertest.CPUSeconds() }) }

// end waits until all messages are in billing.
func (m *meter) end(b *testing.B, s *shop) sent {
	b.Helper()
	first, took := brokertest.Arrivals(b, s.target.Channel(b), "billing", replayed)
	m.start() // it has begun by now
	return sent{seconds: took.Seconds() / float64(replayed-first), cpu: (brokertest.CPUSeconds() - m.cpu) / replayed}
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
			if x.whole > 0 {
				seconds["taking"] = append(seconds["taking"], x.taking)
				seconds["whole-run"] = append(seconds["whole-run"], x.whole)
			}
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
	}
	for name, list := range cpu {
		b.ReportMetric(brokertest.Median(list)*1e5, name+"-cpu-s/100k")
	}
	b.ReportMetric(brokertest.Median(ratios), "replay/relay")
	b.ReportMetric(slices.Min(ratios), "least-replay/relay")
	b.ReportMetric(slices.Max(ratios), "most-replay/relay")
}

// deadLetters publishes dead letters of 1 KiB, as they are in the dead-letter queue, or in a hold.
func (s *shop) deadLetters(b *testing.B, exchange, key string, held bool) {
	b.Helper()
	const batch = 1000
	body := `{"order": %d, "text": "` + strings.Repeat("x", 1000) + `"}`
	for from := 0; from < replayed; from += batch {
		var list []amqp091.Publishing
		for i := range batch {
			m := deadLetter("billing", "order.chosen", fmt.Sprint(from+i), from+i)
			m.Body = fmt.Appendf(nil, body, from+i)
			if held {
				m.Headers = deadletter.Aside(m.Headers)
				m.Headers["desk-queue"], m.Headers["desk-exchange"] = "billing.dead", "shop.dead"
			}
			list = append(list, m)
		}
		brokertest.PublishConfirmed(b, s.ch, exchange, key, list...)
	}
}

// replayOnce replays all dead letters of billing, and measures the send.
func (s *shop) replayOnce(b *testing.B) sent {
	b.Helper()
	s.deadLetters(b, "shop.dead", "order.chosen", false)
	s.awaitReady(b, "billing.dead", replayed)
	began := time.Now()
	p, err := s.desk.Propose(b.Context(), request(b, desk.Replay))
	if err != nil {
		b.Fatal(err)
	}
	var m meter
	var firstTaken, lastTaken, ended time.Time
	failed := make(chan error, 1)
	go func() {
		r, err := s.desk.Execute(b.Context(), p, func(p desk.Progress) {
			switch {
			case p.Phase == desk.Sending:
				m.start()
			case p.Done == 1:
				firstTaken = time.Now()
			case p.Done == replayed:
				lastTaken = time.Now()
			}
		})
		if err == nil && r.Moved != replayed {
			err = fmt.Errorf("moved %d of %d: %s", r.Moved, replayed, r.Stopped)
		}
		ended = time.Now()
		failed <- err
	}()
	out := m.end(b, s)
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	out.taking, out.whole = lastTaken.Sub(firstTaken).Seconds()/replayed, ended.Sub(began).Seconds()/replayed
	return out
}

// relayOnce moves as many messages with the relay alone.
func (s *shop) relayOnce(b *testing.B) sent {
	b.Helper()
	s.deadLetters(b, "", relayQueue, true)
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
	var m meter
	r := relay.Relay{Source: source, Sink: sink, Handler: plainHandler{&m}, UntilEmpty: true}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go func() { ended <- r.Run(ctx) }()
	sent := m.end(b, s)
	if err := errors.Join(<-ended, in.Close(), out.Close()); err != nil {
		b.Fatal(err)
	}
	return sent
}

// plainHandler moves messages to billing by the way that a replay takes, with as many headers. It
// knows all of that without looking at the message.
type plainHandler struct{ meter *meter }

func (plainHandler) Move(d amqp091.Delivery) relay.Move {
	m := relay.Republish(d, amqp091.Table{
		"mine": d.Headers["mine"], "CC": []any{"@billing"}, "desk-handle": "0a1b2c3d4e5f", "desk-replays": int64(1),
		"desk-run": "20261122-090000-abcdef",
	})
	return relay.Move{Exchange: "shop.return", Key: "order.chosen", Message: m}
}

func (plainHandler) Refused(_ amqp091.Delivery, m relay.Move, _ string) relay.Move { return m }

func (h plainHandler) Moved(amqp091.Delivery, relay.Move) { h.meter.start() }

// BenchmarkFewMessages compares a run of few messages, from the look to the end, with a bare client
// that moves as many from the head of the same queue. The two take turns.
func BenchmarkFewMessages(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			s := newShop(b, "quorum")
			args := amqp091.Table{"x-queue-type": "quorum"}
			brokertest.Declare(b, s.ch, relayQueue, args)
			s.bury(b, 1600)
			park := desk.Request{Action: desk.Park, Queue: "billing.dead", Limit: n}
			s.execute(b, park) // the queue of parked messages is new
			for b.Loop() {
				var own, floor, ratios []float64
				for range replayRounds {
					began := time.Now()
					s.bareMove(b, n)
					floor = append(floor, time.Since(began).Seconds()*1000)
					brokertest.Eventually(b, "the end of its consumer", func() bool {
						q, err := s.ch.QueueDeclarePassive("billing.dead", true, false, false, false, nil)
						return err == nil && q.Consumers == 0
					})
					began = time.Now()
					if r := s.execute(b, park); r.Moved != n {
						b.Fatalf("%+v", r)
					}
					own = append(own, time.Since(began).Seconds()*1000)
					ratios = append(ratios, own[len(own)-1]/floor[len(floor)-1])
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(brokertest.Median(own), "few-ms")
				b.ReportMetric(brokertest.Median(floor), "floor-ms")
				b.ReportMetric(brokertest.Median(ratios), "ratio")
				b.ReportMetric(slices.Min(ratios), "least-ratio")
				b.ReportMetric(slices.Max(ratios), "most-ratio")
			}
		})
	}
}

// bareMove moves n messages one by one, and gives the others back.
func (s *shop) bareMove(b *testing.B, n int) {
	b.Helper()
	conn, err := amqp091.Dial(s.target.URL)
	if err != nil {
		b.Fatal(err)
	}
	in, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	deliveries := brokertest.Consume(b, in, "billing.dead", 0)
	for range n {
		d := <-deliveries
		brokertest.PublishConfirmed(b, s.ch, "", relayQueue, amqp091.Publishing{Headers: d.Headers, Body: d.Body})
		if err := d.Ack(false); err != nil {
			b.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		b.Fatal(err)
	}
}
