package topology

import (
	"slices"
	"time"
)

// Outage says when a work queue is in outage, as nearly all of its deliveries fail. While it is, a
// message that would be a dead letter waits instead, and the attempt is not counted.
type Outage struct {
	// Failing is the share of the last Of deliveries that has failed in an outage: more than 0, at
	// most 1.
	Failing float64 `json:"failing"`
	// Of is the number of the last deliveries that are looked at, at least 1.
	Of int `json:"of"`
	// Until is how long after its first failure a message may wait for the end of an outage.
	Until time.Duration `json:"until"`
	// Rate is how many of the waiting messages of the backoff return per second at most.
	// Zero: any number.
	Rate float64 `json:"rate"`
	// Tier is where such messages wait: as long as in the longest tier of the backoff, at least
	// [ShortestOutageTier], and longer where Rate asks for it.
	Tier Tier `json:"tier"`
}

const (
	// ShortestOutageTier is how long a message waits for the end of an outage at least, so that it
	// does not go round at full speed.
	ShortestOutageTier = time.Second
	// LongestOutageTier is how long it waits at most: the TTL of the queue. The processor sets the
	// time of each message, so that another backoff needs no other queue.
	LongestOutageTier = 24 * time.Hour
)

// DefaultOutage returns what a backoff has whose file says no more than "outage: {}", without the
// tier.
func DefaultOutage() Outage { return Outage{Failing: 0.8, Of: 50, Until: 24 * time.Hour} }

// OutageDelay returns how long a message of b waits for the end of an outage, unless the rate asks
// for longer: the delay of the longest tier, within the limits.
func (b Backoff) OutageDelay() time.Duration {
	if b.Outage != nil && b.Outage.Tier.Delay > 0 {
		return b.Outage.Tier.Delay
	}
	delay := ShortestOutageTier
	for _, t := range b.Tiers {
		delay = max(delay, t.Delay)
	}
	return min(delay, LongestOutageTier)
}

// OutageLimit returns how long an outage of a work queue lasts at least when it makes dead letters.
// Each delivery is rejected at once: after the last tier the message is dead, or waits again and
// again until Until has passed since its first failure.
func (b Backoff) OutageLimit() time.Duration {
	if !b.Retries(ReasonRejected) {
		return 0
	}
	total := b.Wait()
	if b.Outage == nil || total >= b.Outage.Until {
		return total
	}
	delay := b.OutageDelay()
	rounds := (b.Outage.Until - total + delay - 1) / delay
	return total + rounds*delay
}

// OutageQueueName names the queue in which messages wait for the end of an outage. It is a retry
// queue: [RetryBackoff] knows its name. No other one has it, as a delay begins with a digit.
func OutageQueueName(topology, backoff string) string {
	return RetryQueuePrefix(topology, backoff) + "outage"
}

// Exchange is the name of the exchange that leads to the queue of the tier, and nowhere else. It
// has no alternate exchange: what waits has a TTL of its own, and would expire in any other queue.
// What the queue does not take returns to the processor.
func (o Outage) Exchange() string { return o.Tier.Queue }

// OutageCount is the count of a message that waits for the end of an outage: one more than that of
// the last tier.
func (b Backoff) OutageCount() int64 { return int64(len(b.Tiers)) + 1 }

// IsOutageQueueName reports whether queue is named like the one in which messages of any backoff of
// the topology wait for the end of an outage.
func IsOutageQueueName(topology, queue string) bool {
	backoff, ok := RetryBackoff(topology, queue)
	return ok && queue == OutageQueueName(topology, backoff)
}

// AllTiers returns the tiers, and the one for outages as the last if there is one.
func (b Backoff) AllTiers() []Tier {
	if b.Outage == nil {
		return b.Tiers
	}
	return append(slices.Clone(b.Tiers), b.Outage.Tier)
}
