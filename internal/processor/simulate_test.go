package processor_test

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/simulate"
)

// A hundredth of a real outage: tiers of 100, 200 and 400 ms, and an outage of 3 s with some 50
// messages a second, which a consumer rejects. The simulation gets the times at which they were
// published. It gives the dead letters, and the most messages that waited, but for those that were
// published during the longest delay of any delivery, and a handful of rounding: the delay is
// measured too, so that the test means something on any machine, and needs no idle one.
func TestARealOutageIsTheSimulatedOne(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	const outage = 3 * time.Second
	s := newStage(t, `
version: 1
name: shop
backoff: {standard: {tiers: [100ms, 200ms, 400ms]}}
queues: [{name: work, backoff: standard}]
`)
	p := s.processor(t)
	p.Log = s.quiet()
	run(t, p)
	seen := s.outage(t, outage)

	delay := 0.0
	for id, attempts := range seen.delivered {
		due := seen.published[id]
		for k, at := range attempts {
			delay = max(delay, at-due)
			if k < len(s.topology.Backoffs[0].Tiers) {
				due += s.topology.Backoffs[0].Tiers[k].Delay.Seconds()
			}
		}
	}
	slack := 2 + seen.most(delay)
	r := simulate.Run(simulate.Input{
		Backoff: s.topology.Backoffs[0], Outage: outage,
		Arrived: func(at float64) float64 { return float64(seen.until(at)) },
	})
	dead, waiting := seen.rejected(len(s.topology.Backoffs[0].Tiers)+1, outage), seen.waiting()
	brokertest.Eventually(t, "all dead letters", func() bool {
		return int64(brokertest.Ready(t, s.eyes, "work.dead")) == dead
	})
	t.Logf("published %d; dead: %d, simulated %d; waiting: %d, simulated %d; delayed by %.3fs: %d more or less",
		len(seen.published), dead, r.Dead, waiting, r.Waiting, delay, slack)
	for what, pair := range map[string][2]int64{"dead": {dead, r.Dead}, "waiting": {waiting, r.Waiting}} {
		if difference := pair[0] - pair[1]; difference > slack || difference < -slack {
			t.Errorf("%s: %d, simulated %d, and the difference may be %d", what, pair[0], pair[1], slack)
		}
	}
}

// record is when messages were published, and delivered, by message-id, in seconds since the outage
// began.
type record struct {
	published []float64
	delivered map[int][]float64
}

// until returns how many messages were published up to a time.
func (r record) until(at float64) (n int) {
	for _, p := range r.published {
		if p <= at {
			n++
		}
	}
	return n
}

// most returns how many messages were published within so many seconds at most.
func (r record) most(span float64) (n int64) {
	for _, p := range r.published {
		n = max(n, int64(r.until(p)-r.until(p-span)))
	}
	return n
}

// rejected returns how many messages were rejected a number of times before the outage ended.
func (r record) rejected(times int, outage time.Duration) (n int64) {
	for _, attempts := range r.delivered {
		if len(attempts) == times && attempts[times-1] < outage.Seconds() {
			n++
		}
	}
	return n
}

// waiting returns how many messages waited for a retry at the peak: all between their first
// delivery and their last one.
func (r record) waiting() (peak int64) {
	type moment struct {
		at     float64
		change int64
	}
	var all []moment
	for _, attempts := range r.delivered {
		all = append(all, moment{attempts[0], 1}, moment{attempts[len(attempts)-1], -1})
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	now := int64(0)
	for _, m := range all {
		now += m.change
		peak = max(peak, now)
	}
	return peak
}

// outage publishes messages as long as an outage lasts, and rejects them. Later deliveries are
// acknowledged. It returns when each message is done or dead.
func (s *stage) outage(t *testing.T, lasts time.Duration) record {
	t.Helper()
	consumer, publisher := s.target.Channel(t), s.target.Channel(t)
	deliveries, err := consumer.ConsumeWithContext(t.Context(), "work", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := record{delivered: map[int][]float64{}}
	begin := time.Now()
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for ticks := time.NewTicker(20 * time.Millisecond); time.Since(begin) < lasts; <-ticks.C {
			m := amqp091.Publishing{MessageId: strconv.Itoa(len(r.published)), DeliveryMode: amqp091.Persistent}
			r.published = append(r.published, time.Since(begin).Seconds())
			if err := publisher.PublishWithContext(t.Context(), "", "work", false, false, m); err != nil {
				t.Error(err)
			}
		}
	})
	ended := make(chan struct{})
	go func() { publishing.Wait(); close(ended) }()
	deadline := time.After(4 * time.Minute)
	last := len(s.topology.Backoffs[0].Tiers) + 1
	for done, sent := 0, -1; done != sent; {
		select {
		case <-ended:
			sent, ended = len(r.published), nil
		case d := <-deliveries:
			id, _ := strconv.Atoi(d.MessageId)
			at := time.Since(begin)
			r.delivered[id] = append(r.delivered[id], at.Seconds())
			if at >= lasts || len(r.delivered[id]) == last {
				done++
			}
			if at < lasts {
				err = d.Reject(false)
			} else {
				err = d.Ack(false)
			}
			if err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("%d messages are done of %d", done, sent)
		}
	}
	return r
}
