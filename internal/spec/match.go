package spec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/pattern"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// nameless refuses an entry of queues with neither name nor match.
func (d *decoder) nameless(f fields) {
	if !f.slips["name"] && !f.slips["match"] && !d.mentions(f.node, "name") && !d.mentions(f.node, "match") {
		d.problem(d.at(f.node), "queue has no name", "add name: …, or match: … for the queues that services declare")
	}
}

// match reads an entry that covers queues by a pattern.
func (d *decoder) match(f fields) {
	expression, ok := d.text(f, "match")
	if !ok {
		return
	}
	m := Match{
		Pattern: expression, Severity: topology.SeverityTicket, Pos: d.pos(f, "match"),
		Overlay: d.overlaid(field{f.node, f.node}),
	}
	what := fmt.Sprintf("the match %q", expression)
	if _, err := pattern.Compile(expression); err != nil || expression == "" {
		d.problem(m.Pos, what+" is not a regular expression of a policy",
			"write one as in RabbitMQ's policies, such as ^svc\\.")
		return
	}
	policy := topology.MatchPolicyName(d.spec.Name, topology.Classic, expression)
	if over := len(policy) - topology.MaxNameBytes; over > 0 {
		d.problem(m.Pos, fmt.Sprintf("the match makes the name of a policy of more than %d bytes", topology.MaxNameBytes),
			fmt.Sprintf("shorten it by %d", over))
		return
	}
	for _, other := range d.spec.Matches {
		if other.Pattern == expression {
			d.problem(m.Pos, fmt.Sprintf("%s is already at %s", what, other.Pos), "keep one of them")
			return
		}
	}
	for _, key := range []string{"name", "arguments", "bindings", "replace", "replaces", "messages", "retryTo"} {
		if v, given := f.values[key]; given {
			d.problem(d.at(v.key), what+" has "+key, "it is for queues that services declare: remove it, or write an entry with name for one queue")
		}
	}
	if !d.truth(f, "external") {
		d.problem(m.Pos, what+" is not external", "it is for queues that services declare: add external: true")
	}
	if by, given := d.word(f, "deadLetterBy", deadLetterWords()); given && by != byPolicy {
		d.problem(d.pos(f, "deadLetterBy"), what+" has deadLetterBy: "+by, "only a policy covers queues by a pattern: write deadLetterBy: policy, or remove it")
	}
	d.matchValues(&m, f, what)
	d.spec.Matches = append(d.spec.Matches, m)
}

// matchValues reads what the queues that m covers have in common.
func (d *decoder) matchValues(m *Match, f fields, what string) {
	m.Type, _ = d.word(f, "type", []string{topology.Quorum, topology.Classic})
	d.inherit(f, Queue{External: true, Type: topology.Quorum})
	if s, rules, ok := d.severity(f); ok {
		m.Severity, m.SeverityRules = s, rules
	}
	m.Owner, _ = d.text(f, "owner")
	limited := Queue{Name: m.Pattern, Type: m.Type}
	if m.Type == topology.Classic && !d.mentions(f.node, "deliveryLimit") {
		delete(f.values, "deliveryLimit") // that of defaults
	}
	d.deliveryLimit(&limited, f)
	m.DeliveryLimit = limited.DeliveryLimit
	m.Backoff = d.queueBackoff(f)
	if m.Backoff == topology.NoBackoff {
		d.problem(d.pos(f, "backoff"), what+" has backoff: none", "only the processor tells in which queue a message failed: name a backoff; one with tiers: [] retries nothing")
	}
	if d.native(m.Backoff) {
		d.problem(d.pos(f, "backoff"), fmt.Sprintf("%s has the backoff %q, which has engine: native", what, m.Backoff),
			"only the processor tells in which queue a message failed: name a backoff with engine: processor, or write an entry with the name of a queue")
	}
	for _, other := range d.spec.Matches {
		if m.Backoff != "" && other.Backoff != "" && other.Backoff != m.Backoff {
			d.problem(d.pos(f, "backoff"),
				fmt.Sprintf("%s has the backoff %q, and %q has %q", what, m.Backoff, other.Pattern, other.Backoff),
				"all entries with match have one backoff, as failures of their queues come to one failed queue")
			break
		}
	}
	for _, other := range d.spec.Matches { // the processor knows a queue by its name alone
		if other.Type != "" && other.Type != m.Type && !pattern.Disjoint(other.Pattern, m.Pattern) {
			d.problem(m.Pos, fmt.Sprintf("%s may match a queue that %q matches too, and that has type: %s", what, other.Pattern, other.Type),
				"the first entry that matches a queue applies, whatever type the queue has: give both the same type, or patterns that begin with different text")
			break
		}
	}
	if v, given := f.values["dead"]; given && v.value.Value == "own" {
		if d.mentions(f.node, "dead") {
			d.problem(d.at(v.value), what+" has dead: own", "the queues that it covers are not known beforehand: write dead: shared, or name a queue")
		}
		delete(f.values, "dead")
	}
	m.Dead = Dead{Queue: topology.DeadLetterName(d.spec.Name), Pos: m.Pos}
	if _, given := f.values["dead"]; given {
		m.Dead = d.dead(f, m.Dead)
	}
}

