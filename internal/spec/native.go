package spec

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// engine reads what counts the attempts of a backoff. RabbitMQ itself counts those of a native one:
// such a backoff has no keys that only the processor follows.
func (d *decoder) engine(b *Backoff, f fields) {
	engine, ok := d.word(f, "engine", []string{topology.EngineProcessor, topology.EngineNative})
	if !ok || engine != topology.EngineNative {
		return
	}
	b.Native = true
	if d.version != "" && !(topology.State{Version: d.version}).DelaysRetries() {
		d.problem(d.pos(f, "engine"),
			fmt.Sprintf("engine: native is for RabbitMQ %s and later, and this file is checked for %s", topology.FirstNative, d.version),
			"write engine: processor, or remove it")
	}
	for _, key := range []string{"retryOn", "retryUntil", "afterExpiry", "outage"} {
		if v, given := f.values[key]; given {
			d.problem(d.at(v.key), fmt.Sprintf("%s has engine: native and %s", f.what, key),
				"only the processor follows "+key+": remove it, or write engine: processor")
		}
	}
	d.followable(*b, f)
}

// followable refuses tiers of a native backoff that RabbitMQ cannot follow: it delays the n-th
// retry by n times the first delay, and by no more than the longest.
func (d *decoder) followable(b Backoff, f fields) {
	waits := b.waits()
	_, tiers := f.values["tiers"]
	switch {
	case len(waits) == 0 && tiers && len(f.values["tiers"].value.Content) == 0:
		d.problem(d.pos(f, "tiers"), f.what+" has engine: native and no tiers",
			"add tiers, such as tiers: [10s, 20s, 30s]; for a queue without retries write backoff: none there")
		return
	case len(waits) == 0 || len(waits) > topology.MaxAttempts: // reported where they are read
		return
	}
	first, longest := waits[0].Delay, waits[0].Delay
	for _, t := range waits {
		longest = max(longest, t.Delay)
	}
	for i, t := range waits {
		switch {
		case t.Delay == 0:
			d.problem(t.Pos, f.what+" has engine: native and a delay of 0",
				"RabbitMQ delays by 1ms or more: write tiers: [1ms], or engine: processor")
			return
		case t.Delay != min(first*time.Duration(i+1), longest):
			d.problem(t.Pos,
				fmt.Sprintf("%s has engine: native, and retry %d waits %s: RabbitMQ can wait only n times the first delay, %s, for retry n, and a longest delay from then on",
					f.what, i+1, text.Duration(t.Delay), text.Duration(first)),
				"write engine: processor, or the nearest linear schedule: "+nearestLinear(waits))
			return
		}
	}
}

// waits returns one tier for each attempt of b.
func (b Backoff) waits() []Tier {
	var out []Tier
	for _, t := range b.Tiers {
		for range min(t.Attempts, topology.MaxAttempts+1-len(out)) {
			out = append(out, t)
		}
	}
	return out
}

// nearestLinear returns the linear schedule with as many attempts whose delays differ least from
// those of waits, by the sum of the logarithms of their ratios, as a file writes it. The first
// delay is that of an attempt, or the one of which that is the multiple, and the longest one is
// that of an attempt.
func nearestLinear(waits []Tier) string {
	const candidates = 20 // of each; more attempts than that repeat delays
	millis := func(t time.Duration) float64 { return float64(max(t.Milliseconds(), 1)) }
	var firsts, longest []float64
	for i, t := range waits {
		if i > 0 && t.Delay == waits[i-1].Delay || len(longest) > candidates {
			continue
		}
		longest = append(longest, millis(t.Delay))
		firsts = append(firsts, millis(t.Delay))
		if n := float64(i + 1); math.Mod(millis(t.Delay), n) == 0 {
			firsts = append(firsts, millis(t.Delay)/n)
		}
	}
	slices.Sort(firsts)
	best, bestFirst, bestLongest := math.Inf(1), 0.0, 0.0
	for _, first := range firsts {
		for _, most := range longest {
			off := 0.0
			for i, t := range waits {
				off += math.Abs(math.Log(max(first, min(first*float64(i+1), most)) / millis(t.Delay)))
			}
			if off < best {
				best, bestFirst, bestLongest = off, first, max(first, most)
			}
		}
	}
	ms := func(wait float64) string { return text.Duration(time.Duration(wait) * time.Millisecond) }
	if bestLongest < bestFirst*float64(len(waits)) {
		return fmt.Sprintf("linear: {first: %s, attempts: %d, max: %s}", ms(bestFirst), len(waits), ms(bestLongest))
	}
	return fmt.Sprintf("linear: {first: %s, attempts: %d}", ms(bestFirst), len(waits))
}

// nativeQueue refuses what a queue with a native backoff cannot have.
func (d *decoder) nativeQueue(q *Queue, f fields) {
	b, _ := d.backoff(q.Backoff)
	if !b.Native {
		return
	}
	q.ByPolicy = true
	what := fmt.Sprintf("queue %q has the backoff %q, which has engine: native, and ", q.Name, b.Name)
	at := func(key string) Pos {
		if _, given := f.values[key]; given {
			return d.pos(f, key)
		}
		return q.Pos
	}
	refuse := func(key, value, fix string) { d.problem(at(key), what+value, fix) }
	if q.Type == topology.Classic {
		refuse("type", "is classic", "only quorum queues delay retries: write type: quorum, or a backoff with engine: processor")
	}
	if d.mentions(f.node, "deadLetterBy") {
		if by, _ := d.word(f, "deadLetterBy", deadLetterWords()); by == byArguments {
			refuse("deadLetterBy", "deadLetterBy: arguments", "only a policy changes on a live queue: write deadLetterBy: policy, or remove it")
		}
	}
	if d.mentions(f.node, "deliveryLimit") {
		refuse("deliveryLimit", "deliveryLimit", "the number of its retries is the delivery limit: remove deliveryLimit")
	}
	q.DeliveryLimit = nil // one of defaults is for other queues
	if q.RetryTo != "" {
		refuse("retryTo", "retryTo", "only the processor retries to another queue: remove retryTo, or give it a backoff with engine: processor")
	}
	if q.Replaces != "" {
		refuse("replaces", "replaces", "migrate the queue with a backoff that has engine: processor, or with backoff: none, and change the backoff afterwards")
	}
	if q.Dead.External {
		d.problem(q.Dead.Pos, what+"an external dead-letter queue",
			"dead letters arrive there with their delivery count, and a delivery limit of that queue would drop them: remove external, or give the queue a backoff with engine: processor")
	}
	if len(q.SeverityRules) > 0 {
		refuse("severity", "rules of severity, and no processor reads its messages",
			"write severity: page, ticket or info on the queue, or give it a backoff with engine: processor")
	}
	together := time.Duration(0)
	for _, t := range b.waits() {
		together += t.Delay
	}
	if ttl, ok := q.Arguments[topology.ArgMessageTTL].(int64); ok && ttl <= together.Milliseconds() {
		refuse("arguments", fmt.Sprintf("x-message-ttl %d", ttl), fmt.Sprintf(
			"it counts from the publish, also while RabbitMQ delays a message, and ends its retries: write more than %d, all delays together, or remove it",
			together.Milliseconds()))
	}
	for _, name := range q.Arguments.Names() {
		if slices.Contains(arguments.DelayedRetry(), topology.PolicyKey(name)) {
			refuse("arguments", name, "the policy of dlxctl sets it: remove it")
		}
	}
}
