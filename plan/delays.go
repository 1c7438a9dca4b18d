package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// delayed warns of queues in which messages wait today for the end of a TTL, until they come to
// another work queue: with a backoff they are failures.
func (r *resolver) delayed() (f findings) {
	for _, w := range r.want.WorkQueues {
		q, exists := r.existing[cmp.Or(w.Replaces, w.Name)]
		if !exists || r.owns(q.Arguments) || r.accepts(topology.WarnEndsDelay, w.Name) {
			continue
		}
		args := policy.Effective(r.state, q)
		ttl, expires := args[topology.ArgMessageTTL].(int64)
		targets := r.workBehind(q.Name, args)
		if !expires || len(targets) == 0 {
			continue
		}
		instead := "become dead letters" // also with a native backoff: RabbitMQ does not retry what expires
		if i := slices.IndexFunc(r.want.Backoffs, func(b topology.Backoff) bool { return b.Name == w.Backoff }); i >= 0 &&
			r.want.Backoffs[i].Retries(topology.ReasonExpired) && len(r.want.Backoffs[i].Tiers) > 0 {
			instead = "are retried, as failures"
		}
		f.warn(topology.WarnEndsDelay, fmt.Sprintf(
			"messages that wait in %s for %s come to %s today; with the backoff %s they %s; if publishers delay messages there, leave the queue as it is",
			text.Name(q.Name), text.Duration(time.Duration(ttl)*time.Millisecond), text.Some(text.Names(targets)),
			text.Name(w.Backoff), instead))
	}
	return f
}

// delays returns a function that reports whether RabbitMQ may delay messages in a queue, by the
// policy that it has before the plan: that may be deleted before the queue.
func (r *resolver) delays() func(topology.Queue) bool {
	policies := policy.All(r.state)
	return func(q topology.Queue) bool {
		_, _, delays := policies.DelayedRetry(q)
		return delays || q.IsTimer()
	}
}

// workBehind returns the work queues to which a queue with these arguments dead-letters: those of
// the file, and those that have consumers.
func (r *resolver) workBehind(queue string, args topology.Arguments) []string {
	exchange, deadLetters := args[topology.ArgDeadLetterExchange].(string)
	key, keyed := args[topology.ArgDeadLetterRoutingKey].(string)
	var out []string
	switch {
	case !deadLetters:
	case exchange == "":
		out = []string{key}
	default:
		direct := slices.ContainsFunc(r.state.Have.Exchanges, func(e topology.Exchange) bool {
			return e.Name == exchange && e.Type == topology.Direct
		})
		for _, b := range r.state.Have.Bindings {
			if b.Source == exchange && b.DestinationType == topology.ToQueue && (!keyed || !direct || b.Key == key) {
				out = append(out, b.Destination)
			}
		}
	}
	return slices.DeleteFunc(out, func(name string) bool {
		return name == queue || !slices.ContainsFunc(r.want.Queues, func(q topology.Queue) bool {
			return q.Name == name && q.Label.Role == topology.RoleWork
		}) && r.state.Usage[name].Consumers == 0
	})
}
