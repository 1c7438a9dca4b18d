package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// copying adds the hazard copies-messages to the deletions of bindings whose messages a new binding
// leads to another queue. The new binding is made first, so that a message always has somewhere to
// go: what is published between the two steps goes to both queues.
//
// It compares bindings of one exchange that lead to queues, those that Prune deletes included.
// Which messages two bindings have in common is known for the types direct, topic, fanout and
// headers. Not covered are moves from one exchange to another, and those by way of bindings between
// exchanges.
//
// A successor gets its bindings from migrate, whose switch makes no copies: no plan moves them.
func copying(p *Plan) {
	created := map[string][]topology.Binding{} // by source
	for _, c := range p.Changes {
		if b, ok := c.After.(topology.Binding); ok && c.Action == Create && b.DestinationType == topology.ToQueue {
			created[b.Source] = append(created[b.Source], b)
		}
	}
	var w moves
	ending := map[string][]topology.Binding{} // the new bindings, by the queue whose bindings go
	for i, c := range p.Changes {
		b, isBinding := c.Before.(topology.Binding)
		if !isBinding || b.DestinationType != topology.ToQueue || !slices.Contains(c.Hazards, topology.DropsRouting) ||
			len(created[b.Source]) == 0 {
			continue
		}
		if w.now.present == nil {
			w = moves{p.present().after(nil), p.present().after(p.Changes), map[string]endings{}}
		}
		var copies []topology.Binding
		for _, made := range created[b.Source] {
			if made.Destination != b.Destination && w.copies(b, made) {
				copies = append(copies, made)
			}
		}
		p.Changes[i].copying(copies)
		ending[b.Destination] = append(ending[b.Destination], copies...)
	}
	for i, c := range p.Changes {
		if c.Kind == topology.KindQueue && c.Action == Delete {
			p.Changes[i].copying(ending[c.Name])
		}
	}
}

// copying notes what a deletion copies: of a binding of a queue, or of the queue itself.
func (c *Change) copying(copies []topology.Binding) {
	if len(copies) == 0 {
		return
	}
	c.Copies, c.Hazards = copies, append(slices.Clone(c.Hazards), topology.CopiesMessages)
	c.Reason += "; " + c.CopiesText()
}

// CopiesText says which messages a deletion copies, and when. It is empty if it copies none.
func (c Change) CopiesText() string {
	if len(c.Copies) == 0 {
		return ""
	}
	queue := c.Name
	if b, ok := c.Before.(topology.Binding); ok {
		queue = b.Destination
	}
	queues := text.Each(c.Copies, func(b topology.Binding) string { return text.Name(b.Destination) })
	slices.Sort(queues)
	names := text.Some(slices.Compact(queues))
	return fmt.Sprintf("messages that also match the new bindings of %s are copied between two steps: from the creation of those bindings until this deletion, they go to %s and %s",
		names, text.Name(queue), names)
}

// moves knows the bindings before and after the changes of a plan.
type moves struct {
	now, then world
	sources   map[string]endings // by exchange
}

// endings are the bindings of an exchange, by the queue to which they lead.
type endings struct {
	exchangeType string
	now, then    map[string][]topology.Binding
}

// copies reports whether a message can go to the queues of both bindings only because gone is
// deleted after made is created: it goes to the queue of made for the first time then, and to that
// of gone for the last.
func (w moves) copies(gone, made topology.Binding) bool {
	s, known := w.sources[gone.Source]
	if !known {
		e, _ := w.now.find(topology.KindExchange, gone.Source).(topology.Exchange)
		s = endings{e.Type, byQueue(w.now.bindings(e, target{})), byQueue(w.then.bindings(e, target{}))}
		w.sources[gone.Source] = s
	}
	others := s.now[made.Destination]
	if w.then.find(topology.KindQueue, gone.Destination) != nil { // a deleted queue keeps no binding
		others = slices.Concat(others, s.then[gone.Destination])
	}
	return share(s.exchangeType, gone, made, others)
}

// byQueue returns the bindings that lead to queues.
func byQueue(bindings []topology.Binding) map[string][]topology.Binding {
	out := map[string][]topology.Binding{}
	for _, b := range bindings {
		if b.DestinationType == topology.ToQueue {
			out[b.Destination] = append(out[b.Destination], b)
		}
	}
	return out
}
