package monitor

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Totals counts the messages that the processors of a monitor have moved: those whose copy is
// confirmed.
type Totals struct {
	// Retried are those in tiers, DeadLettered those in dead-letter queues, Unroutable those in
	// unroutable queues. Dropped are those deleted because their time was over.
	Retried, DeadLettered, Unroutable, Dropped int64
	// Unsettled are messages that processors consumed, and did not finish before they ended. They
	// are in the failed queues again. A copy may exist too, if the grace period was over or the
	// connection was lost.
	Unsettled int64
}

// Totals returns the totals so far.
func (m *Monitor) Totals() Totals {
	m.mu.Lock()
	unsettled := m.unsettled
	m.mu.Unlock()
	return Totals{sum(m.retried), sum(m.deadLettered), sum(m.unroutable), sum(m.expired), unsettled}
}

// sum returns the sum of all series of a counter.
func sum(counters *prometheus.CounterVec) int64 {
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		counters.Collect(series)
	}()
	var total float64
	for s := range series {
		var value dto.Metric
		if err := s.Write(&value); err == nil {
			total += value.GetCounter().GetValue()
		}
	}
	return int64(total)
}

// Replaced records that other processors take over from those that have ended, with the messages
// that these left.
func (m *Monitor) Replaced() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsettled = 0
}
