package survey

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// Verdict is whether dead letters reach a queue.
type Verdict int

// The verdicts.
const (
	// Routed: all of them reach a queue.
	Routed Verdict = iota
	// Nowhere: none of them does.
	Nowhere
	// Partly: some keys do, others do not.
	Partly
	// Unknown: the objects do not tell.
	Unknown
)

// Hop is where the dead letters of a queue go that have certain keys.
type Hop struct {
	Keys    Keys
	Verdict Verdict
	// Sample is a key that reaches no queue, if there is one, and Lost and Stuck are those of its
	// [route.Result]. The rest of that is not kept: there are as many as queues.
	Sample      string
	Lost, Stuck []route.End
	// Queues are the queues that some of them reach, sorted.
	Queues []string
	// Known is true if messages of services are known to take it.
	Known bool
	// with are the keys of those that reach a queue.
	with map[string][]Keys
}

// Loses reports whether messages of a hop are lost there and then, for all that the objects tell.
func (h Hop) Loses() bool { return h.Verdict == Nowhere && len(h.Lost) > 0 }

// Why says why messages of a hop are lost.
func (h Hop) Why() string {
	ends := slices.Concat(h.Lost, h.Stuck)
	if len(ends) == 0 {
		return "no binding matches"
	}
	return strings.ReplaceAll(ends[0].String(), AnyWord, "…")
}

// Targets are the queues that dead letters of the queue reach next, sorted.
func (q *Queue) Targets() []string {
	reached := map[string]bool{}
	for _, h := range q.Hops {
		for _, name := range h.Queues {
			reached[name] = true
		}
	}
	return slices.Sorted(maps.Keys(reached))
}

// AllLost reports whether no dead letter of the queue reaches a queue.
func (q *Queue) AllLost() bool {
	return len(q.Hops) > 0 && !slices.ContainsFunc(q.Hops, func(h Hop) bool { return h.Verdict != Nowhere })
}

// ByKey reports whether dead letters go to the queue that their key names, whatever it is.
func (q *Queue) ByKey() bool {
	return q.To.Exchange == "" && slices.ContainsFunc(q.Hops, func(h Hop) bool { return h.Keys.Pattern })
}

