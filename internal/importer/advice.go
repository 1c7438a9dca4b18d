package importer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// The backoffs of an imported file.
const (
	// standardBackoff is for queues without retries.
	standardBackoff = "standard"
	// handBackoff waits as long as the retry queues of the virtual host do.
	handBackoff = "as-today"
)

// advice is what a comment at a queue says: prose, then lines of the file to uncomment.
type advice struct {
	prose string
	lines []member
}

// adviceFor says what happens to the failed messages of a queue, and how to improve it.
func (v *view) adviceFor(q topology.Queue) advice {
	surveyed := v.survey.Queue(q.Name)
	if v.isAside(q) || surveyed.Role == survey.Stream {
		return advice{prose: v.asideText(surveyed)}
	}
	today := v.today(surveyed)
	switch p, hasPolicy := v.policies.For(q); {
	case !v.manageable(q):
		return advice{prose: today + " dlxctl cannot change that: the name is too long for the names that it would make of it."}
	case byArgument(q):
		return v.successorFor(q, today)
	case hasPolicy && !topology.Overridable(p.Priority):
		return advice{prose: fmt.Sprintf("%s dlxctl cannot change that: the policy %s has the highest possible priority.",
			today, quoted(p.Name))}
	case v.adopt && !surveyed.DeadLetters:
		return advice{prose: "Before apply, rejected messages are lost (no-dead-lettering)."}
	case v.adopt:
		return advice{prose: today + " From apply on, a policy of dlxctl decides."}
	default:
		dead := v.deadFor(q, surveyed)
		return advice{fmt.Sprintf("%s %s, uncomment:", today, v.purpose(q)), slices.Concat([]member{
			{"deadLetterBy", textNode("policy")}, {"backoff", textNode(v.backoffFor(q))},
		}, dead)}
	}
}

// byArgument reports whether an argument decides about the failures of a queue, which no policy can
// change.
func byArgument(q topology.Queue) bool {
	return q.Arguments.HasAny(topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey,
		topology.ArgDeadLetterStrategy)
}

// successorSuffix makes the name of a successor.
const successorSuffix = ".v2"

// successorFor proposes a queue that replaces one whose arguments decide about its failures.
func (v *view) successorFor(q topology.Queue, today string) advice {
	successor := q
	successor.Name += successorSuffix
	if len(successor.Name) > topology.MaxNameBytes-len(".dead") {
		return advice{prose: today + " Only a successor with another name could change that: see dlxctl migrate."}
	}
	name, err := inline(textNode(successor.Name))
	if err != nil {
		return advice{prose: today}
	}
	dead := v.deadFor(successor, v.survey.Queue(q.Name))
	lines := []member{{"replaces", textNode(q.Name)}}
	if v.adopt {
		return advice{fmt.Sprintf("%s plan blocks this queue: its arguments cannot change. To replace it, rename it to %s, and uncomment:",
			today, name), lines}
	}
	how := fmt.Sprintf("%s, rename this queue to %s, remove external, and uncomment:", v.purpose(q), name)
	args, limit, writable := declared(q)
	for _, p := range arguments.Refused(v.state.Version, q.Type(), args) {
		delete(args, p.Argument) // RabbitMQ was upgraded since the queue was declared
	}
	args = args.Without(arguments.Ignored(args)...)
	if q.Type() == topology.Classic && (!writable || !fitsQuorum(v.state.Version, args)) {
		lines = append(lines, member{"type", textNode(topology.Classic)})
	}
	if limit != nil {
		lines = append(lines, member{"deliveryLimit", valueNode(*limit)})
	}
	if writable && len(args) > 0 {
		lines = append(lines, member{"arguments", argumentsNode(args)})
	}
	return advice{today + " " + how, slices.Concat(lines, []member{
		{"deadLetterBy", textNode("arguments")}, {"backoff", textNode(v.backoffFor(q))},
	}, dead)}
}

// fitsQuorum reports whether a quorum queue can have the arguments of a classic one, and share its
// backoff, on RabbitMQ of a version.
func fitsQuorum(version string, args topology.Arguments) bool {
	return spec.ArgumentProblem(version, args, topology.Quorum) == "" &&
		!args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes)
}

// declared returns the arguments that the file of a managed queue has, and its delivery limit. It
// reports false where the file cannot have them.
func declared(q topology.Queue) (args topology.Arguments, limit *int64, ok bool) {
	if n, limited := q.Arguments[topology.ArgDeliveryLimit].(int64); limited && n >= 0 && n <= topology.Unlimited &&
		q.Type() == topology.Quorum {
		limit = &n
	}
	args = q.Arguments.Without(topology.ArgQueueType, topology.ArgDeliveryLimit, topology.ArgDeadLetterExchange,
		topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy, topology.ArgManagedBy)
	return args, limit, writableValue(args, 0)
}

