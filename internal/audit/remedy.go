package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// describe returns the value of an argument or of a key of a policy, with the duration of
// milliseconds.
func describe(name string, v any) string {
	switch v := v.(type) {
	case int64:
		switch strings.TrimPrefix(name, "x-") {
		case topology.KeyMessageTTL, topology.KeyExpires, topology.KeyConsumerTimeout:
			return fmt.Sprintf("%d (%s)", v, text.Millis(v))
		}
	case string:
		return text.Name(v)
	}
	return topology.FormatValue(v)
}

// vhost returns the flag for a virtual host, none for the default one where it is the only one.
func (x *index) vhost(flag string) string {
	if x.State.VHost == "" || x.State.VHost == "/" && !x.in.Several {
		return ""
	}
	return " " + flag + " " + text.ShellQuote(x.State.VHost)
}

// keeper returns a queue that keeps dead letters.
func keeper(name string) topology.Queue {
	return topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{
		topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: topology.Unlimited,
	}}
}

// declared returns the change that declares a queue that keeps dead letters, none if it exists.
func (x *index) declared(name string) []Change {
	if x.byName[name] != nil {
		return nil
	}
	return []Change{put(keeper(name))}
}

func bound(source, queue, key string) Change {
	return put(topology.Binding{Source: source, Destination: queue, DestinationType: topology.ToQueue, Key: key})
}

// keep returns the fixes that bring the dead letters of a queue from its dead-letter exchange to a
// queue that keeps them: to one of its name, or to one that is new, by their keys, or by a key that
// a policy sets. From a queue in which messages wait they come to the one queue that some of its
// messages return to: where they should go otherwise, a person decides. before are the changes that
// come first.
func (x *index) keep(q *queue, e topology.Exchange, before ...Change) []Fix {
	to := q.Targets()
	if x.trying || q.givesBack() && len(to) != 1 {
		return nil
	}
	sameKey := 0
	for _, o := range x.queues {
		if o != q && o.DeadLetters && o.To.Exchange == e.Name {
			if !o.To.HasKey || !q.To.HasKey || o.To.Key == q.To.Key || e.Type != topology.Direct && e.Type != topology.Topic {
				sameKey++
			}
		}
	}
	var keepers []string
	switch name, ok := x.Keeper(q.Queue); {
	case q.givesBack():
	case sameKey > 0: // one queue for all of them: each would get the dead letters of the others
		keepers = []string{topology.DeadLetterQueueName(e.Name)}
	case ok:
		keepers = []string{name, topology.DeadLetterQueueName(q.Name)}
	default:
		keepers = []string{topology.DeadLetterQueueName(q.Name)}
	}
	if len(to) > 0 {
		keepers = append([]string{to[0]}, keepers...)
	}
	var out []Fix
	for _, name := range keepers {
		start := slices.Concat(before, x.declared(name))
		for _, keys := range q.lostKeys(e.Type, sameKey > 0) {
			changes := slices.Clone(start)
			for _, key := range keys {
				changes = append(changes, bound(e.Name, name, key))
			}
			out = append(out, Fix{Changes: changes})
		}
		if sameKey == 0 || e.Type == topology.Direct {
			for _, f := range x.setting(q, topology.Arguments{topology.KeyDeadLetterRoutingKey: q.Name}) {
				f.Changes = slices.Concat(start, []Change{bound(e.Name, name, q.Name)}, f.Changes)
				out = append(out, f)
			}
		}
	}
	return out
}

