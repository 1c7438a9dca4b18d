package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// policyChecks are the rules about policies that do not do what they seem to do.
func policyChecks() []check {
	return []check{
		policyCatchesKeeper(), policiesTie(), policyShadowed(), policyPassedOver(), policyOverruled(),
		policyMatchesNothing(), policyRefused(), mirroring(),
	}
}

// policyOn returns definitions of a queue, its dead-letter queue and policies.
func policyOn(policies string) string {
	return `{"queues": [
  {"name": "billing", "durable": true, "arguments": {}}, {"name": "billing.dead", "durable": true, "arguments": {}}],
 "policies": [` + policies + `]}`
}

const deadLetterPolicy = `{"name": "dlq", "pattern": %q, "apply-to": "queues", "priority": 0,
   "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "billing.dead"%s}}`

func policyCatchesKeeper() check {
	return check{Rule{
		ID: "policy-catches-dead-letter-queue", Severity: Error, Group: groupNotKept,
		Title: "The policy for dead-lettering also applies to the dead-letter queue",
		Why: "The pattern of the policy matches the dead-letter queue too, which then dead-letters to itself or into nothing. " +
			"If the policy also sets a TTL or a length limit, dead letters expire and are lost. Without, it is a warning: " +
			"dead letters move only when a client rejects them.",
		Fix:  "Exclude the dead-letter queue from the pattern.",
		Hit:  Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing", `, "message-ttl": 60000`))},
		Miss: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", `, "message-ttl": 60000`))},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Role != topology.RoleDeadLetter || !q.DeadLetters || q.To.ExchangeBy == "" {
			return Finding{}, false
		}
		var same []string
		for _, name := range q.From {
			if x.byName[name].To.ExchangeBy == q.To.ExchangeBy {
				same = append(same, name)
			}
		}
		if len(same) == 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence: fmt.Sprintf("policy %s (pattern %s) applies to %s and to its dead-letter queue", q.policy.Name,
				text.Name(q.policy.Pattern), list(same)),
			Consequence: "a dead letter that a client rejects goes back where it came from, and does not leave",
			Remedy:      x.fixed(q, topology.ArgDeadLetterExchange),
			Tries:       x.unsetting(q, topology.ArgDeadLetterExchange),
		}
		for _, w := range q.Ways {
			if w.Fate == Lost && slices.Contains(x.Leaves(q.Queue), w.Reason) {
				f.Consequence = fmt.Sprintf("a dead letter %s is lost (%s)", x.dying(q, w.Reason), x.cause(q, w.Reason))
				return f, true
			}
		}
		f.Severity = Warning
		return f, true
	})}
}

// decides reports whether keys of a policy decide about the loss of messages.
func decides(keys []string) bool {
	return slices.ContainsFunc(keys, survey.Decides)
}

// differing returns the keys that two definitions do not have alike, sorted.
func differing(a, b topology.Arguments) []string {
	var out []string
	for _, name := range a.Names() {
		v, ok := b[name]
		if !ok || topology.FormatValue(v) != topology.FormatValue(a[name]) {
			out = append(out, name)
		}
	}
	for _, name := range b.Names() {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// pair is two policies that match the same queues.
type pair struct{ first, second string }

// pairs collects, for pairs of policies, the queues that both match. pick returns the two for a
// queue, which the broker chooses from.
func (x *index) pairs(pick func(q *queue, list []topology.Policy) []pair) (found []pair, queues map[pair][]string) {
	queues = map[pair][]string{}
	for _, q := range x.queues {
		for _, p := range pick(q, x.matching[q.Name]) {
			queues[p] = append(queues[p], q.Name)
		}
	}
	found = slices.SortedFunc(maps.Keys(queues), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second))
	})
	return found, queues
}

func (x *index) namedPolicy(name string) topology.Policy {
	i := slices.IndexFunc(x.State.Have.Policies, func(p topology.Policy) bool { return p.Name == name })
	return x.State.Have.Policies[i]
}

