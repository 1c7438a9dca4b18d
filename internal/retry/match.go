package retry

import (
	"github.com/dlxctl/dlxctl/internal/pattern"
	"github.com/dlxctl/dlxctl/topology"
)

// match is an entry of the file that covers queues by a pattern.
type match struct {
	topology.Match
	pattern *pattern.Pattern
}

// matchesOf returns the entries of a topology. One whose pattern cannot be read covers nothing; the
// file was refused then.
func matchesOf(t topology.Compiled) []match {
	var out []match
	for _, m := range t.Matches {
		if p, err := pattern.Compile(m.Pattern); err == nil {
			out = append(out, match{m, p})
		}
	}
	return out
}

// covering returns the first entry whose pattern matches the name of a queue.
func (r Rules) covering(queue string) (topology.Match, bool) {
	for _, m := range r.matches {
		if hit, err := m.pattern.Matches(queue); err == nil && hit {
			return m.Match, true
		}
	}
	return topology.Match{}, false
}

// Covers reports whether a match covers a queue of that name, which the file does not have. It may
// not exist.
func (r Rules) Covers(queue string) bool {
	_, named := r.workQueues[queue]
	_, covered := r.covering(queue)
	return !named && covered && topology.Addressable(queue)
}

// died returns the queue in which d has died now: what the broker has noted. Since RabbitMQ 4.0 it
// writes the header at each death, in place of what a publisher wrote (plan.Guard refuses brokers
// before). x-death says the same, but orders deaths by a clock that may be set back.
func (r Rules) died(d Message) string {
	if d.Exchange != topology.FailedExchangeName(r.topology.Name) {
		return ""
	}
	return text(d.Headers[topology.HeaderLastDeath+"queue"])
}
