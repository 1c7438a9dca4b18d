package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// comingBack blocks what lets messages of a delay come back to it once they are due. Such a message
// still has the header by which it is due, so that it would go round without end, and each round
// would bring its queues another copy.
//
// It follows bindings, alternate exchanges and the other delays of the file, as they are once the
// plan is carried out. What a queue dead-letters, and what a program publishes again, it does not
// follow: people decide about that.
//
// Where the plan creates the exchange of the delay, that creation is blocked, else the creations
// without which there is no such way. If the way is there already, the exchange is blocked as it
// is: a plan without a blocked change would say that all is well.
func comingBack(p *Plan, delays []topology.Delay) {
	for _, d := range delays {
		for {
			way := p.present().after(p.Changes).comesBack(d, delays)
			if len(way) == 0 || !p.blockWay(d, way) {
				break
			}
		}
	}
	if len(delays) > 0 {
		order(p.Changes)
	}
}

// blockWay blocks the changes that make a way by which messages come back to a delay. It reports
// false if there is none, and adds a change that is blocked.
func (p *Plan) blockWay(d topology.Delay, way []leg) bool {
	reason := fmt.Sprintf("messages of the delay %s that are due can come back to it, each again and again: %s; remove one of these steps, or let the delay publish to another exchange (to)",
		text.Name(d.Name), strings.Join(text.Each(way, func(l leg) string { return l.text }), ", then "))
	key := topology.Key{Kind: topology.KindExchange, Name: d.Name}
	made := func(blocks func(Change) bool) (found bool) {
		for i, c := range p.Changes {
			if c.Action != Blocked && c.After != nil && blocks(c) {
				p.Changes[i] = Change{
					Action: Blocked, Kind: c.Kind, Name: c.Name, Before: c.Before, After: c.After,
					Label: c.Label, Reason: reason, ComesBack: true,
				}
				found = true
			}
		}
		return found
	}
	if made(func(c Change) bool { return c.key() == key }) || made(func(c Change) bool {
		return slices.ContainsFunc(way, func(l leg) bool { return l.object != nil && l.object.ID() == c.After.ID() })
	}) {
		return true
	}
	if slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action == Blocked && c.key() == key }) {
		return false
	}
	exchange := p.present().after(p.Changes).find(topology.KindExchange, d.Name)
	p.Changes = append(p.Changes, Change{
		Action: Blocked, Kind: key.Kind, Name: key.Name, Before: exchange, After: exchange,
		Label: topology.Label{Role: topology.RoleFailed, Delay: d.Name}, Reason: reason, ComesBack: true,
	})
	return false
}

// leg is a step of a way.
type leg struct {
	text string
	// object is the binding, or the exchange whose alternate exchange gets the message. Nil: a delay
	// publishes it.
	object topology.Object
}

// place is where a message may be: in an exchange, by some legs.
type place struct {
	exchange string
	back     bool // it is in a queue of the delay from which it came
	way      []leg
	// taken are the patterns of the bindings on the way: a key of the message matches each. missed
	// are the exchanges on the way of which no binding matches a key.
	taken, missed []string
}

// id is the same for places from which a message can go on alike.
func (p place) id() string {
	taken, missed := slices.Clone(p.taken), slices.Clone(p.missed)
	slices.Sort(taken)
	slices.Sort(missed)
	return strings.Join([]string{
		p.exchange, strings.Join(slices.Compact(taken), "\x00"), strings.Join(slices.Compact(missed), "\x00"),
	}, "\x00\x00")
}

// mostPlaces limits the search with keys. A search that reaches it has found a way.
const mostPlaces = 10000

// comesBack returns a way by which some message of a delay comes back to a queue that is read for
// it, the shortest one. It is empty if no message can take any.
//
// Which messages take a binding is decided for direct, topic and fanout exchanges. A message may
// have several keys, as CC stays, so that it can match any bindings one after the other. Only an
// alternate exchange, which gets what no binding matches, rules keys out. The headers of a message
// are assumed to match, as far as a binding can match at all, and so is what an exchange of a
// plugin does.
func (w world) comesBack(d topology.Delay, delays []topology.Delay) []leg {
	s := search{world: w, delay: d, read: map[string]topology.Delay{}}
	for _, x := range delays {
		for _, queue := range x.Queues() {
			s.read[queue] = x
		}
	}
	way, _ := s.run(func(p place) string { return p.exchange }, func(place) bool { return true }, math.MaxInt)
	if len(way) == 0 {
		return nil
	}
	if exact, ended := s.run(place.id, w.possible, mostPlaces); ended {
		return exact
	}
	return way
}

// search looks for a way by which messages come back to a delay.
type search struct {
	world

	delay topology.Delay
	read  map[string]topology.Delay // by the queues that the processor reads for them
}

