package audit

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// keys are routing keys of messages: one key, or those that a pattern of a topic exchange matches.
// What came through a fanout or headers exchange has any key: the pattern "#".
type keys struct {
	text    string
	pattern bool
}

// String gives the keys for people.
func (k keys) String() string {
	switch {
	case k.pattern && k.text == "#":
		return "any key"
	case k.text == "":
		return "an empty key"
	default:
		return "key " + k.text
	}
}

// anyKey are all keys.
func anyKey() keys { return keys{"#", true} }

// anyWord stands for a word that no binding names.
const anyWord = "any~word"

// samples gives keys of the set that decide for all others: words that no binding names, and as
// many of them as patterns tell apart.
func (k keys) samples() []string {
	if !k.pattern {
		return []string{k.text}
	}
	one := strings.Split(strings.ReplaceAll(k.text, "*", anyWord), ".")
	at := slices.Index(one, "#")
	if at < 0 {
		return []string{strings.Join(one, ".")}
	}
	var out []string
	for n := range 4 {
		var words []string
		for i, w := range one {
			switch {
			case i == at:
				words = append(words, slices.Repeat([]string{anyWord}, n)...)
			case w != "#":
				words = append(words, w)
			}
		}
		out = append(out, strings.Join(words, "."))
	}
	return out
}

// isPattern reports whether a key of a topic binding has a wildcard.
func isPattern(key string) bool {
	for word := range strings.SplitSeq(key, ".") {
		if word == "*" || word == "#" {
			return true
		}
	}
	return false
}

// overlap reports whether some key is matched by both patterns.
func overlap(a, b []string) bool {
	switch {
	case len(a) == 0 && len(b) == 0:
		return true
	case len(a) > 0 && a[0] == "#":
		return overlap(a[1:], b) || len(b) > 0 && overlap(a, b[1:])
	case len(b) > 0 && b[0] == "#":
		return overlap(b, a)
	case len(a) == 0 || len(b) == 0:
		return false
	}
	return (a[0] == b[0] || a[0] == "*" || b[0] == "*") && overlap(a[1:], b[1:])
}

// verdict is whether dead letters reach a queue.
type verdict int

const (
	routed verdict = iota
	lost
	partly  // some keys do, others do not
	unknown // the objects do not tell
)

// hop is where the dead letters of a queue go that have certain keys.
type hop struct {
	keys    keys
	verdict verdict
	// result is that of a key that is lost, if there is one.
	result route.Result
	// sample is the key of result.
	sample string
	// queues are the queues that some of them reach, sorted.
	queues []string
}

// maxArrivals is how many sets of keys are followed for a queue. What has more is unknown.
const maxArrivals = 4096

// visit is a queue and keys of messages that come to it.
type visit struct {
	queue *queue
	keys  keys
}

// arrive computes with which keys messages come to each queue, by bindings and as dead letters,
// and where the dead letters of each queue go. What a dead-letter exchange routes are dead letters,
// whose keys are known: a pattern of its bindings says nothing more. Messages without any way but
// the default exchange have the name of their queue as their key.
func (x *index) arrive() {
	var todo []visit
	add := func(q *queue, k keys) {
		if !q.arrived[k] && len(q.arrivals) < maxArrivals {
			q.arrived[k] = true
			q.arrivals = append(q.arrivals, k)
			todo = append(todo, visit{q, k})
		}
	}
	work := func() {
		for len(todo) > 0 {
			v := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !v.queue.deadLetters || v.queue.to.HasKey && len(v.queue.hops) > 0 {
				continue
			}
			h := x.hop(v.queue, v.keys)
			v.queue.hops = append(v.queue.hops, h)
			for _, name := range h.queues {
				target := x.byName[name]
				if name != v.queue.Name {
					target.from[v.queue.Name] = true
				}
				add(target, h.keys)
			}
		}
	}
	var guessed []visit
	for _, q := range x.queues {
		for _, b := range q.bindings {
			for _, k := range x.through(b, map[string]bool{}) {
				if e := x.exchange[b.Source]; k.pattern && len(e.deadLettersOf) > 0 {
					guessed = append(guessed, visit{q, k})
				} else {
					add(q, k)
				}
			}
		}
		if q.deadLetters && q.to.HasKey { // whatever comes, it leaves with this key
			todo = append(todo, visit{q, keys{text: q.to.Key}})
		}
	}
	work()
	guessed = slices.DeleteFunc(guessed, func(v visit) bool { return len(v.queue.arrivals) > 0 })
	for _, v := range guessed {
		add(v.queue, v.keys)
	}
	work()
	var byName []*queue
	for _, q := range x.queues {
		if len(q.arrivals) == 0 {
			byName = append(byName, q)
		}
	}
	for _, q := range byName {
		add(q, keys{text: q.Name})
	}
	work()
}

