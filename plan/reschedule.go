package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// rescheduled returns the backoffs of the file whose tiers on the broker are others.
func (r *resolver) rescheduled() []Reschedule {
	var out []Reschedule
	for _, after := range r.want.Backoffs {
		before := r.foundLoop(after.Name)
		if len(before.Tiers) == 0 || sameDelays(before, after) {
			continue
		}
		out = append(out, Reschedule{Before: before, After: after, Queues: queuesOf(r.want.WorkQueues, after.Name)})
	}
	return out
}

// sameDelays reports whether two backoffs have the same delays, in the same order.
func sameDelays(a, b topology.Backoff) bool {
	return slices.EqualFunc(a.Tiers, b.Tiers, func(a, b topology.Tier) bool { return a.Delay == b.Delay })
}

// queuesOf returns the names of the work queues that have a backoff.
func queuesOf(works []topology.WorkQueue, backoff string) []string {
	var out []string
	for _, w := range works {
		if w.Backoff == backoff {
			out = append(out, w.Name)
		}
	}
	return out
}

// line says what changes: "10s, 1m, 10m -> 10s, 2m, 20m; 10 queues; dead after 11m10s -> 22m10s".
func (r Reschedule) line() string {
	return fmt.Sprintf("%s -> %s; %s; dead after %s -> %s", delayList(r.Before), delayList(r.After),
		text.Count(len(r.Queues), "queue"), deadAfter(r.Before), deadAfter(r.After))
}

// delayList returns the delays of the attempts: "10s, 1m ×3".
func delayList(loop topology.Backoff) string {
	var parts []string
	for _, run := range runs(loop) {
		part := topology.FormatDelay(run.delay)
		if run.attempts > 1 {
			part += fmt.Sprintf(" ×%d", run.attempts)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// run is consecutive attempts with the same delay.
type run struct {
	delay    time.Duration
	attempts int
}

func runs(loop topology.Backoff) []run {
	var out []run
	for _, tier := range loop.Tiers {
		if last := len(out) - 1; last >= 0 && out[last].delay == tier.Delay {
			out[last].attempts++
			continue
		}
		out = append(out, run{tier.Delay, 1})
	}
	return out
}

// deadAfter returns how long the attempts of a message wait together.
func deadAfter(loop topology.Backoff) string {
	var total time.Duration
	for _, tier := range loop.Tiers {
		total += tier.Delay
	}
	return topology.FormatDelay(total)
}