// run goes on from place to place, each id once, as far as is possible. It reports false if there
// are more than most.
func (s search) run(id func(place) string, possible func(place) bool, most int) (way []leg, ended bool) {
	todo := []place{{exchange: s.delay.To}}
	seen := map[string]bool{id(todo[0]): true}
	for ; len(todo) > 0; todo = todo[1:] {
		if len(seen) > most {
			return nil, false
		}
		for _, next := range s.from(todo[0]) {
			if next.back && possible(next) {
				return next.way, true
			}
			if !next.back && !seen[id(next)] {
				seen[id(next)] = true
				todo = append(todo, next)
			}
		}
	}
	return nil, true
}

// from returns the places to which a message goes from one.
func (s search) from(at place) (out []place) {
	e, exists := s.find(topology.KindExchange, at.exchange).(topology.Exchange)
	if !exists {
		return nil
	}
	bindings := s.living(e)
	for _, b := range bindings {
		x, read := s.read[b.Destination]
		read = read && b.DestinationType == topology.ToQueue
		if neverMatches(e, b) || b.DestinationType == topology.ToQueue && !read {
			continue
		}
		next := at
		next.exchange = b.Destination
		if pattern, keyed := patternOf(e, b); keyed {
			next.taken = append(slices.Clip(at.taken), pattern)
		}
		if b.Source != x.Name && b.Source != x.Due { // else its exchange is the last of the way already
			next.way = append(slices.Clip(next.way), leg{topology.Printable(b.String()), b})
		}
		if read {
			next.exchange, next.back = x.To, x.Name == s.delay.Name
		}
		if read && !next.back {
			next.way = append(slices.Clip(next.way), leg{
				text: fmt.Sprintf("the delay %s publishes to %s", text.Name(x.Name), text.Name(x.To)),
			})
		}
		out = append(out, next)
	}
	always := func(b topology.Binding) bool { return alwaysMatches(e, b) }
	if name, ok := s.alternate(e); ok && !slices.ContainsFunc(bindings, always) {
		next := at
		next.exchange, next.missed = name, append(slices.Clip(at.missed), e.Name)
		next.way = append(slices.Clip(at.way), leg{
			fmt.Sprintf("%s -> exchange:%s (its alternate exchange)", text.Name(e.Name), text.Name(name)), e,
		})
		out = append(out, next)
	}
	return out
}

// living returns the bindings of an exchange whose destinations exist.
func (w world) living(e topology.Exchange) []topology.Binding {
	return slices.DeleteFunc(w.bindings(e, target{}), func(b topology.Binding) bool {
		return w.find(topology.Kind(b.DestinationType), b.Destination) == nil
	})
}

// mostPatterns is how many bindings of a topic exchange are compared at once. Where there are more,
// a key is assumed to exist that matches none of them.
const mostPatterns = 100

// possible reports whether a message can have keys with which it comes to a place.
func (w world) possible(at place) bool {
	var missed []topology.Binding
	for _, name := range at.missed {
		e, _ := w.find(topology.KindExchange, name).(topology.Exchange)
		for _, b := range w.living(e) {
			if pattern, keyed := patternOf(e, b); keyed {
				missed = append(missed, topology.Binding{Key: pattern})
			}
		}
	}
	if len(missed) == 0 {
		return true
	}
	for _, pattern := range append([]string{"#"}, at.taken...) { // each message has a key
		others := slices.DeleteFunc(slices.Clone(missed), func(o topology.Binding) bool {
			return !shareKey(pattern, o.Key, nil)
		})
		if len(others) <= mostPatterns && !shareKey(pattern, pattern, others) {
			return false
		}
	}
	return true
}

// patternOf returns the pattern of a topic exchange that keys must match for a binding. It reports
// false if keys do not decide.
func patternOf(e topology.Exchange, b topology.Binding) (string, bool) {
	switch e.Type {
	case topology.Topic:
		return b.Key, true
	case topology.Direct:
		words := wordsOf(b.Key)
		for i, word := range words {
			if word == "#" || word == "*" {
				words[i] = "\x00" + word // it is a word as any other there
			}
		}
		return strings.Join(words, "."), true
	default:
		return "", false
	}
}

// neverMatches reports whether no message matches a binding.
func neverMatches(e topology.Exchange, b topology.Binding) bool {
	return e.Type == topology.Headers && len(fewestHeaders(b)) == 0
}

// alwaysMatches reports whether each message matches a binding.
func alwaysMatches(e topology.Exchange, b topology.Binding) bool {
	headers, anyMatches := comparedHeaders(b)
	return e.Type == topology.Fanout || e.Type == topology.Topic && b.Key == "#" ||
		e.Type == topology.Headers && !anyMatches && len(headers) == 0
}
