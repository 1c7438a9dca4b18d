package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

func policiesTie() check {
	return check{Rule{
		ID: "policies-tie", Severity: Error, Group: groupNoEffect,
		Title: "Two policies of one priority match the same queue",
		Why: "RabbitMQ applies one policy to a queue. Between policies of the same priority it chooses as it likes, and may " +
			"choose another one after a restart. Where they differ only in how messages are stored, it is a warning.",
		Fix: "Give the policies different priorities, or patterns that do not overlap.",
		Hit: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", "") +
			`, {"name": "ttl", "pattern": "billing", "apply-to": "queues", "priority": 0, "definition": {"message-ttl": 60000}}`)},
		Miss: Example{Definitions: policyOn(fmt.Sprintf(deadLetterPolicy, "^billing$", "") +
			`, {"name": "ttl", "pattern": "billing", "apply-to": "queues", "priority": -1, "definition": {"message-ttl": 60000}}`)},
	}, func(x *index) []Finding {
		found, queues := x.pairs(func(q *queue, matching []topology.Policy) []pair {
			var out []pair
			list := x.applying(q, matching)
			for _, p := range list[min(1, len(list)):] {
				if p.Priority == list[0].Priority && len(differing(p.Definition, list[0].Definition)) > 0 {
					out = append(out, pair{list[0].Name, p.Name})
				}
			}
			return out
		})
		var out []Finding
		for _, tie := range ties(found) {
			b := x.namedPolicy(tie[0].second)
			var others, names, keys []string
			for _, both := range tie {
				others, names = append(others, both.first), append(names, queues[both]...)
				keys = append(keys, differing(x.namedPolicy(both.first).Definition, b.Definition)...)
			}
			names, keys = slices.Compact(slices.Sorted(slices.Values(names))), slices.Compact(slices.Sorted(slices.Values(keys)))
			f := Finding{
				Object: b.ID(),
				Evidence: fmt.Sprintf("policies %s and %s have the priority %d and match %s; they differ in %s", b.Name,
					list(others), b.Priority, list(names), strings.Join(keys, ", ")),
				Consequence: "which of them is in effect is not defined, and may change with a restart" +
					x.otherwise(append([]string{b.Name}, others...)),
				Remedy: fmt.Sprintf("decide which policy is meant for %s, and give it a higher priority, with the keys of the other "+
					"that should stay", list(names)),
			}
			f.Tries = x.untying(b, others, names)
			if !decides(keys) {
				f.Severity = Warning
			}
			out = append(out, f)
		}
		return out
	}}
}

// ties groups pairs of policies: one policy that ties with many others is one tie, and the second
// of each of its pairs.
func ties(found []pair) [][]pair {
	count := map[string]int{}
	for _, p := range found {
		count[p.first]++
		count[p.second]++
	}
	groups := map[string][]pair{}
	for _, p := range found {
		if count[p.first] > count[p.second] {
			p.first, p.second = p.second, p.first
		}
		groups[p.second] = append(groups[p.second], p)
	}
	var out [][]pair
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, groups[name])
	}
	return out
}

// maxOutcomes is how many policies of a tie are looked at.
const maxOutcomes = 5

// otherwise says what becomes of failed messages if the broker chooses another policy of a tie than
// the one that the audit takes to be in effect: of those queues for which it is worst.
func (x *index) otherwise(policies []string) string {
	if x.trying {
		return ""
	}
	type outcome struct{ policy, end string }
	differs := map[outcome][]string{} // the queues of which failed messages end so
	ends := map[Fate]string{Lost: "are lost", Endless: "are retried without end", Undecided: "may be lost"}
	for _, name := range policies[:min(maxOutcomes, len(policies))] {
		other := survey.New(Apply(x.State, []Change{put(raised(x.namedPolicy(name)))}))
		for _, is := range other.Queues {
			queue, was := is.Name, x.byName[is.Name]
			if !other.Counts(is) {
				continue
			}
			end := ends[is.Assumed()]
			if end == "" || is.Assumed() == was.Assumed() && !was.Tied() {
				end = "go to " + list(is.Targets())
				if len(is.Targets()) == 0 || slices.Equal(is.Targets(), was.Targets()) {
					continue
				}
			}
			differs[outcome{name, end}] = append(differs[outcome{name, end}], queue)
		}
	}
	for _, end := range []string{ends[Lost], ends[Undecided], ends[Endless], "go to "} {
		for _, o := range slices.SortedFunc(maps.Keys(differs), func(a, b outcome) int {
			return cmp.Or(strings.Compare(a.policy, b.policy), strings.Compare(a.end, b.end))
		}) {
			if strings.HasPrefix(o.end, end) {
				return fmt.Sprintf("; if it is %s, failed messages of %s %s", text.Name(o.policy), list(differs[o]), o.end)
			}
		}
	}
	return ""
}

// maxExcluded is how many queues a fix takes out of the pattern of a policy.
const maxExcluded = 20

// untying returns the fixes by which only one of the policies of a tie is for some queues, and
// which of them is in effect does not change: the other is not for these queues, or has a lower
// priority. There are none where that is not known, as in a file, or where a dead-letter queue
// would go on to dead-letter to itself: a person decides.
func (x *index) untying(b topology.Policy, others, queues []string) []Fix {
	loser, known := b, x.State.QueuePolicies != nil
	winner := x.namedPolicy(others[0])
	byB := 0
	for _, name := range queues {
		q := x.byName[name]
		known = known && q.hasPolicy && !slices.Contains(q.Targets(), name)
		if q.policy.Name == b.Name {
			byB++
		}
	}
	if x.trying || !known || byB > 0 && (byB < len(queues) || len(others) > 1) {
		return nil
	}
	if byB > 0 {
		winner, loser = b, winner
	}
	matched := 0
	for _, q := range x.queues {
		if x.Policies.Matches(loser, q.Queue.Queue) {
			matched++
		}
	}
	var out []Fix
	if len(queues) <= maxExcluded && matched > len(queues) {
		out = rewritten(excluding(loser, queues))
	}
	if len(others) == 1 {
		out = slices.Concat(out, rewriting(winner))
	}
	return choosing(out, "keeps what is in effect now, without %s: decide first whether that is meant", text.Name(loser.Name))
}
