package importer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
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
	f := v.failures[q.Name]
	today := v.today(q, f)
	switch p, hasPolicy := v.policies.For(q); {
	case v.roles[q.Name] == roleRetry:
		return advice{prose: v.retryText(q)}
	case v.roles[q.Name] == roleKeeper:
		return advice{prose: v.keeperText(q)}
	case q.Type() == topology.Stream:
		return advice{prose: "A stream. It does not dead-letter."}
	case !v.manageable(q):
		return advice{prose: today + " dlxctl cannot change that: the name is too long for the names that it would make of it."}
	case f.byArgument:
		return v.successorFor(q, today)
	case hasPolicy && !topology.Overridable(p.Priority):
		return advice{prose: fmt.Sprintf("%s dlxctl cannot change that: the policy %s has the highest possible priority.",
			today, quoted(p.Name))}
	case v.adopt && !f.deadLetters:
		return advice{prose: "Before apply, rejected messages are lost (no-dead-lettering)."}
	case v.adopt:
		return advice{prose: today + " From apply on, a policy of dlxctl decides."}
	default:
		dead := v.deadFor(q, f)
		return advice{fmt.Sprintf("%s %s, uncomment:", today, v.purpose(q)), slices.Concat([]member{
			{"deadLetterBy", textNode("policy")}, {"backoff", textNode(v.backoffFor(q))},
		}, dead)}
	}
}

// successorFor proposes a queue that replaces one whose arguments decide about its failures.
func (v *view) successorFor(q topology.Queue, today string) advice {
	successor := q
	successor.Name += ".v2"
	if len(successor.Name) > topology.MaxNameBytes-len(".dead") {
		return advice{prose: today + " Only a successor with another name could change that: see dlxctl migrate."}
	}
	name, err := inline(textNode(successor.Name))
	if err != nil {
		return advice{prose: today}
	}
	dead := v.deadFor(successor, v.failures[q.Name])
	lines := []member{{"replaces", textNode(q.Name)}}
	if v.adopt {
		return advice{fmt.Sprintf("%s plan blocks this queue: its arguments cannot change. To replace it, rename it to %s, and uncomment:",
			today, name), lines}
	}
	how := fmt.Sprintf("%s, rename this queue to %s, remove external, and uncomment:", v.purpose(q), name)
	args, limit, writable := declared(q)
	if q.Type() == topology.Classic && (!writable || !fitsQuorum(args)) {
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
// backoff.
func fitsQuorum(args topology.Arguments) bool {
	return spec.ArgumentProblem(args, topology.Quorum) == "" && !args.HasAny("x-max-priority", "x-queue-mode",
		"x-queue-version", "x-queue-master-locator", topology.ArgMaxLength, topology.ArgMaxLengthBytes)
}

// declared gives the arguments that the file of a managed queue has, and its delivery limit. It
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
	switch {
	case v.losesAll(q):
		return "To retry and keep them"
	case len(v.returns[q.Name]) > 0:
		return "To limit the retries"
	default:
		return "To retry them first"
	}
}

// deadFor gives the lines that choose a dead-letter queue for a queue: the one that has its failed
// messages today. Without a line it has one of its own, unless that name is in use or too long.
func (v *view) deadFor(q topology.Queue, f failures) []member {
	if len(f.queues) == 1 && v.roles[f.queues[0]] == roleKeeper && v.keeps(f.queues[0]) && !v.adopt {
		name := f.queues[0]
		return []member{{"dead", mapNode(
			member{"queue", textNode(name)}, member{"external", trueNode()})}}
	}
	own := topology.DeadLetterQueueName(q.Name)
	if _, exists := v.byName[own]; exists || len(own) > topology.MaxNameBytes {
		return []member{{"dead", textNode("shared")}}
	}
	return nil
}

// keeps reports whether a queue keeps what it gets: it deletes neither messages nor itself.
func (v *view) keeps(name string) bool {
	q := v.byName[name]
	return excludesAlways(q) == "" && q.Durable && v.ttl(q) == 0 && !q.Arguments.HasAny("x-expires", topology.ArgMaxLength,
		topology.ArgMaxLengthBytes) && q.Type() != topology.Stream
}

// backoffFor gives the backoff to propose for a queue: where its failures wait in a retry queue
// today, one that waits as long.
func (v *view) backoffFor(q topology.Queue) string {
	if limitsLength(q) && v.ownsBackoff(q) {
		return v.ownBackoff(q)
	}
	if len(v.delays) > 0 && slices.ContainsFunc(v.failures[q.Name].queues,
		func(name string) bool { return v.roles[name] == roleRetry }) {
		return handBackoff
	}
	return standardBackoff
}

// limitsLength reports whether a queue may refuse a message that comes back to it after a retry.
func limitsLength(q topology.Queue) bool {
	overflow, _ := q.Arguments[topology.ArgOverflow].(string)
	return q.Arguments.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes) &&
		(q.Type() != topology.Classic || strings.HasPrefix(overflow, topology.RejectPublish))
}

// mayBeFull gives the queues that get a backoff of their own.
func (v *view) mayBeFull() []topology.Queue {
	return slices.DeleteFunc(slices.Clone(v.queues), func(q topology.Queue) bool {
		return !v.manageable(q) || !limitsLength(q) || !v.ownsBackoff(q)
	})
}