// rewritten returns the fix that writes a policy, none if dlxctl owns it or it has no keys.
func rewritten(p topology.Policy) []Fix {
	if _, generated := topology.PolicyOwner(p.Name); generated || len(p.Definition) == 0 {
		return nil
	}
	return []Fix{{Changes: []Change{put(p)}}}
}

// rewriting returns the fix that writes a policy again, with a change: its priority.
func rewriting(p topology.Policy) []Fix { return rewritten(raised(p)) }

// raised returns a policy with the next priority.
func raised(p topology.Policy) topology.Policy {
	p.Priority++
	return p
}

// applying returns the policies that RabbitMQ chooses from for a queue: those without keys that
// its type does not know.
func (x *index) applying(q *queue, list []topology.Policy) []topology.Policy {
	return slices.DeleteFunc(slices.Clone(list), func(p topology.Policy) bool {
		return !x.Policies.Applies(p, q.Queue.Queue)
	})
}

func policyShadowed() check {
	return check{Rule{
		ID: "policy-shadowed", Severity: Warning, Group: groupNoEffect,
		Title: "A policy is not in effect where another one has a higher priority",
		Why: "Policies do not merge: only the one with the highest priority applies to a queue, with its keys alone. The keys " +
			"of the others have no effect there. Without keys that decide about messages, it is a note.",
		Fix: "Copy the missing keys into the policy with the higher priority.",
		Hit: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", "") +
			`, {"name": "ttl", "pattern": "billing", "apply-to": "queues", "priority": 5, "definition": {"message-ttl": 60000}}`)},
		Miss: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", "") +
			`, {"name": "ttl", "pattern": "reports", "apply-to": "queues", "priority": 5, "definition": {"message-ttl": 60000}}`)},
	}, func(x *index) []Finding {
		found, queues := x.pairs(func(q *queue, matching []topology.Policy) []pair {
			var out []pair
			list := x.applying(q, matching)
			for _, p := range list[min(1, len(list)):] {
				top := list[0]
				// A policy of dlxctl is a copy without the keys that do harm.
				if _, generated := topology.PolicyOwner(top.Name); !generated && p.Priority < top.Priority &&
					len(missing(p, top)) > 0 {
					out = append(out, pair{top.Name, p.Name})
				}
			}
			return out
		})
		var out []Finding
		for _, both := range found {
			top, p := x.namedPolicy(both.first), x.namedPolicy(both.second)
			keys := missing(p, top)
			f := Finding{
				Object: p.ID(),
				Evidence: fmt.Sprintf("policy %s (priority %d) overrides policy %s (priority %d) on %s, and does not set %s",
					top.Name, top.Priority, p.Name, p.Priority, list(queues[both]), strings.Join(keys, ", ")),
				Consequence: strings.Join(keys, ", ") + " of " + p.Name + " has no effect on these queues",
				Remedy: fmt.Sprintf("decide which keys of %s the queues should have: copy them into %s, or give the queues a policy of their own",
					text.Name(p.Name), text.Name(top.Name)),
				Tries: choosing(rewritten(merged(top, p, keys)), "copies %s of %s into %s, for all that it matches: decide first "+
					"whether that is meant", strings.Join(keys, ", "), text.Name(p.Name), text.Name(top.Name)),
			}
			if slices.Contains(keys, topology.KeyDeadLetterExchange) {
				f.Consequence = "the dead-lettering of " + p.Name + " has no effect on these queues: rejected messages are lost" +
					" unless an argument sets it"
			}
			if !decides(keys) {
				f.Severity = Note
			}
			out = append(out, f)
		}
		return out
	}}
}

// missing returns the keys of a policy that another one does not set, sorted.
func missing(p, top topology.Policy) []string {
	return slices.DeleteFunc(p.Definition.Names(), func(key string) bool { return top.Definition.HasAny(key) })
}