// purpose says what the lines at a queue are good for.
func (v *view) purpose(q topology.Queue) string {
	surveyed := v.survey.Queue(q.Name)
	switch {
	case len(surveyed.Targets()) == 0 && surveyed.Fate() == survey.Lost:
		return "To retry and keep them"
	case surveyed.Returns():
		return "To limit the retries"
	default:
		return "To retry them first"
	}
}

// deadFor returns the lines that choose a dead-letter queue for a queue: the one that has its
// failed messages today, or that has its name. Without a line it has one of its own, unless that
// name is in use or too long.
func (v *view) deadFor(q topology.Queue, today *survey.Queue) []member {
	dead := today.Targets()
	if name, ok := v.survey.Keeper(today); ok && len(dead) == 0 {
		dead = []string{name}
	}
	if len(dead) == 1 && v.keeps(v.survey.Queue(dead[0])) && !v.adopt {
		return []member{{"dead", mapNode(
			member{"queue", textNode(dead[0])}, member{"external", trueNode()})}}
	}
	own := topology.DeadLetterQueueName(q.Name)
	if v.survey.Queue(own) != nil || len(own) > topology.MaxNameBytes {
		return []member{{"dead", textNode("shared")}}
	}
	return nil
}

// keeps reports whether a queue is for dead letters and keeps what it gets: it deletes neither
// messages nor itself.
func (v *view) keeps(q *survey.Queue) bool {
	return q.Role == topology.RoleDeadLetter && excludesAlways(q.Queue) == "" && q.Durable &&
		!q.Args.HasAny(topology.ArgMessageTTL, topology.ArgExpires, topology.ArgMaxLength, topology.ArgMaxLengthBytes)
}

// backoffFor returns the backoff to propose for a queue: where its failures wait in a retry queue
// today, one that waits as long.
func (v *view) backoffFor(q topology.Queue) string {
	if v.limitsLength(q) {
		return v.ownBackoff(q)
	}
	if len(v.delays) > 0 && slices.ContainsFunc(v.survey.Queue(q.Name).Targets(),
		func(name string) bool { return v.survey.Queue(name).Role == topology.RoleRetry }) {
		return handBackoff
	}
	return standardBackoff
}

// limitsLength reports whether a queue may refuse a message that comes back to it after a retry.
// The arguments and the policies of its successor count, if it gets one.
func (v *view) limitsLength(q topology.Queue) bool {
	if !v.adopt && byArgument(q) {
		q.Name += successorSuffix
	}
	args := v.policies.Effective(q)
	overflow, _ := args[topology.ArgOverflow].(string)
	return args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes) &&
		(q.Type() != topology.Classic || strings.HasPrefix(overflow, topology.RejectPublish))
}

// mayBeFull returns the queues that get a backoff of their own.
func (v *view) mayBeFull() []topology.Queue {
	return slices.DeleteFunc(slices.Clone(v.queues), func(q topology.Queue) bool {
		return !v.manageable(q) || !v.limitsLength(q)
	})
}

// ownBackoff names the backoff of a queue that shares none.
func (v *view) ownBackoff(q topology.Queue) string {
	i := slices.IndexFunc(v.queues, func(o topology.Queue) bool { return o.Name == q.Name })
	return strings.TrimLeft(fmt.Sprintf("%s-%d", identifier(q.Name), i+1), "-")
}

// manageable reports whether dlxctl can set the dead-lettering of a queue: it is a work queue, and
// its name leaves room for the names that are made of it.
func (v *view) manageable(q topology.Queue) bool {
	return v.survey.Queue(q.Name).Role == topology.RoleWork && len(topology.AddressKey(q.Name)) <= topology.MaxNameBytes
}

// handDelays returns how long messages wait in the retry queues, the shortest first. It is nil
// where no backoff can have these delays.
func (v *view) handDelays() []time.Duration {
	var out []time.Duration
	for _, q := range v.survey.Queues {
		if wait := ttl(q); q.Role == topology.RoleRetry && !q.Made && wait > 0 {
			out = append(out, wait)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > maxTiers || len(out) > 0 && out[len(out)-1] > topology.MaxDelay {
		return nil
	}
	return out
}

// maxTiers is how many delays one proposed backoff has at most.
const maxTiers = 10