// lostKeys returns sets of keys of bindings, the best first. Each takes the dead letters of a queue
// that reach no queue yet; the last one, if others dead-letter there too, all that come. There are
// none on an exchange of other types.
func (q *queue) lostKeys(exchangeType string, all bool) [][]string {
	switch exchangeType {
	case topology.Fanout, topology.Headers:
		return [][]string{{""}}
	case topology.Direct, topology.Topic:
	default:
		return nil
	}
	var out [][]string
	var keys []string
	for _, h := range q.Hops {
		if h.Verdict == survey.Nowhere || h.Verdict == survey.Partly {
			keys = append(keys, h.Keys.Text)
		}
	}
	// A direct exchange compares keys as they are.
	if len(keys) > 0 && (exchangeType == topology.Topic || !slices.ContainsFunc(keys, survey.IsPattern)) {
		out = append(out, keys)
	}
	if exchangeType == topology.Topic && all {
		out = append(out, []string{"#"})
	}
	return out
}

// setting returns the fixes that set keys for one queue by a policy: a copy of the one in effect
// with a higher priority. There are none where dlxctl wrote the policy in effect.
func (x *index) setting(q *queue, set topology.Arguments) []Fix {
	if _, generated := topology.PolicyOwner(q.policy.Name); x.trying || q.hasPolicy && generated {
		return nil
	}
	p := topology.Policy{
		Name: q.Name + "-only", Pattern: topology.QueuesPattern([]string{q.Name}), ApplyTo: "queues",
		Priority: 1, Definition: topology.Arguments{},
	}
	if q.hasPolicy {
		maps.Copy(p.Definition, q.policy.Definition)
		p.Priority = q.policy.Priority + 1
	}
	for _, other := range x.State.Have.Policies {
		if other.Name == p.Name && other.Pattern != p.Pattern {
			return nil // it is for other queues
		}
		if other.Name == p.Name && other.Name != q.policy.Name {
			p.Priority = max(p.Priority, other.Priority+1)
		}
	}
	maps.Copy(p.Definition, set)
	return []Fix{{Changes: []Change{put(p)}}}
}

// spills reports whether a full queue dead-letters its oldest messages.
func (q *queue) spills() bool { return q.DeadLetters && q.DropsHead() }

// refusing returns what to do where the overflow reject-publish, with more keys, removes a finding:
// the fixes that set them, and what to say where none holds, as by [index.fixed]. A queue that
// spills when it is full would refuse messages instead, and publishers without confirms lose those:
// a person decides that.
func (x *index) refusing(q *queue, more topology.Arguments, arguments ...string) (remedy string, tries []Fix) {
	set := more.With(topology.KeyOverflow, topology.RejectPublish)
	if !q.spills() {
		return x.fixed(q, arguments...), x.setting(q, set)
	}
	keys := text.Each(set.Names(), func(key string) string { return key + " " + describe(key, set[key]) })
	return fmt.Sprintf("decide whether all publishers of %s use confirms, and set %s by a policy only if they do: when the queue "+
		"is full (%s), it then refuses messages, instead of dead-lettering its oldest ones", text.Name(q.Name),
		strings.Join(keys, " and "), x.cause(q, route.MaxLen)), nil
}

// unsetting returns the fixes that take keys of the policy in effect from a queue. Dead-letter
// queues are taken out of it together, without all that loses what they keep. There are none where
// an argument, an operator policy or a policy of dlxctl has one of the keys.
func (x *index) unsetting(q *queue, arguments ...string) []Fix {
	if x.trying {
		return nil
	}
	keys := text.Each(arguments, topology.PolicyKey)
	_, generated := topology.PolicyOwner(q.policy.Name)
	if q.Arguments.HasAny(arguments...) || !q.hasPolicy || generated ||
		q.hasOperator && q.operator.Definition.HasAny(keys...) {
		return nil
	}
	p, names := q.policy, []string{q.Name}
	if q.Role == topology.RoleDeadLetter {
		names = nil
		keys = append(keys, topology.KeyMessageTTL, topology.KeyExpires, topology.KeyMaxLength,
			topology.KeyMaxLengthBytes, topology.KeyOverflow, topology.KeyDeliveryLimit,
			topology.KeyDeadLetterExchange, topology.KeyDeadLetterRoutingKey, topology.KeyDeadLetterStrategy)
	}
	all := 0
	for _, o := range x.queues {
		if !x.Policies.Matches(p, o.Queue.Queue) {
			continue
		}
		all++
		if q.Role == topology.RoleDeadLetter && o.Role == q.Role && o.hasPolicy && o.policy.Name == p.Name {
			names = append(names, o.Name)
		}
	}
	for _, e := range x.Exchanges {
		if x.Policies.MatchesExchange(p, e.Exchange) {
			all++
		}
	}
	rest := p
	rest.Definition = p.Definition.Without(keys...)
	if all == len(names) {
		return []Fix{{Changes: []Change{{Delete: len(rest.Definition) == 0, Object: rest}}}}
	}
	var changes []Change
	if len(rest.Definition) > 0 {
		rest.Name, rest.Pattern, rest.ApplyTo = p.Name+"-dead-letters", topology.QueuesPattern(names), "queues"
		if q.Role != topology.RoleDeadLetter {
			rest.Name = q.Name + "-only"
		}
		changes = append(changes, put(rest))
	}
	return []Fix{{Changes: append(changes, put(excluding(p, names)))}}
}

