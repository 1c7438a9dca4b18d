package importer

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	today, dead := v.today(q, f), v.deadFor(q)
	switch p, hasPolicy := v.policies.For(q); {
	case v.roles[q.Name] == roleRetry:
		return advice{prose: v.retryText(q)}
	case v.roles[q.Name] == roleKeeper:
		return advice{prose: v.keeperText(q)}
	case q.Type() == topology.Stream:
		return advice{prose: "A stream. It does not dead-letter."}
	case len(topology.AddressKey(q.Name)) > topology.MaxNameBytes:
		return advice{prose: today + " dlxctl cannot change that: the name is too long for the names that it would make of it."}
	case f.byArgument:
		return v.successorFor(q, f, today)
	case hasPolicy && !topology.Overridable(p.Priority):
		return advice{prose: fmt.Sprintf("%s dlxctl cannot change that: the policy %s has the highest possible priority.",
			today, quoted(p.Name))}
	default:
		overriding := ""
		if hasPolicy {
			overriding = fmt.Sprintf(" The policy of dlxctl has the keys of %s too, and overrides it for this queue.",
				quoted(p.Name))
		}
		prose := fmt.Sprintf("%s To retry them, and then keep them in %s, uncomment:%s", today, quoted(dead.queue), overriding)
		if overriding != "" {
			prose = fmt.Sprintf("%s To retry them, and then keep them in %s, uncomment the lines below.%s", today,
				quoted(dead.queue), overriding)
		}
		return advice{prose, slices.Concat([]member{
			{"deadLetterBy", textNode("policy")}, {"backoff", textNode(v.backoffFor(q))},
		}, dead.lines)}
	}
}

// successorFor proposes a queue that replaces one whose arguments decide about its failures.
func (v *view) successorFor(q topology.Queue, f failures, today string) advice {
	successor := q
	successor.Name += ".v2"
	if len(successor.Name) > topology.MaxNameBytes-len(".dead") {
		return advice{prose: today + " Only a successor with another name could change that: see dlxctl migrate."}
	}
	dead := v.deadFor(successor)
	how := fmt.Sprintf("To retry them, let a successor replace the queue: name it %s, remove external, uncomment the lines below, and run 'dlxctl migrate %s'.",
		quoted(successor.Name), text.ShellQuote(q.Name))
	lines := []member{{"replaces", textNode(q.Name)}}
	if v.adopt {
		how = fmt.Sprintf("plan blocks this queue, because RabbitMQ cannot change its arguments. Let a successor replace it: name it %s, uncomment the lines below, and run 'dlxctl migrate %s'.",
			quoted(successor.Name), text.ShellQuote(q.Name))
		return advice{today + " " + how, append(lines, dead.lines...)}
	}
	if t := q.Type(); t == topology.Classic || t == topology.Quorum {
		lines = append(lines, member{"type", textNode(t)})
	}
	if args, limit, ok := declared(q); ok {
		if limit != nil {
			lines = append(lines, member{"deliveryLimit", valueNode(*limit)})
		}
		if len(args) > 0 {
			lines = append(lines, member{"arguments", argumentsNode(args)})
		}
	}
	return advice{today + " " + how, slices.Concat(lines, []member{
		{"deadLetterBy", textNode("arguments")}, {"backoff", textNode(v.backoffFor(q))},
	}, dead.lines)}
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

// keeping is a dead-letter queue for a queue, and the lines that choose it.
type keeping struct {
	queue string
	lines []member
}

// deadFor gives the dead-letter queue that dlxctl would use for a queue: one of its own, unless
// the name is in use or too long.
func (v *view) deadFor(q topology.Queue) keeping {
	own := topology.DeadLetterQueueName(q.Name)
	exists := slices.ContainsFunc(v.state.Have.Queues, func(o topology.Queue) bool { return o.Name == own })
	if exists || len(own) > topology.MaxNameBytes {
		return keeping{"the shared dead-letter queue", []member{{"dead", textNode("shared")}}}
	}
	return keeping{queue: own}
}

// backoffFor gives the backoff to propose for a queue: where its failures wait in a retry queue
// today, one that waits as long.
func (v *view) backoffFor(q topology.Queue) string {
	if v.adopt && limitsLength(q) {
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

// mayBeFull gives the queues that get a backoff of their own in an adopted file.
func (v *view) mayBeFull() []topology.Queue {
	return slices.DeleteFunc(slices.Clone(v.queues), func(q topology.Queue) bool {
		return !v.adopt || !v.manageable(q) || !limitsLength(q)
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
	return v.roles[q.Name] == roleWork && q.Type() != topology.Stream &&
		len(topology.AddressKey(q.Name)) <= topology.MaxNameBytes
}

// today says in a sentence or two what happens to messages of a queue that fail.
func (v *view) today(q topology.Queue, f failures) string {
	if !f.deadLetters {
		return "Messages that consumers of this queue reject are lost (no-dead-lettering)."
	}
	by := "The argument x-dead-letter-exchange"
	if f.ExchangeBy != "" {
		by = "The policy " + quoted(f.ExchangeBy)
	}
	switch {
	case len(f.queues) == 0 && f.many:
		return by + " sends failed messages to " + exchangeText(f.Exchange) + ", which leads to many queues."
	case len(f.queues) == 0 && f.lost != "":
		return by + " sends failed messages to " + exchangeText(f.Exchange) + ", and there they are lost: " + f.lost +
			" (dead-letter-unrouted)."
	case len(f.queues) == 0:
		return by + " sends failed messages to " + exchangeText(f.Exchange) + "."
	}
	var ways []string
	for _, name := range f.queues {
		ways = append(ways, v.wayTo(name, q.Name))
	}
	out := by + " sends failed messages to " + strings.Join(ways, ", and to ") + "."
	if f.lost != "" {
		out += " Some are lost: " + f.lost + " (dead-letter-partly-unrouted)."
	}
	return out
}

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
	wait := topology.FormatDelay(v.delayOf(name))
	if slices.Contains(v.failures[name].queues, from) {
		return fmt.Sprintf("%s, where they wait %s and come back without end (retries-for-ever)", quoted(name), wait)
	}
	if f := v.failures[name]; len(f.queues) > 0 {
		return fmt.Sprintf("%s, where they wait %s before they go to %s", quoted(name), wait, someNames(f.queues))
	}
	return fmt.Sprintf("%s, where they wait %s", quoted(name), wait)
}

// delayOf gives how long messages wait in a queue.
func (v *view) delayOf(name string) time.Duration {
	i := slices.IndexFunc(v.state.Have.Queues, func(q topology.Queue) bool { return q.Name == name })
	return v.ttl(v.state.Have.Queues[i])
}

// handDelays gives how long messages wait in the retry queues, the shortest first. It is nil where
// no backoff can have these delays.
func (v *view) handDelays() []time.Duration {
	var out []time.Duration
	for name, r := range v.roles {
		if r == roleRetry && len(v.feeders[name]) > 0 {
			out = append(out, v.delayOf(name))
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
	to := "the queues behind " + exchangeText(f.Exchange)
	if len(f.queues) > 0 {
		to = someNames(f.queues)
	}
	return fmt.Sprintf("A retry queue: failed messages wait here %s, then go to %s.", topology.FormatDelay(v.ttl(q)), to)
}

func (v *view) keeperText(q topology.Queue) string {
	return fmt.Sprintf("It keeps the dead letters of %s.", someNames(v.feeders[q.Name]))
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
