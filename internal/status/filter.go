package status

import (
	"regexp"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Filter chooses queues of a topology. The zero Filter chooses all.
type Filter struct {
	// Queues are names of queues, or patterns in which * stands for any text and ? for one
	// character. The name of a dead-letter, failed, retry or legacy queue chooses the work queues
	// that use it.
	Queues []string
	// Owners are owners of work queues.
	Owners []string
	// Problems leaves out the queues with which nothing is wrong.
	Problems bool
}

func (f Filter) everything() bool { return len(f.Queues) == 0 && len(f.Owners) == 0 }

// choose returns a function that reports whether a queue is chosen.
func (f Filter) choose(t topology.Compiled) func(queue string) bool {
	if f.everything() {
		return func(string) bool { return true }
	}
	chosen := map[string]bool{}
	match := f.pattern()
	for _, w := range entries(t) {
		names := related(t, w)
		if (len(f.Owners) == 0 || slices.Contains(f.Owners, w.Owner)) && slices.ContainsFunc(names, match) {
			for _, name := range names {
				chosen[name] = true
			}
			chosen[topology.DeadLetterQueueName(w.Name)] = true // it may be left of a previous file
		}
	}
	return func(queue string) bool {
		// A queue that belongs to no work queue has no owner: only its own name chooses it.
		return chosen[queue] || len(f.Queues) > 0 && len(f.Owners) == 0 && match(queue)
	}
}

// Unknown returns the first of the queues and owners that chooses nothing in any of the
// topologies, and all owners that they name. It is empty if each chooses something. Queues that a
// match covers are known in topologies that have them; see [policy.WithMatched].
func (f Filter) Unknown(all []topology.Compiled) (queue, owner string, owners []string) {
	for _, t := range all {
		for _, w := range entries(t) {
			if w.Owner != "" {
				owners = append(owners, w.Owner)
			}
		}
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	for _, name := range f.Owners {
		if !slices.Contains(owners, name) {
			return "", name, owners
		}
	}
	for _, pattern := range f.Queues {
		match := Filter{Queues: []string{pattern}}.pattern()
		if !slices.ContainsFunc(all, func(t topology.Compiled) bool { return slices.ContainsFunc(names(t), match) }) {
			return pattern, "", owners
		}
	}
	return "", "", owners
}

// entries returns the work queues of a topology, and each of its matches as one without a name: it
// has an owner and a dead-letter queue before the first queue that it covers.
func entries(t topology.Compiled) []topology.WorkQueue {
	unnamed := func(m topology.Match) topology.WorkQueue { return m.WorkQueue("") }
	return slices.Concat(t.WorkQueues, text.Each(t.Matches, unnamed))
}

// Names returns the queues of topologies, those that they replace included.
func Names(all []topology.Compiled) []string {
	var out []string
	for _, t := range all {
		out = append(out, names(t)...)
	}
	return out
}

// names returns the queues of a topology: those that it wants, and those that it replaces.
func names(t topology.Compiled) []string {
	var out []string
	for _, q := range t.Queues {
		out = append(out, q.Name)
	}
	for _, w := range t.WorkQueues {
		out = append(out, related(t, w)...)
	}
	return out
}

// related returns the queues through which messages of a work queue pass.
func related(t topology.Compiled, w topology.WorkQueue) []string {
	names := []string{w.Name, w.DeadLetterQueue}
	if w.Replaces != "" {
		names = append(names, w.Replaces)
	}
	if b, ok := t.Backoff(w.Backoff); ok {
		names = append(names, b.FailedQueue)
		for _, tier := range b.AllTiers() {
			names = append(names, tier.Queue)
		}
	}
	return names
}

// pattern returns a function that reports whether one of the patterns matches a whole name.
// Without patterns it matches all.
func (f Filter) pattern() func(string) bool {
	if len(f.Queues) == 0 {
		return func(string) bool { return true }
	}
	var parts []string
	for _, p := range f.Queues {
		p = regexp.QuoteMeta(p)
		parts = append(parts, strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(p))
	}
	return regexp.MustCompile(`(?s)^(?:` + strings.Join(parts, "|") + `)$`).MatchString
}

// onlyProblems leaves out the queues with which nothing is wrong.
func (m *maker) onlyProblems() {
	wrong := map[string]bool{}
	for _, p := range m.out.Problems {
		for _, name := range p.Queues {
			wrong[name] = true
		}
	}
	m.out.Works = slices.DeleteFunc(m.out.Works, func(w Work) bool { return len(w.Problems) == 0 })
	m.out.Backoffs = slices.DeleteFunc(m.out.Backoffs, func(b Backoff) bool { return !b.Unprocessed })
	m.out.Delays = slices.DeleteFunc(m.out.Delays, func(d Delay) bool { return !d.Unprocessed })
	m.out.Queues = slices.DeleteFunc(m.out.Queues, func(q Queue) bool { return !wrong[q.Name] })
	m.out.Problems = slices.DeleteFunc(m.out.Problems, func(p Problem) bool { return p.Note })
}