// Onward are the queues to which dead letters of a queue go on from the next one, sorted.
func (s *Survey) Onward(from, through *Queue) []string {
	reached := map[string]bool{}
	for _, h := range from.Hops {
		for _, k := range h.with[through.Name] {
			for _, next := range through.Hops {
				if next.Keys != k && !through.To.HasKey {
					continue
				}
				for _, name := range next.Queues {
					reached[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(reached))
}

// maxArrivals is how many sets of keys are followed for a queue. What has more is unknown.
const maxArrivals = 4096

// visit is a queue and keys of messages that come to it.
type visit struct {
	queue *Queue
	keys  Keys
}

// computeArrivals computes with which keys messages come to each queue, by bindings and by
// dead-lettering, and where the dead letters of each queue go. A dead-letter exchange routes only
// dead letters, whose keys are known: a pattern of its bindings says nothing more, unless another
// exchange leads to it, or messages can have no other source; see sourced. Messages without any way
// but the default exchange have the name of their queue as their key.
func (s *Survey) computeArrivals() {
	var todo []visit
	add := func(q *Queue, k Keys) {
		if !q.arrived[k] && len(q.Arrivals) < maxArrivals {
			q.arrived[k] = true
			q.Arrivals = append(q.Arrivals, k)
			todo = append(todo, visit{q, k})
		}
	}
	work := func() {
		for len(todo) > 0 {
			v := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !v.queue.DeadLetters || v.queue.To.HasKey && len(v.queue.Hops) > 0 {
				continue
			}
			h := s.hop(v.queue, v.keys)
			v.queue.Hops = append(v.queue.Hops, h)
			for _, name := range h.Queues {
				target := s.queues[name]
				if name != v.queue.Name {
					target.from[v.queue.Name] = true
				}
				for _, k := range h.with[name] {
					add(target, k)
				}
			}
		}
	}
	guessed := map[string][]visit{} // by exchange
	for _, q := range s.Queues {
		if !s.isBound(q) {
			add(q, Keys{Text: q.Name})
		}
		for _, b := range q.Bindings {
			for _, k := range s.keysThrough(b, map[string]bool{}) {
				if k.Pattern && s.hasDeadLettersAlone(s.exchanges[b.Source]) {
					guessed[b.Source] = append(guessed[b.Source], visit{q, k})
				} else {
					add(q, k)
				}
			}
		}
		if q.DeadLetters && q.To.HasKey { // whatever comes, it leaves with this key
			todo = append(todo, visit{q, Keys{Text: q.To.Key}})
		}
	}
	work()
	sourced := s.sourced()
	var more []visit
	for _, exchange := range slices.Sorted(maps.Keys(guessed)) {
		published := slices.ContainsFunc(guessed[exchange], func(v visit) bool { return !sourced[v.queue.Name] })
		for _, v := range guessed[exchange] {
			if published || len(v.queue.Arrivals) == 0 {
				more = append(more, v)
			}
		}
	}
	for _, v := range more {
		add(v.queue, v.keys)
	}
	work()
	var byName []*Queue
	for _, q := range s.Queues {
		if len(q.Arrivals) == 0 {
			byName = append(byName, q)
		}
	}
	for _, q := range byName {
		add(q, Keys{Text: q.Name})
	}
	work()
}

func (s *Survey) keysThrough(b topology.Binding, seen map[string]bool) []Keys {
	e := s.exchanges[b.Source]
	switch {
	case e == nil:
		return nil
	case e.Type == topology.Direct:
		return []Keys{{Text: b.Key}}
	case e.Type == topology.Topic && !IsPattern(b.Key):
		return []Keys{{Text: b.Key}}
	case e.Type == topology.Topic && b.Key != "#":
		return []Keys{{b.Key, true}}
	}
	if seen[e.Name] {
		return nil
	}
	seen[e.Name] = true
	var out []Keys
	for _, in := range e.In {
		out = append(out, s.keysThrough(in, seen)...)
	}
	if len(out) == 0 || len(e.AlternateOf) > 0 || e.Type == topology.Topic {
		out = append(out, AnyKey())
	}
	return out
}

// hop returns where dead letters of a queue go, of messages with these keys.
func (s *Survey) hop(q *Queue, k Keys) Hop {
	if q.To.HasKey {
		k = Keys{Text: q.To.Key}
	}
	h := Hop{Keys: k, with: map[string][]Keys{}}
	var some, none bool
	var reached []string
	look := func(sample string) {
		result := s.Router.DeadLetter(q.Name, route.Message{Keys: []string{sample}}, route.Rejected)
		reached = append(reached, result.Queues...)
		switch {
		case len(result.Queues) > 0:
			some = true
		case s.undecided(result):
			h.Verdict = Unknown
		default:
			if !none {
				h.Sample, h.Lost, h.Stuck = sample, result.Lost, result.Stuck
			}
			none = true
		}
	}
	for _, sample := range k.Samples() {
		look(sample)
	}
	if k.Pattern {
		for _, inner := range s.match(q.To.Exchange, k, none, h.with) {
			for _, sample := range inner.Samples() {
				look(sample)
			}
		}
		some = some || len(h.with) > 0
	}
	for _, name := range reached {
		if len(h.with[name]) == 0 {
			h.with[name] = []Keys{k}
		}
	}
	switch {
	case h.Verdict == Unknown:
	case some && none:
		h.Verdict = Partly
	case none:
		h.Verdict = Nowhere
	}
	h.Queues = slices.Sorted(maps.Keys(h.with))
	return h
}

// undecided reports whether a message that reaches no queue may reach one after all: the headers
// of messages are not known, and neither is what exchanges of plugins do.
func (s *Survey) undecided(result route.Result) bool {
	if len(result.Unknown) > 0 {
		return true
	}
	return slices.ContainsFunc(slices.Concat(result.Lost, result.Stuck), func(end route.End) bool {
		e := s.exchanges[end.Exchange]
		return end.Cause == route.NoBinding && e != nil && e.Type == topology.Headers && len(e.Out) > 0
	})
}

// match adds the queues that an exchange leads to for some keys of a set, each with these: the
// queues behind bindings whose key or pattern has a key in common with it, and behind alternate
// exchanges if asked for. It returns the keys that a binding takes to another exchange, or to a
// queue that does not exist: an alternate exchange does not get them, and they may be lost there.
func (s *Survey) match(exchange string, k Keys, alternates bool, reached map[string][]Keys) (inner []Keys) {
	if exchange == "" {
		for _, q := range s.Queues {
			if k.matches(q.Name) {
				reached[q.Name] = []Keys{{Text: q.Name}}
			}
		}
		return nil
	}
	type step struct {
		exchange *Exchange
		keys     Keys
	}
	seen := map[step]bool{}
	var walk func(step)
	walk = func(at step) {
		if at.exchange == nil || seen[at] {
			return
		}
		seen[at] = true
		for _, b := range at.exchange.sharing(at.keys) {
			through := at.exchange.narrowed(at.keys, b.Key)
			isQueue := b.DestinationType == topology.ToQueue && s.queues[b.Destination] != nil
			if !isQueue && !slices.Contains(inner, through) {
				inner = append(inner, through)
			}
			if b.DestinationType == topology.ToExchange {
				walk(step{s.exchanges[b.Destination], through})
			} else if isQueue && !slices.Contains(reached[b.Destination], through) {
				reached[b.Destination] = append(reached[b.Destination], through)
			}
		}
		if at.exchange.HasAlternate && alternates {
			walk(step{s.exchanges[at.exchange.Alternate], at.keys})
		}
	}
	walk(step{s.exchanges[exchange], k})
	return inner
}