// matchHits refuses patterns that match a name of the file, or one that dlxctl uses.
func (d *decoder) matchHits() {
	s := d.spec
	if s.Name == "" || len(s.Matches) == 0 {
		return
	}
	generated := map[string]string{
		topology.UnroutableName(s.Name):    "the unroutable queue",
		topology.ParkedName(s.Name):        "the messages that dlxctl desk parks",
		topology.HoldName(s.Name, "run"):   "the holds of dlxctl desk",
		topology.LogName(s.Name):           "the records of dlxctl desk",
		topology.DeskLockName(s.Name, "q"): "the locks of dlxctl desk",
		topology.LockName(s.Name):          "the lock of apply",
		topology.VerifyName(s.Name, "run"): "the queues of dlxctl verify",
		topology.DeadLetterName(s.Name):    "the shared dead-letter queue",
	}
	for _, b := range s.Backoffs {
		generated[topology.FailedQueueName(s.Name, b.Name)] = "the failed queue of backoff " + b.Name
		generated[topology.OutageQueueName(s.Name, b.Name)] = "the outages of backoff " + b.Name
		for _, t := range b.Tiers {
			generated[topology.RetryQueueName(s.Name, b.Name, t.Delay)] = "a retry queue of backoff " + b.Name
		}
	}
	for _, x := range s.Delays { // in their queues the key of a match replaces that of each message
		made := topology.NewDelay(s.Name, x.Name, x.To, x.Max, x.Native)
		levels := text.Each(made.Levels, func(l topology.Tier) string { return l.Queue })
		for _, queue := range append(levels, made.Queues()...) {
			generated[queue] = "the delay " + x.Name
		}
	}
	for _, m := range s.Matches {
		generated[m.Dead.Queue] = "dead letters"
	}
	for _, q := range s.Queues {
		if q.Dead.Queue != "" {
			generated[q.Dead.Queue] = "the dead letters of " + q.Name
		}
		if q.Replaces != "" {
			generated[q.Replaces] = "a legacy queue, which " + q.Name + " replaces"
		}
	}
	for _, m := range s.Matches {
		hits := d.hits(m)
		if i := slices.IndexFunc(s.Queues, func(q Queue) bool { return hits(q.Name) }); i >= 0 {
			q := s.Queues[i]
			d.problem(m.Pos,
				fmt.Sprintf("the match %q covers the queue %q, which is at %s:%d", m.Pattern, q.Name, q.Pos.File, q.Pos.Line),
				"one policy applies to a queue: exclude it from the pattern, as in ^svc\\.(?!mine(\\.dead)?$), or remove the queue")
			continue
		}
		names := slices.Sorted(maps.Keys(generated))
		if i := slices.IndexFunc(names, hits); i >= 0 {
			d.problem(m.Pos,
				fmt.Sprintf("the match %q covers the queue %q, which is for %s", m.Pattern, names[i], generated[names[i]]),
				"its policy would change that queue: write a pattern that matches only queues of services, or another name under dead")
		}
	}
}

// hits returns a function that reports whether the pattern of m matches a name. One that takes too
// long is a problem, and matches nothing more.
func (d *decoder) hits(m Match) func(string) bool {
	p, _ := pattern.Compile(m.Pattern) // it was compiled before
	return func(name string) bool {
		hit, err := p.Matches(name)
		if err != nil {
			d.problem(m.Pos, fmt.Sprintf("the match %q takes too long for the name %q", m.Pattern, name),
				"write a simpler pattern")
			p = nil
		}
		return hit && err == nil
	}
}