// through returns the keys of messages that pass a binding.
func (x *index) through(b topology.Binding, seen map[string]bool) []keys {
	e := x.exchange[b.Source]
	switch {
	case e == nil:
		return nil
	case e.Type == topology.Direct:
		return []keys{{text: b.Key}}
	case e.Type == topology.Topic && !isPattern(b.Key):
		return []keys{{text: b.Key}}
	case e.Type == topology.Topic && b.Key != "#":
		return []keys{{b.Key, true}}
	}
	if seen[e.Name] {
		return nil
	}
	seen[e.Name] = true
	var out []keys
	for _, in := range e.in {
		out = append(out, x.through(in, seen)...)
	}
	if len(out) == 0 || len(e.alternateOf) > 0 {
		out = append(out, anyKey())
	}
	return out
}

// hop returns where dead letters of a queue go, of messages with these keys.
func (x *index) hop(q *queue, k keys) hop {
	if q.to.HasKey {
		k = keys{text: q.to.Key}
	}
	h := hop{keys: k}
	reached := map[string]bool{}
	var some, none bool
	for _, sample := range k.samples() {
		result := x.router.DeadLetter(q.Name, route.Message{Keys: []string{sample}}, route.Rejected)
		for _, name := range result.Queues {
			reached[name] = true
		}
		switch {
		case len(result.Queues) > 0:
			some = true
		case x.undecided(result):
			h.verdict = unknown
		default:
			if !none {
				h.result, h.sample = result, sample
			}
			none = true
		}
	}
	if k.pattern && none && x.exchange[q.to.Exchange] != nil {
		for _, name := range x.matchingKeys(q.to.Exchange, k) {
			reached[name], some = true, true
		}
	}
	switch {
	case h.verdict == unknown:
	case some && none:
		h.verdict = partly
	case none:
		h.verdict = lost
	}
	h.queues = sortedNames(reached)
	return h
}

// undecided reports whether a message that reaches no queue may reach one after all: the headers
// of messages are not known, and neither is what exchanges of plugins do.
func (x *index) undecided(result route.Result) bool {
	if len(result.Unknown) > 0 {
		return true
	}
	return slices.ContainsFunc(slices.Concat(result.Lost, result.Stuck), func(end route.End) bool {
		e := x.exchange[end.Exchange]
		return end.Cause == route.NoBinding && e != nil && e.Type == topology.Headers && len(e.out) > 0
	})
}

// matchingKeys returns the queues that an exchange leads to for some keys of a set: those behind
// bindings whose key or pattern has a key in common with it.
func (x *index) matchingKeys(exchange string, k keys) []string {
	reached := map[string]bool{}
	if exchange == "" {
		for _, q := range x.queues {
			if overlap(strings.Split(k.text, "."), strings.Split(q.Name, ".")) {
				reached[q.Name] = true
			}
		}
		return sortedNames(reached)
	}
	x.behind(x.exchange[exchange], k, map[string]bool{}, reached)
	return sortedNames(reached)
}

// behind adds the queues that an exchange leads to for some keys of a set.
func (x *index) behind(e *exchange, k keys, seen, reached map[string]bool) {
	if e == nil || seen[e.Name] {
		return
	}
	seen[e.Name] = true
	for _, i := range e.sharing(k) {
		b := e.out[i]
		if b.DestinationType == topology.ToExchange {
			x.behind(x.exchange[b.Destination], k, seen, reached)
		} else if x.byName[b.Destination] != nil {
			reached[b.Destination] = true
		}
	}
	if e.hasAlternate {
		x.behind(x.exchange[e.alternate], k, seen, reached)
	}
}

// words splits a key or a pattern at its dots. The empty one has no words.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// sharing returns the bindings of the exchange that let a key of a set through.
func (e *exchange) sharing(k keys) []int {
	if e.Type != topology.Direct && e.Type != topology.Topic {
		all := make([]int, len(e.out))
		for i := range all {
			all[i] = i
		}
		return all
	}
	if e.byFirst == nil {
		e.indexWords()
	}
	pattern := words(k.text)
	candidates := e.any
	switch {
	case len(pattern) == 0:
	case pattern[0] == "#" || pattern[0] == "*":
		candidates = make([]int, len(e.out))
		for i := range candidates {
			candidates[i] = i
		}
	default:
		candidates = slices.Concat(candidates, e.byFirst[pattern[0]])
	}
	var out []int
	for _, i := range candidates {
		// A wildcard in a binding of a direct exchange is a word like others.
		if (e.Type == topology.Topic || !isPattern(e.out[i].Key)) && overlap(pattern, e.words[i]) {
			out = append(out, i)
		}
	}
	return out
}

// indexWords sorts the bindings of an exchange by the first word of their key: few of many can
// have a key in common with a pattern.
func (e *exchange) indexWords() {
	e.byFirst = map[string][]int{}
	e.words = make([][]string, len(e.out))
	for i, b := range e.out {
		e.words[i] = words(b.Key)
		if len(e.words[i]) == 0 || e.words[i][0] == "#" || e.words[i][0] == "*" {
			e.any = append(e.any, i)
		} else {
			e.byFirst[e.words[i][0]] = append(e.byFirst[e.words[i][0]], i)
		}
	}
}

func sortedNames(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
