package survey

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// sourced returns the queues to which messages come that did not come from the queue itself: by an
// exchange that is published to, by their name, or as dead letters of such queues. Messages of the
// others, such as a work queue and its retry queue that dead-letters to the exchange of the
// business, can only have come through an exchange that seems to have dead letters alone.
func (s *Survey) sourced() map[string]bool {
	out := map[string]bool{}
	var todo []string
	for _, q := range s.Queues {
		published := slices.ContainsFunc(q.Bindings, func(b topology.Binding) bool {
			e := s.exchanges[b.Source]
			return e != nil && !s.hasDeadLettersAlone(e)
		})
		if published || !s.isBound(q) && len(q.from) == 0 {
			todo = append(todo, q.Name)
		}
	}
	for ; len(todo) > 0; todo = todo[1:] {
		if q := s.queues[todo[0]]; !out[q.Name] {
			out[q.Name] = true
			todo = append(todo, q.Targets()...)
		}
	}
	return out
}

// setKnown notes which hops messages take that services are known to publish: through an exchange
// that is published to, or by the name of a queue, and from there as dead letters. The key of a
// binding of an exchange that seems to have dead letters alone tells only of messages that may
// come.
func (s *Survey) setKnown() {
	known := map[visit]bool{}
	var todo []visit
	add := func(v visit) {
		if !known[v] {
			known[v] = true
			todo = append(todo, v)
		}
	}
	for _, q := range s.Queues {
		if !s.isBound(q) {
			add(visit{q, Keys{Text: q.Name}})
		}
		for _, b := range q.Bindings {
			if e := s.exchanges[b.Source]; e != nil && !s.hasDeadLettersAlone(e) {
				for _, k := range s.keysThrough(b, map[string]bool{}) {
					add(visit{q, k})
				}
			}
		}
	}
	for ; len(todo) > 0; todo = todo[1:] {
		v := todo[0]
		for i := range v.queue.Hops {
			h := &v.queue.Hops[i]
			if h.Keys != v.keys && !v.queue.To.HasKey || h.Known {
				continue
			}
			h.Known = true
			for name, keys := range h.with {
				for _, k := range keys {
					add(visit{s.queues[name], k})
				}
			}
		}
	}
}

// isBound reports whether an exchange other than the default one leads to a queue.
func (s *Survey) isBound(q *Queue) bool {
	return slices.ContainsFunc(q.Bindings, func(b topology.Binding) bool { return s.exchanges[b.Source] != nil })
}

// hasDeadLettersAlone reports whether queues dead-letter to an exchange, and no other exchange that
// is published to leads to it.
func (s *Survey) hasDeadLettersAlone(e *Exchange) bool {
	return len(e.DeadLettersOf) > 0 && len(e.AlternateOf) == 0 && !s.isPublishedTo(e, map[string]bool{})
}