// excluding returns a policy that is not for some queues.
func excluding(p topology.Policy, queues []string) topology.Policy {
	not := "(?!" + strings.TrimPrefix(topology.QueuesPattern(queues), "^") + ")"
	if rest, anchored := strings.CutPrefix(p.Pattern, "^"); anchored && !strings.Contains(rest, "|") {
		p.Pattern = "^" + not + rest
	} else {
		p.Pattern = "^" + not + ".*(?:" + p.Pattern + ")"
	}
	return p
}

// attaching returns the fix that attaches dead-lettering to a queue that a service declares: lines
// of a topology file, of which dlxctl makes a dead-letter queue and a policy.
func (x *index) attaching(q *queue) []Fix {
	if x.trying || q.Arguments.HasAny(topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey) ||
		q.Role != topology.RoleWork {
		return nil
	}
	head := "queues: # in a topology file; or name a backoff, for retries\n"
	if q.retried() {
		head = "backoff: # in a topology file\n  " + standardBackoff + "queues:\n"
	}
	return []Fix{{
		Lines: fmt.Sprintf("%s  - {name: %s, type: %s, external: true, backoff: %s}", head, text.YAML(q.Name), q.Type(),
			q.backoff()),
		Changes: x.attached(q),
	}}
}

// standardBackoff is the line of the backoff that fixes propose.
const standardBackoff = "standard: {tiers: [10s, 1m, 10m]}\n"

// retried reports whether messages that consumers of q reject come back to it.
func (q *queue) retried() bool {
	return slices.ContainsFunc(q.Ways, func(w survey.Way) bool { return w.Reason == route.Rejected && w.Returns })
}

// backoff returns the backoff that each fix proposes for q, so that all write the same lines: one
// with tiers where failed messages are retried today.
func (q *queue) backoff() string {
	if q.retried() {
		return "standard"
	}
	return topology.NoBackoff
}

// attached returns the changes that give a queue a dead-letter queue by a policy.
func (x *index) attached(q *queue) []Change {
	dead := topology.DeadLetterQueueName(q.Name)
	p := topology.Policy{
		Name: topology.PolicyName("topology", q.Name), Pattern: topology.QueuesPattern([]string{q.Name}), ApplyTo: "queues",
		Priority: max(topology.PolicyPriority, topology.PriorityAbove(q.policy.Priority)),
		Definition: topology.Arguments{
			topology.KeyDeadLetterExchange: "", topology.KeyDeadLetterRoutingKey: dead,
		},
	}
	for key, v := range q.policy.Definition {
		if _, set := p.Definition[key]; !set {
			p.Definition[key] = v
		}
	}
	return append(x.declared(dead), put(p))
}

