package plan

import (
	"fmt"
	"maps"
	"slices"
	"sync"

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
// Until its migration is cut over, a successor gets its bindings from migrate, whose switch makes
// no copies. A key that the file moves to it has no queue until then, which the deletion says.
func copying(p *Plan, exchanges []topology.Exchange) {
	created := map[string][]topology.Binding{} // by source
	for _, c := range p.Changes {
		if b, ok := c.After.(topology.Binding); ok && c.Action == Create && b.DestinationType == topology.ToQueue {
			created[b.Source] = append(created[b.Source], b)
		}
	}
	types := byName(exchanges, func(e topology.Exchange) string { return e.Name })
	var w moves
	ending := map[string][]topology.Binding{} // the new bindings, by the queue whose bindings go
	for i, c := range p.Changes {
		b, isBinding := c.Before.(topology.Binding)
		if !isBinding || b.DestinationType != topology.ToQueue || !slices.Contains(c.Hazards, topology.DropsRouting) ||
			len(created[b.Source])+len(p.Withheld) == 0 {
			continue
		}
		for _, waits := range p.Withheld {
			if t := types[b.Source].Type; matchOf(t, waits) == matchOf(t, b) {
				p.Changes[i].Reason += fmt.Sprintf("; %s gets these messages only from 'dlxctl migrate'",
					text.Name(waits.Destination))
			}
		}
		if len(created[b.Source]) == 0 {
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

// stillBound warns of bindings of other clients that lead what a new binding matches to another
// queue of the file too, where the file has no binding for it: a key that has moved, or a fan-out
// on purpose. Apply keeps such a binding, so that the copies do not end, and of an external queue
// it is not even drift.
//
// It compares only bindings that match the same messages: a queue that gets all of them, such as
// one for an audit, is bound on purpose to what queues of the file get one by one.
func (r resolved) stillBound(changes []Change) []Warning {
	types := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	key := func(b topology.Binding) slotKey { return matchOf(types[b.Source].Type, b) }
	made, unbound := map[slotKey][]topology.Binding{}, map[string]bool{}
	for _, c := range changes {
		if b, is := c.Before.(topology.Binding); is && c.Action == Delete {
			unbound[b.Identity()] = true
		}
		if b, is := c.After.(topology.Binding); is && c.Action == Create && b.Label.Role == topology.RoleBusiness &&
			b.DestinationType == topology.ToQueue {
			made[key(b)] = append(made[key(b)], b)
		}
	}
	if len(made) == 0 {
		return nil // as a rule
	}
	listed := sync.OnceValue(r.listed)
	stays := filtered(r.bindings, func(b topology.Binding) bool {
		_, marked := topology.Owner(b.Arguments)
		return !marked && b.DestinationType == topology.ToQueue && len(made[key(b)]) > 0 && listed()[b.Destination] &&
			!unbound[b.Identity()]
	})
	if len(stays) == 0 {
		return nil
	}
	var pairs [][2]topology.Binding
	for _, b := range stays {
		for _, other := range made[key(b)] {
			pairs = append(pairs, [2]topology.Binding{b, other})
		}
	}
	return r.stillBoundWarnings(pairs, types)
}

// stillBoundWarnings are about pairs of a binding that stays and one that is made for the same
// messages, one warning for each queue of the former.
func (r resolved) stillBoundWarnings(pairs [][2]topology.Binding, types map[string]topology.Exchange) []Warning {
	// What a binding of the file leads to the queue anyway is no news, nor what comes to the other
	// queue today.
	now, then := byEnds(r.bindings), byEnds(r.want.Bindings)
	kept, to := map[string][]string{}, map[string][]string{} // by queue
	for _, pair := range pairs {
		b, made := pair[0], pair[1]
		others := slices.Concat(then[ends{b.Source, b.Destination}], now[ends{b.Source, made.Destination}])
		if made.Destination != b.Destination && share(types[b.Source].Type, b, made, others) {
			kept[b.Destination] = append(kept[b.Destination], b.String())
			to[b.Destination] = append(to[b.Destination], text.Name(made.Destination))
		}
	}
	var out []Warning
	for _, queue := range slices.Sorted(maps.Keys(kept)) {
		out = append(out, stillBoundWarning(queue, kept[queue], to[queue]))
	}
	return out
}

// stillBoundWarning is about bindings of a queue, and the queues that now get the same messages.
func stillBoundWarning(queue string, kept, to []string) Warning {
	slices.Sort(kept)
	slices.Sort(to)
	kept = slices.Compact(kept)
	many := func(one, many string) string { return text.Choose(len(kept), one, many) }
	return Warning{Name: topology.WarnStillBound, Text: fmt.Sprintf(
		"the %s %s, which another client made and the file does not have, %s: what %s goes to %s, and now to %s too. If it is to move, remove %s in that client and on the broker",
		many("binding", "bindings"), text.Some(kept), many("stays", "stay"), many("it matches", "they match"),
		text.Name(queue), text.Some(slices.Compact(to)), many("that binding", "those bindings"))}
}

// listed returns the queues whose bindings the file can list.
func (r resolved) listed() map[string]bool {
	works := byName(r.want.WorkQueues, func(w topology.WorkQueue) string { return w.Name })
	out := map[string]bool{}
	for _, q := range r.want.Queues {
		out[q.Name] = q.Label.Role == topology.RoleWork && works[q.Name].Match == ""
	}
	return out
}

// matchOf returns a key that is equal for bindings that match the same messages.
func matchOf(exchangeType string, b topology.Binding) slotKey {
	switch exchangeType {
	case topology.Fanout:
		return slotKey{b.Source, ""}
	case topology.Headers:
		return slotKey{b.Source, b.Arguments.Without(topology.ArgManagedBy).String()}
	default:
		return slotKey{b.Source, b.Key}
	}
}

// ends are the exchange and the queue that a binding connects.
type ends struct{ exchange, queue string }

// byEnds returns the bindings that lead to queues, by their ends.
func byEnds(bindings []topology.Binding) map[ends][]topology.Binding {
	out := map[ends][]topology.Binding{}
	for _, b := range bindings {
		if b.DestinationType == topology.ToQueue {
			at := ends{b.Source, b.Destination}
			out[at] = append(out[at], b)
		}
	}
	return out
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
