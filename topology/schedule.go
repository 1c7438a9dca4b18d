package topology

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Wait returns how long the attempts of a message wait together.
func (b Backoff) Wait() time.Duration {
	var total time.Duration
	for _, tier := range b.Tiers {
		total += tier.Delay
	}
	return total
}

// Schedule returns the backoff of a work queue, with the tiers that a message goes through which is
// rejected each time: where the queue and those after it retry to another one, the tiers are those
// of the queues in which it fails. It ends, as each failure is counted: the n-th waits in the n-th
// tier of the backoff of its queue. The last queue says what an outage is. The zero backoff: none.
func (c Compiled) Schedule(queue string) Backoff {
	w, _ := c.WorkQueue(queue)
	if b, native := c.NativeBackoff(w.Backoff); native {
		return b
	}
	b, ok := c.Backoff(w.Backoff)
	if !ok || w.RetryTo == "" {
		return b
	}
	out := b
	out.Tiers = nil
	for n := 0; n < len(b.Tiers) && (n == 0 || b.Retries(ReasonRejected)); n++ {
		out.Tiers = append(out.Tiers, b.Tiers[n])
		if w.RetryTo != "" {
			w, _ = c.WorkQueue(w.RetryTo)
			b, _ = c.Backoff(w.Backoff)
		}
	}
	out.Outage = b.Outage
	return out
}

// DelaysText returns the delays of the attempts: "10s, 1m ×3", or "no retries".
func (b Backoff) DelaysText() string {
	return cmp.Or(strings.Join(b.delays(""), ", "), "no retries")
}

// DeadText says when after its first failure a message is a dead letter: "after 11m10s", or "at
// once".
func (b Backoff) DeadText() string {
	if len(b.Tiers) == 0 {
		return "at once"
	}
	return "after " + text.Duration(b.Wait())
}

// ScheduleText says when a message is delivered that fails each time: "4 deliveries, at 0s, +10s,
// +1m, +10m; dead after 11m10s at the earliest". A backoff without tiers has no retries. Of one
// that retries some failures only it is about these: "; only rejected is retried". And it says what
// expiry does, where that is not ignored: "; deleted when it expires". For a native backoff it says
// what RabbitMQ counts.
func (b Backoff) ScheduleText() string {
	if len(b.Tiers) == 0 {
		return "1 delivery; dead at once" + b.expiryText()
	}
	out := fmt.Sprintf("%d deliveries, at 0s, %s; dead after %s at the earliest", len(b.Tiers)+1,
		strings.Join(b.delays("+"), ", "), text.Duration(b.Wait()))
	if b.Native {
		return out + "; RabbitMQ delays and counts what consumers requeue (basic.reject)"
	}
	if b.RetryOn != nil {
		reasons := text.Each(b.RetryOn, func(r Reason) string { return string(r) })
		out += fmt.Sprintf("; only %s %s retried", text.List(reasons), text.Choose(len(reasons), "is", "are"))
	}
	return out + b.expiryText()
}

// expiryText says what becomes of a message whose time is over, after a sentence.
func (b Backoff) expiryText() string {
	switch b.AfterExpiry {
	case ExpiryDead:
		return "; dead when it expires"
	case ExpiryDropped:
		return "; deleted when it expires"
	default:
		return ""
	}
}

// OutageText says from which length an outage of a work queue makes dead letters: "an outage of
// 11m10s or more makes dead letters". The zero backoff is none.
func (b Backoff) OutageText() string {
	limit := b.OutageLimit()
	switch {
	case limit == 0:
		return "any outage makes dead letters"
	case b.Outage != nil:
		return fmt.Sprintf("an outage of %s or more makes dead letters (outage: until %s)", text.Duration(limit),
			text.Duration(b.Outage.Until))
	default:
		return fmt.Sprintf("an outage of %s or more makes dead letters", text.Duration(limit))
	}
}

// delays returns a text for each delay, with a count where consecutive attempts have the same.
func (b Backoff) delays(prefix string) []string {
	var out []string
	for i := 0; i < len(b.Tiers); {
		first := i
		for i < len(b.Tiers) && b.Tiers[i].Delay == b.Tiers[first].Delay {
			i++
		}
		part := prefix + text.Duration(b.Tiers[first].Delay)
		if i-first > 1 {
			part += fmt.Sprintf(" ×%d", i-first)
		}
		out = append(out, part)
	}
	return out
}