// replacing returns the fix that replaces a queue, whose arguments never change, by a successor:
// lines of a topology file for dlxctl migrate. With it go the queues in which only its own
// failed messages waited.
func (x *index) replacing(q *queue) []Fix {
	kind := q.Type()
	name := q.Name + ".v2"
	dead := topology.DeadLetterQueueName(name)
	if x.trying || x.byName[name] != nil || x.byName[dead] != nil || q.Role != topology.RoleWork ||
		kind == topology.Stream {
		return nil
	}
	next := topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{
		topology.ArgQueueType: kind, topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: dead,
	}}
	if kind == topology.Quorum {
		next.Arguments[topology.ArgDeadLetterStrategy] = topology.AtLeastOnce
		next.Arguments[topology.ArgOverflow] = topology.RejectPublish
	}
	changes := []Change{put(keeper(dead)), put(next)}
	for _, b := range q.Bindings {
		b.Destination = name
		changes = append(changes, put(b))
	}
	changes = append(changes, Change{Delete: true, Object: q.Queue.Queue})
	for _, to := range q.Targets() {
		w := x.byName[to]
		if w.Waits() && slices.Equal(w.From, []string{q.Name}) && slices.Equal(w.Targets(), []string{q.Name}) {
			changes = append(changes, Change{Delete: true, Object: w.Queue.Queue})
		}
	}
	head := "queues: # in a topology file; then run dlxctl migrate\n"
	if q.retried() {
		head = "backoff: # in a topology file; then run dlxctl migrate\n  " + standardBackoff + "queues:\n"
	}
	return []Fix{{
		Lines: fmt.Sprintf("%s  - {name: %s, type: %s, replaces: %s, backoff: %s}", head, text.YAML(name), kind,
			text.YAML(q.Name), q.backoff()),
		Changes: changes,
	}}
}

// deadLettering returns the fixes that give a queue dead-lettering to a queue of its own.
func (x *index) deadLettering(q *queue) []Fix {
	return slices.Concat(x.attaching(q), x.replacing(q))
}

// fixed says what to do about what an argument or a policy sets, where no fix is known.
func (x *index) fixed(q *queue, arguments ...string) string {
	for _, name := range arguments {
		if q.Arguments.HasAny(name) {
			return fmt.Sprintf("decide when %s can be declared without %s: the arguments of a queue never change, "+
				"so it is deleted, with its messages, and then declared by the service that uses it",
				text.Name(q.Name), name)
		}
		key := topology.PolicyKey(name)
		if q.hasOperator && q.operator.Definition.HasAny(key) {
			return fmt.Sprintf("ask who runs the broker to change the operator policy %s: no other policy overrides its %s",
				text.Name(q.operator.Name), key)
		}
		if q.hasPolicy && q.policy.Definition.HasAny(key) {
			return fmt.Sprintf("decide which policy %s should have: %s sets %s, and is for other queues too",
				text.Name(q.Name), text.Name(q.policy.Name), key)
		}
	}
	return fmt.Sprintf("decide where failed messages of %s should go: no change of one object helps", text.Name(q.Name))
}

// undecidable says that a person has to decide where the dead letters of a queue go.
func (q *queue) undecidable() string {
	what := "which queue should keep the dead letters of " + text.Name(q.Name)
	if q.givesBack() {
		what = fmt.Sprintf("to which queue the messages that wait in %s should go", text.Name(q.Name))
	}
	switch {
	case q.To.Exchange == "" && q.To.HasKey:
		return fmt.Sprintf("decide %s: declare the queue %s as the service that reads it needs it, or correct the dead-letter "+
			"routing key", what, text.Name(q.To.Key))
	case q.To.Exchange == "": // no queue can be bound to it
		return fmt.Sprintf("decide %s, and set its name as the dead-letter routing key by a policy", what)
	}
	return fmt.Sprintf("decide %s, and bind it to the dead-letter exchange with each key that they have", what)
}

// list joins up to three names, and counts the rest.
func list(names []string) string { return text.FirstOf(text.Names(names), 3) }
