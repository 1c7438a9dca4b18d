package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// delays refuses to remove a delay while messages wait for it: only the processor knows where they
// go, and it reads that in the file. All of the delay stays then. The counts may be 5 seconds old,
// so each queue is proved empty before it is deleted, as every quorum queue is.
func (r *orphans) delays() {
	r.waits = map[string]int64{}
	intakes := map[string]topology.Object{}
	for _, q := range r.state.Have.Queues {
		label, is := topology.DelayOf(r.want.Name, q.Name)
		if _, wanted := r.want.Delay(label.Delay); is && !wanted && r.owns(q.Arguments) {
			r.waits[label.Delay] += r.held(q.Name)
			if q.Name == topology.IntakeQueueName(r.want.Name, label.Delay) {
				intakes[label.Delay] = q
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.waits)) {
		n := r.waits[name]
		if n == 0 {
			continue
		}
		r.refused = append(r.refused, Change{
			Action: Blocked, Kind: topology.KindQueue, Name: topology.IntakeQueueName(r.want.Name, name),
			Before: intakes[name],
			Label:  topology.Label{Role: topology.RoleFailed, Delay: name},
			Reason: fmt.Sprintf("the delay %s is to be removed, and %s for it; keep it in the file and a processor running, let publishers stop, and remove it once 'dlxctl status' has counted none for 10 seconds",
				text.Name(name), text.Choose(n, "1 message waits", fmt.Sprintf("%d messages wait", n))),
		})
	}
}

// retiresLevel reports whether a queue is a level of a delay of the file that has fewer levels now,
// and stays as messages wait there, or may still come there, and notes that. It is unbound at once,
// and its messages come to the due queue, which the file has.
func (r *orphans) retiresLevel(q topology.Queue, bound bool) bool {
	held := r.held(q.Name)
	if _, inFile := r.want.Delay(q.Label.Delay); !inFile || held == 0 && !bound {
		return false
	}
	ttl, _ := q.Arguments[topology.ArgMessageTTL].(int64)
	what, last := "level", "within "+text.Millis(ttl)
	if q.IsTimer() {
		what, last = "timer", "when it is due"
	}
	r.warn(topology.WarnRetiredTier, fmt.Sprintf(
		"the delay %s no longer has the %s %s, which stays until it is empty; it holds %s%s; the last one leaves %s; to delete it, run apply again after that, or pass --wait to wait for that",
		text.Name(q.Label.Delay), what, text.Name(q.Name), text.Count(held, "message"), countAge, last))
	r.retired = append(r.retired, q.Name)
	return true
}
