package route

import (
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

// Reason is why a message died, as the broker names it in x-death.
type Reason string

// The reasons.
const (
	Rejected      Reason = "rejected"
	Expired       Reason = "expired"
	MaxLen        Reason = "maxlen"
	DeliveryLimit Reason = "delivery_limit"
)

// Death is an entry of x-death. The broker has one for each queue and reason.
type Death struct {
	Queue  string
	Reason Reason
	Count  int64
	// Exchange and Keys are those of the first death of this kind. The keys have no BCC.
	Exchange string
	Keys     []string
}

// DeadLettering is where a queue dead-letters to, by its arguments and the policy in effect. An
// argument overrides the policy, each key by itself.
type DeadLettering struct {
	Exchange string
	// Key is the dead-letter routing key. Without one the message keeps its own keys.
	Key    string
	HasKey bool
	// AtLeastOnce: a quorum queue keeps a dead letter until a queue has confirmed it. It needs
	// the overflow reject-publish, which on quorum queues the policy decides.
	AtLeastOnce bool
	// ExchangeBy and KeyBy name the policy that set them; empty is the argument.
	ExchangeBy, KeyBy string
}

// DeadLettering returns where a queue dead-letters to. It reports false for a queue that has no
// dead-letter exchange, that is a stream, or that does not exist.
func (r *Router) DeadLettering(queue string) (DeadLettering, bool) {
	q := r.queues[queue]
	return q.deadLettering, q.deadLetters
}

func (d dialect) deadLettering(policies *policy.Set, q topology.Queue) (DeadLettering, bool) {
	inEffect, _ := policies.For(q)
	setting := func(argument string) (value, by string, ok bool) {
		if value, ok = q.Arguments[argument].(string); ok {
			return value, "", true
		}
		value, ok = inEffect.Definition[topology.PolicyKey(argument)].(string)
		return value, inEffect.Name, ok
	}
	var to DeadLettering
	var ok bool
	if to.Exchange, to.ExchangeBy, ok = setting(topology.ArgDeadLetterExchange); !ok || q.Type() == topology.Stream {
		return DeadLettering{}, false
	}
	if to.Key, to.KeyBy, to.HasKey = setting(topology.ArgDeadLetterRoutingKey); !to.HasKey {
		to.KeyBy = ""
	}
	strategy, _, _ := setting(topology.ArgDeadLetterStrategy)
	overflow, byPolicy := inEffect.Definition[topology.KeyOverflow].(string)
	if !byPolicy {
		overflow, _ = q.Arguments[topology.ArgOverflow].(string)
	}
	to.AtLeastOnce = q.Type() == topology.Quorum && strategy == topology.AtLeastOnce &&
		overflow == topology.RejectPublish && d.atLeastOnce
	return to, true
}

// DeadLetter returns where a message goes that dies in a queue. The message is that of the
// [Result] by which it came there.
func (r *Router) DeadLetter(queue string, m Message, reason Reason) Result {
	q, exists := r.queues[queue]
	switch {
	case !exists:
		return Result{Message: m, Lost: []End{{Cause: NoQueue, Queue: queue}}}
	case !q.deadLetters:
		return Result{Message: m, Lost: []End{{Cause: NoDeadLettering, Queue: queue}}}
	}
	dead := r.dialect.died(queue, m, reason, q.deadLettering)
	result := Result{Message: dead}
	if x := r.exchanges[q.deadLettering.Exchange]; x != nil {
		result = r.cut(r.from(x, dead), reason)
	} else {
		result.Lost = []End{{Cause: NoExchange, Exchange: q.deadLettering.Exchange}}
	}
	if q.deadLettering.AtLeastOnce && len(result.Queues) == 0 {
		result.Stuck, result.Lost = result.Lost, nil
	}
	return result
}

// died returns a message as the broker publishes it again after its death.
func (d dialect) died(queue string, m Message, reason Reason, to DeadLettering) Message {
	death := Death{Queue: queue, Reason: reason, Count: 1, Exchange: m.Exchange, Keys: subtract(m.Keys, m.bcc)}
	if d.headerDeaths { // it takes the keys from the header CC, which has all but BCC
		cc, _ := texts(m.Headers[topology.CC])
		death.Keys = append([]string{m.Keys[0]}, cc...)
	}
	headers := maps.Clone(m.Headers)
	if headers == nil {
		headers = map[string]any{}
	}
	d.nameDeath(headers, m, death)
	if d.headerDeaths && to.HasKey {
		delete(headers, topology.CC)
	}
	m.Deaths = d.count(m.Deaths, death)
	headers[topology.HeaderDeath] = table(m.Deaths)
	m.Exchange, m.Headers = to.Exchange, headers
	if to.HasKey {
		m.Keys = []string{to.Key}
	}
	return m
}

// nameDeath sets the headers that name the first death and, since 3.13, the last one.
func (d dialect) nameDeath(headers map[string]any, m Message, death Death) {
	name := func(prefix string) {
		headers[prefix+"reason"] = string(death.Reason)
		headers[prefix+"queue"] = death.Queue
		headers[prefix+"exchange"] = death.Exchange
	}
	_, counted := headers[topology.HeaderDeath]
	if !d.headerDeaths {
		counted = len(m.Deaths) > 0
		name(topology.HeaderLastDeath)
	}
	if !counted {
		name(topology.HeaderFirstDeath)
	}
}

// count adds a death in front of those before it, or counts the one of the same queue and reason
// and moves it to the front. Up to 3.12 the broker reverses the others each time.
func (d dialect) count(before []Death, death Death) []Death {
	others := make([]Death, 0, len(before)+1)
	for _, b := range before {
		if b.Queue == death.Queue && b.Reason == death.Reason {
			b.Count++
			death = b
		} else {
			others = append(others, b)
		}
	}
	if d.headerDeaths {
		slices.Reverse(others)
	}
	return slices.Insert(others, 0, death)
}

// cut removes the queues that the broker does not dead-letter to: those in which the message died
// before, if no consumer has rejected it since. A rejected message goes round as often as it likes.
func (r *Router) cut(result Result, reason Reason) Result {
	if reason == Rejected {
		return result
	}
	var queues []string
	for _, q := range result.Queues {
		switch r.dialect.isCycle(q, result.Message.Deaths) {
		case yes:
			result.Lost = append(result.Lost, End{Cause: Cycle, Queue: q})
		case unsure:
			result.Unknown = append(result.Unknown, Unknown{
				Why: "whether the broker sees a cycle depends on the order in which it keeps deaths", May: []string{q},
			})
		case no:
			queues = append(queues, q)
		}
	}
	result.Queues = queues
	return result
}

// isCycle reports whether a message has died in a queue, and whether neither that death nor a
// newer one is a rejection.
func (d dialect) isCycle(queue string, deaths []Death) verdict {
	i := slices.IndexFunc(deaths, func(death Death) bool { return death.Queue == queue })
	rejected := func(death Death) bool { return death.Reason == Rejected }
	switch {
	case i < 0:
		return no
	case !d.orderedDeaths && slices.ContainsFunc(deaths, rejected):
		return unsure
	default:
		return sure(!slices.ContainsFunc(deaths[:i+1], rejected))
	}
}

// table returns deaths as the header x-death has them, without times.
func table(deaths []Death) []any {
	out := make([]any, 0, len(deaths))
	for _, d := range deaths {
		keys := make([]any, 0, len(d.Keys))
		for _, key := range d.Keys {
			keys = append(keys, key)
		}
		out = append(out, map[string]any{
			"queue": d.Queue, "reason": string(d.Reason), "count": d.Count,
			"exchange": d.Exchange, "routing-keys": keys,
		})
	}
	return out
}

// deathsIn reads the header x-death of a client. The broker takes entries as they are.
func deathsIn(headers map[string]any) []Death {
	list, _ := headers[topology.HeaderDeath].([]any)
	var out []Death
	for _, e := range list {
		fields := fieldsOf(e)
		queue, _ := fields["queue"].(string)
		reason, _ := fields["reason"].(string)
		exchange, _ := fields["exchange"].(string)
		keys, _ := texts(fields["routing-keys"])
		count, _ := dialect{}.scalar(fields["count"]).(int64)
		out = append(out, Death{Queue: queue, Reason: Reason(reason), Count: count, Exchange: exchange, Keys: keys})
	}
	return out
}

// subtract removes one element of list for each element of remove.
func subtract(list, remove []string) []string {
	out := slices.Clone(list)
	for _, r := range remove {
		if i := slices.Index(out, r); i >= 0 {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// without returns a copy of headers that lacks one.
func without(headers map[string]any, name string) map[string]any {
	out := maps.Clone(headers)
	delete(out, name)
	return out
}