// merged returns a policy with some keys of another one.
func merged(top, p topology.Policy, keys []string) topology.Policy {
	for _, key := range keys {
		top.Definition = top.Definition.With(key, p.Definition[key])
	}
	return top
}

func policyPassedOver() check {
	return check{Rule{
		ID: "policy-passed-over", Severity: Error, Group: groupNoEffect,
		Title: "A policy does not apply to a queue because of one of its keys",
		Why: "RabbitMQ passes over a policy with a key that the type of the queue does not know, whatever else the policy " +
			"sets. Classic queues do not know delivery-limit, dead-letter-strategy, initial-cluster-size, before 4.0 " +
			"queue-leader-locator, and since 3.12 max-in-memory-length. Quorum queues do not know queue-mode, ha-mode and " +
			"initial-cluster-size. Without keys that decide about messages, it is a note.",
		Fix:  "Split the policy: one for each type, with apply-to classic_queues or quorum_queues (since 3.12), or by pattern.",
		Hit:  Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", `, "delivery-limit": 5`))},
		Miss: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", ""))},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		list := x.matching[q.Name]
		if len(list) == 0 || q.Type() == topology.Stream || x.Policies.Applies(list[0], q.Queue.Queue) {
			return Finding{}, false
		}
		p := list[0]
		unknown := slices.DeleteFunc(p.Definition.Names(), func(key string) bool {
			return !slices.Contains(x.Policies.UnknownKeys(q.Type()), key)
		})
		others := slices.DeleteFunc(p.Definition.Names(), func(key string) bool { return slices.Contains(unknown, key) })
		f := Finding{
			Evidence: fmt.Sprintf("policy %s matches the %s queue and sets %s, which %s queues do not know", p.Name, q.Type(),
				strings.Join(unknown, ", "), q.Type()),
			Consequence: "nothing of the policy is in effect on the queue",
			Remedy: fmt.Sprintf("decide which keys of %s the queue should have, and give it a policy without %s", text.Name(p.Name),
				strings.Join(unknown, ", ")),
			Tries: rewritten(separate(p, q, others)),
		}
		if len(others) > 0 {
			f.Consequence += ", not even " + strings.Join(others, ", ")
		}
		switch {
		case slices.Contains(others, topology.KeyDeadLetterExchange) && !q.DeadLetters:
			f.Consequence += ": a message that a consumer rejects is lost"
		case decides(others):
			f.Severity = Warning
		default:
			f.Severity = Note
		}
		return f, true
	})}
}

// separate returns a policy for one queue with some keys of another one.
func separate(p topology.Policy, q *queue, keys []string) topology.Policy {
	out := topology.Policy{
		Name: p.Name + "-" + q.Type(), Pattern: topology.QueuesPattern([]string{q.Name}), ApplyTo: "queues",
		Priority: p.Priority + 1, Definition: topology.Arguments{},
	}
	for _, key := range keys {
		out.Definition[key] = p.Definition[key]
	}
	return out
}

func policyOverruled() check {
	return check{Rule{
		ID: "policy-overruled-by-argument", Severity: Note, Group: groupNoEffect,
		Title: "An argument of the queue overrides the policy",
		Why: "For the dead-letter exchange, routing key and strategy, the argument of a queue overrides the policy. Of two " +
			"limits or TTLs the smaller one applies. The value of the policy has no effect.",
		Fix: "Remove the key from the policy, or the argument from the queue, which needs a new queue.",
		Hit: Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "arguments": {"x-message-ttl": 1000}}],
 "policies": [{"name": "ttl", "pattern": "^billing$", "apply-to": "queues", "priority": 0, "definition": {"message-ttl": 60000}}]}`},
		Miss: Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "arguments": {"x-message-ttl": 60000}}],
 "policies": [{"name": "ttl", "pattern": "^billing$", "apply-to": "queues", "priority": 0, "definition": {"message-ttl": 1000}}]}`},
	}, ofQueues(func(_ *index, q *queue) (Finding, bool) {
		var parts []string
		for _, key := range q.policy.Definition.Names() {
			name := "x-" + key
			own, set := q.Arguments[name]
			v := q.policy.Definition[key]
			if set && topology.FormatValue(own) == topology.FormatValue(q.Args[name]) &&
				topology.FormatValue(own) != topology.FormatValue(v) {
				parts = append(parts, fmt.Sprintf("%s %s (argument) overrides %s (policy %s)", name, describe(name, own),
					describe(name, v), q.policy.Name))
			}
		}
		if !q.hasPolicy || len(parts) == 0 {
			return Finding{}, false
		}
		return Finding{
			Evidence:    strings.Join(parts, "; "),
			Consequence: "these keys of the policy have no effect on " + text.Name(q.Name),
			Remedy: fmt.Sprintf("decide which of them is meant: leave it, or correct the policy %s, or the service that declares the queue",
				text.Name(q.policy.Name)),
		}, true
	})}
}

