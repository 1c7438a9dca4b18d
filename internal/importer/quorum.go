package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// storage are the arguments about how a classic queue is stored. A quorum queue has none of them.
func storage() []string { return []string{"x-queue-mode", "x-queue-version", "x-queue-master-locator"} }

// asQuorum returns the quorum queue that takes the place of a classic one. Its arguments are those
// of the classic queue, but for the storage. Classic queues have no delivery limit: since 4.0 a
// quorum queue has one of 20 if it sets none.
func asQuorum(q topology.Queue) topology.Queue {
	q.Arguments = q.Arguments.Without(storage()...).With(topology.ArgQueueType, topology.Quorum).
		With(topology.ArgDeliveryLimit, topology.Unlimited)
	return q
}

// isTurned reports whether the file turns a queue into a quorum queue.
func (v *view) isTurned(q topology.Queue) bool {
	return v.quorum && q.Type() == topology.Classic && v.staysClassic(q) == ""
}

// staysClassic says why a classic queue cannot become a quorum queue that does the same.
func (v *view) staysClassic(q topology.Queue) string {
	next := asQuorum(q)
	args := v.policies.Effective(q)
	overflow, _ := args[topology.ArgOverflow].(string)
	undeclarable, _ := excludesAdoption(v.state.Version, next)
	switch why := v.loses(q, next); {
	case !q.Durable:
		return "It is transient (durable: false), and a quorum queue is durable."
	case args.HasAny(topology.ArgMaxPriority):
		return fmt.Sprintf("It has the %s priorities of x-max-priority, and a quorum queue has none before 4.0 and others since.",
			topology.FormatValue(args[topology.ArgMaxPriority]))
	case overflow == policy.RejectPublishDLX:
		return "It dead-letters what publishers send to it while it is full (reject-publish-dlx), and a quorum queue cannot."
	case args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes) && overflow != topology.RejectPublish:
		return "It drops its oldest messages when it is full, so it could drop those that come back from the hold. " +
			"With overflow reject-publish it could be a quorum queue."
	case undeclarable != "":
		return "As a quorum queue it " + undeclarable + "."
	case why != "":
		return why
	}
	return v.options.Keep[q.Name]
}

// loses says which policy a queue would lose or get as a quorum queue. RabbitMQ passes over a
// policy with a key that a type does not know, whatever else it sets.
func (v *view) loses(q, next topology.Queue) string {
	now, has := v.policies.For(q)
	then, gets := v.policies.For(next)
	keys := slices.DeleteFunc(now.Definition.Names(), func(key string) bool {
		return strings.HasPrefix(key, "ha-") || slices.Contains(v.policies.UnknownKeys(topology.Quorum), key)
	})
	switch {
	case has == gets && now.Name == then.Name:
		return ""
	case gets:
		return fmt.Sprintf("As a quorum queue it would get the policy %s, which is not in effect on it now.", quoted(then.Name))
	case len(keys) > 0:
		return fmt.Sprintf("The policy %s gives it %s, and would not apply to a quorum queue: make one that does.",
			quoted(now.Name), strings.Join(keys, ", "))
	}
	return ""
}

// turned returns how many queues the file turns, and how many classic queues it leaves.
func (v *view) turned() (turned, stay int) {
	for _, q := range v.queues {
		switch {
		case v.isTurned(q):
			turned++
		case q.Type() == topology.Classic:
			stay++
		}
	}
	return turned, stay
}

// quorumIntro says what a file does that turns queues.
func (w *writer) quorumIntro() {
	turned, stay := w.turned()
	w.comment(0, fmt.Sprintf("With this file, 'dlxctl apply' replaces %s by %s under the same %s (replace: true). 'dlxctl plan' "+
		"shows that and no other change: exchanges, bindings, dead-lettering and other queues stay as they are.",
		text.Count(turned, "classic queue"), text.Choose(turned, "a quorum queue", "quorum queues"),
		text.Choose(turned, "name", "names")))
	if stay > 0 {
		w.raw(0, "#")
		w.comment(0, text.Count(stay, "classic queue")+text.Choose(stay, " stays", " stay")+": a comment there says why.")
	}
	w.raw(0, "#")
	w.comment(0, "The arguments of each queue are those that it has. deliveryLimit 2147483647 is none, as a classic queue "+
		"has none: without it, RabbitMQ 4 gives a message up that was returned more than 20 times.")
}

// quorumQueue writes a queue that is turned, or the reason why it is not.
func (w *writer) quorumQueue(q topology.Queue) {
	if !w.isTurned(q) {
		if q.Type() == topology.Classic {
			w.comment(2, "Stays classic. "+w.staysClassic(q))
		}
		w.set(2, "external", trueNode())
		return
	}
	next := asQuorum(q)
	w.set(2, "replace", trueNode())
	w.set(2, "deliveryLimit", valueNode(topology.Unlimited))
	if args := next.Arguments.Without(topology.ArgQueueType, topology.ArgDeliveryLimit); len(args) > 0 {
		w.set(2, "arguments", argumentsNode(args))
	}
}
