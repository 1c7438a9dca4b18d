package audit

import (
	"cmp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// index is a survey of a virtual host with the facts that rules share, each computed once.
type index struct {
	*survey.Survey
	in Input

	queues []*queue // sorted by name
	byName map[string]*queue
	// matching is, by queue, the policies that match it, the one with the highest priority first.
	matching map[string][]topology.Policy
	// keyless are the exchanges to which a queue dead-letters without a key of its own.
	keyless map[string]bool
	// trying says that a fix is tried: the rules propose none.
	trying bool
}

// queue is a queue with what an audit knows about it.
type queue struct {
	*survey.Queue
	policy      topology.Policy
	hasPolicy   bool
	operator    topology.Policy
	hasOperator bool
}

type exchange = survey.Exchange

// newIndex computes the facts of a virtual host. It does not change the input.
func newIndex(in Input) *index {
	x := &index{
		Survey: survey.New(in.State), in: in, byName: map[string]*queue{}, matching: map[string][]topology.Policy{},
		keyless: map[string]bool{},
	}
	for _, surveyed := range x.Queues {
		q := &queue{Queue: surveyed}
		q.policy, q.hasPolicy = x.Policies.For(q.Queue.Queue)
		q.operator, q.hasOperator = x.Policies.Operator(q.Queue.Queue)
		x.queues, x.byName[q.Name] = append(x.queues, q), q
		if q.DeadLetters && !q.To.HasKey {
			x.keyless[q.To.Exchange] = true
		}
		for _, p := range x.State.Have.Policies {
			if x.Policies.Matches(p, q.Queue.Queue) {
				x.matching[q.Name] = append(x.matching[q.Name], p)
			}
		}
		slices.SortStableFunc(x.matching[q.Name], func(a, b topology.Policy) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
		})
	}
	return x
}

// number returns an argument in effect that is a number.
func (q *queue) number(argument string) (int64, bool) {
	n, ok := q.Args[argument].(int64)
	return n, ok
}

// argument says where the value of an argument in effect comes from, for evidence:
// "x-message-ttl 5000 (argument)".
func (q *queue) argument(name string) string {
	value := describe(name, q.Args[name])
	if own, ok := q.Arguments[name]; ok && topology.FormatValue(own) == topology.FormatValue(q.Args[name]) {
		return name + " " + value + " (argument)"
	}
	key := topology.PolicyKey(name)
	for _, p := range []struct {
		topology.Policy
		kind string
		ok   bool
	}{{q.policy, "policy", q.hasPolicy}, {q.operator, "operator policy", q.hasOperator}} {
		if v, set := p.Definition[key]; p.ok && set && topology.FormatValue(v) == topology.FormatValue(q.Args[name]) {
			return key + " " + value + " (" + p.kind + " " + p.Name + ")"
		}
	}
	return name + " " + value
}