func policyMatchesNothing() check {
	return check{Rule{
		ID: "policy-matches-nothing", Severity: Note, Group: groupNoEffect,
		Title: "The policy matches no queue and no exchange",
		Why: "The pattern may have a mistake, or the queues do not exist yet. A file does not tell which queues services " +
			"declare when they start.",
		Fix:  "Correct the pattern, or delete the policy.",
		Hit:  Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^biling$", ""))},
		Miss: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", ""))},
	}, func(x *index) []Finding {
		matched := map[string]bool{}
		for _, q := range x.queues {
			for _, p := range x.matching[q.Name] {
				matched[p.Name] = true
			}
		}
		var out []Finding
		for _, p := range x.State.Have.Policies {
			if matched[p.Name] || slices.ContainsFunc(x.Exchanges, func(e *exchange) bool {
				return x.Policies.MatchesExchange(p, e.Exchange)
			}) {
				continue
			}
			out = append(out, Finding{
				Object: p.ID(),
				Evidence: fmt.Sprintf("pattern %s, apply-to %s: nothing matches", text.Name(p.Pattern),
					cmp.Or(p.ApplyTo, "all")),
				Consequence: "the policy has no effect" + x.soFar("no service declares a queue that it matches"),
				Remedy:      "decide which queues are meant: correct the pattern, or delete the policy",
			})
		}
		return out
	}}
}

func policyRefused() check {
	return check{Rule{
		ID: "policy-refused", Severity: Error, Group: groupRefused, Upgrade: Refused,
		Source: "3.10.8, 4.0.5 and 4.3.6 measured: each key of a policy",
		Title:  "RabbitMQ refuses the policy because of a key",
		Why: "RabbitMQ knows the keys of policies and checks their values. A policy with any other key or value is refused, and " +
			"an import of definitions stops there, after a part of the file. A plugin can add keys: a key that resembles " +
			"none is a warning in a file, and not judged on a running broker.",
		Fix:  "Remove or correct the key.",
		Hit:  Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", `, "max-priority": 10`))},
		Miss: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", `, "max-length": 10`))},
	}, func(x *index) []Finding {
		var out []Finding
		for _, p := range x.State.Have.Policies {
			var wrong, names []string
			severity := Warning
			for _, problem := range arguments.RefusedKeys(x.State.Version, p.Definition) {
				if problem.Foreign && x.in.Live != nil {
					continue
				}
				wrong, names = append(wrong, problem.String()), append(names, problem.Argument)
				if !problem.Foreign {
					severity = Error
				}
			}
			if len(wrong) == 0 {
				continue
			}
			f := Finding{
				Object: p.ID(), Severity: severity, Evidence: strings.Join(wrong, ". "),
				Consequence: "RabbitMQ refuses the policy, and the import of a file with it",
				Remedy: fmt.Sprintf("remove %s from the policy %s, or correct it", strings.Join(names, ", "),
					text.Name(p.Name)),
			}
			if x.in.For != "" {
				f.Tries = without(p, names)
			}
			out = append(out, f)
		}
		return out
	}}
}
