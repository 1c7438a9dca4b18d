package survey

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Basis is what tells that a queue keeps dead letters.
type Basis string

// The bases, the surest first.
const (
	// ByMark: dlxctl made the queue, or binds it, as a dead-letter queue of a topology.
	ByMark Basis = "topology"
	// ByDeadLettering: other queues dead-letter to it.
	ByDeadLettering Basis = "dead-lettering"
	// ByName: its name says so, as with the error queues of frameworks, to which consumers publish.
	ByName Basis = "name"
)

// Keeping is a dead-letter queue, with whose failed messages it keeps.
type Keeping struct {
	Queue string
	By    Basis
	// Topology is the topology of a queue that dlxctl made or binds. Empty: it is of none.
	Topology string
	// Of are the work queues, sorted. Empty: the objects do not tell.
	Of []string
}

// DeadLetterQueues returns the dead-letter queues, sorted by name.
func (s *Survey) DeadLetterQueues() []Keeping {
	var out []Keeping
	for _, q := range s.Queues {
		if q.Role != topology.RoleDeadLetter {
			continue
		}
		k := Keeping{Queue: q.Name, By: ByDeadLettering}
		switch owner, marked := topology.Owner(q.Arguments); {
		case q.Made:
			k.By, k.Topology, k.Of = ByMark, DeskOwner(owner), nil
			for _, b := range q.Bindings {
				of, isMarked := topology.Owner(b.Arguments)
				work, addressed := strings.CutPrefix(b.Key, topology.AddressKey(""))
				if !isMarked || !addressed || b.Source != topology.DeadLetterName(of) {
					continue
				}
				if !marked {
					k.Topology = of
				}
				if work != q.Name { // the shared dead-letter queue of queues that a pattern covers
					k.Of = append(k.Of, work)
				}
			}
		case len(q.FailedFrom()) == 0:
			k.By, k.Of = ByName, s.namesakes(q.Name)
		default:
			k.Of = s.workBefore(q)
		}
		slices.Sort(k.Of)
		k.Of = slices.Compact(k.Of)
		out = append(out, k)
	}
	return out
}

// Keeps reports whether a queue is one of the dead-letter queues.
func (s *Survey) Keeps(queue string) bool {
	q := s.queues[queue]
	return q != nil && q.Role == topology.RoleDeadLetter
}

// workBefore returns the work queues whose dead letters come to a queue, some of them through
// queues in which they wait.
func (s *Survey) workBefore(q *Queue) []string {
	found, seen := map[string]bool{}, map[string]bool{q.Name: true}
	for todo := slices.Clone(q.From); len(todo) > 0; todo = todo[1:] {
		from := s.queues[todo[0]]
		switch {
		case seen[from.Name]:
		case from.Waits():
			todo = append(todo, from.From...)
		case from.Role == topology.RoleWork:
			found[from.Name] = true
		}
		seen[from.Name] = true
	}
	return slices.Collect(maps.Keys(found))
}

// namesakes returns the work queues whose name is that of a dead-letter queue without its last
// word, such as orders of orders_error.
func (s *Survey) namesakes(name string) (out []string) {
	for _, q := range s.Queues {
		rest, ok := strings.CutPrefix(name, q.Name)
		word := strings.ToLower(strings.TrimLeft(rest, "._-:"))
		if ok && q.Role == topology.RoleWork && slices.Contains(
			[]string{"error", "errors", "failed", "failures", "dead", "dlq", "dead-letter", "deadletter", "poison"}, word) {
			out = append(out, q.Name)
		}
	}
	return out
}