// ownsBackoff reports whether the file has the arguments of a queue, now or when it is a
// successor. Queues that stay external may share a backoff.
func (v *view) ownsBackoff(q topology.Queue) bool { return v.adopt || v.failures[q.Name].byArgument }

// ownBackoff names the backoff of a queue that shares none.
func (v *view) ownBackoff(q topology.Queue) string {
	i := slices.IndexFunc(v.queues, func(o topology.Queue) bool { return o.Name == q.Name })
	return strings.TrimLeft(fmt.Sprintf("%s-%d", identifier(q.Name), i+1), "-")
}

// manageable reports whether dlxctl can set the dead-lettering of a queue: it is a work queue, and
// its name leaves room for the names that are made of it.
func (v *view) manageable(q topology.Queue) bool {
	return v.roles[q.Name] == roleWork && q.Type() != topology.Stream &&
		len(topology.AddressKey(q.Name)) <= topology.MaxNameBytes
}

// today says in a sentence what happens to messages of a queue that fail.
func (v *view) today(q topology.Queue, f failures) string {
	if !f.deadLetters {
		return "Rejected messages are lost (no-dead-lettering)."
	}
	by := "By argument"
	if f.ExchangeBy != "" {
		by = "By the policy " + quoted(f.ExchangeBy)
	}
	switch {
	case len(f.queues) == 0 && f.lost.Cause == route.NoExchange:
		return fmt.Sprintf("%s, failed messages go to %s, which does not exist: they are lost (dead-letter-exchange-missing).",
			by, exchangeText(f.lost.Exchange))
	case v.losesAll(q):
		return fmt.Sprintf("%s, failed messages are lost: %s (dead-letter-unrouted).", by, f.lost)
	case len(f.queues) == 0:
		return fmt.Sprintf("%s, failed messages go to %s.", by, exchangeText(f.Exchange))
	}
	var ways []string
	for _, name := range f.queues[:min(len(f.queues), maxWays)] {
		ways = append(ways, v.wayTo(name, q.Name))
	}
	if more := len(f.queues) - maxWays; more > 0 {
		ways = append(ways, text.Count(more, "more queue"))
	}
	out := fmt.Sprintf("%s, failed messages go to %s.", by, strings.Join(ways, ", and to "))
	if f.lost.Cause != "" {
		out += fmt.Sprintf(" Some are lost: %s (dead-letter-partly-unrouted).", f.lost)
	}
	return out
}

// losesAll reports whether all failed messages of a queue are lost.
func (v *view) losesAll(q topology.Queue) bool {
	f := v.failures[q.Name]
	return !f.deadLetters || len(f.queues) == 0 && !f.many && f.lost.Cause != ""
}

// maxWays is how many queues behind a dead-letter exchange a comment names.
const maxWays = 3

// exchangeText names an exchange in a sentence.
func exchangeText(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return "the exchange " + quoted(name)
}

// wayTo says where a dead letter goes, and what happens to it there.
func (v *view) wayTo(name, from string) string {
	if v.roles[name] != roleRetry {
		return quoted(name)
	}
	wait := topology.FormatDelay(v.ttl(v.byName[name]))
	if v.returns[from][name] {
		return fmt.Sprintf("%s, and back after %s, without end (retries-for-ever)", quoted(name), wait)
	}
	if f := v.failures[name]; len(f.queues) > 0 {
		return fmt.Sprintf("%s, and after %s to %s", quoted(name), wait, someNames(f.queues))
	}
	return fmt.Sprintf("%s, where they wait %s", quoted(name), wait)
}

// handDelays gives how long messages wait in the retry queues, the shortest first. It is nil where
// no backoff can have these delays.
func (v *view) handDelays() []time.Duration {
	var out []time.Duration
	for name, r := range v.roles {
		if r == roleRetry && len(v.feeders[name]) > 0 {
			out = append(out, v.ttl(v.byName[name]))
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

func (v *view) retryText(q topology.Queue) string {
	f := v.failures[q.Name]
	to := "the queues that they came from"
	if len(f.queues) > 0 {
		to = someNames(f.queues)
	} else if f.Exchange != "" {
		to = "the queues behind " + exchangeText(f.Exchange)
	}
	return fmt.Sprintf("Failed messages wait here %s, then go to %s.", topology.FormatDelay(v.ttl(q)), to)
}

func (v *view) keeperText(q topology.Queue) string {
	out := fmt.Sprintf("Keeps the dead letters of %s", someNames(v.feeders[q.Name]))
	if t := v.ttl(q); t > 0 {
		return fmt.Sprintf("%s, for %s only (dead-letter-queue-expires).", out, topology.FormatDelay(t))
	}
	return out + "."
}

// someNames names a few queues, and says how many more there are.
func someNames(names []string) string {
	const shown = 5
	var out []string
	for _, name := range names[:min(len(names), shown)] {
		out = append(out, quoted(name))
	}
	if more := len(names) - shown; more > 0 {
		return strings.Join(out, ", ") + " and " + text.Count(more, "more queue")
	}
	if len(out) > 1 {
		return strings.Join(out[:len(out)-1], ", ") + " and " + out[len(out)-1]
	}
	return strings.Join(out, "")
}
