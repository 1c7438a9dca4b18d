package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// share reports whether an exchange of a type has messages that match both a and b, and none of the
// others. Of an exchange type that dlxctl does not know it reports false.
func share(exchangeType string, a, b topology.Binding, others []topology.Binding) bool {
	switch exchangeType {
	case topology.Fanout:
		return len(others) == 0
	case topology.Direct:
		return a.Key == b.Key && !slices.ContainsFunc(others, func(o topology.Binding) bool { return o.Key == a.Key })
	case topology.Topic:
		return shareKey(a.Key, b.Key, others)
	case topology.Headers:
		return shareHeaders(a, b, others)
	default:
		return false
	}
}

// mostSteps limits the search of shareKey. A search that reaches it counts the messages of both
// patterns as shared.
const mostSteps = 10000

// shareKey reports whether a routing key matches both patterns, and none of the others. It tries
// keys word by word, in the words of the patterns and one that none of them has. Two keys after
// which all patterns stand alike are one.
func shareKey(a, b string, others []topology.Binding) bool {
	patterns := [][]string{wordsOf(a), wordsOf(b)}
	for _, o := range others {
		patterns = append(patterns, wordsOf(o.Key))
	}
	const anyOther = "\x00"
	words := []string{anyOther}
	for _, p := range patterns {
		words = append(words, p...)
	}
	slices.Sort(words)
	words = slices.Compact(words)

	start := make(standing, len(patterns))
	for i, p := range patterns {
		start[i] = reach(p, nil, 0)
	}
	seen, next := map[string]bool{start.id(): true}, []standing{start}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if at.shared(patterns) || len(seen) > mostSteps {
			return true
		}
		for _, word := range words {
			then := at.step(patterns, word)
			if id := then.id(); len(then[0]) > 0 && len(then[1]) > 0 && !seen[id] {
				seen[id] = true
				next = append(next, then)
			}
		}
	}
	return false
}

// wordsOf returns the words of a pattern. Only the empty pattern has none.
func wordsOf(pattern string) []string {
	if pattern == "" {
		return nil
	}
	return strings.Split(pattern, ".")
}

// standing is how far a key has come in each pattern: the numbers of words that the rest of the key
// may begin at, sorted. A pattern that cannot match any more has none.
type standing [][]int

// id tells standings apart.
func (s standing) id() string {
	var out strings.Builder
	for _, places := range s {
		for _, place := range places {
			out.WriteRune(rune(place))
		}
		out.WriteByte(0xff)
	}
	return out.String()
}

// shared reports whether the key, as it is, matches the first two patterns and no other.
func (s standing) shared(patterns [][]string) bool {
	for i, places := range s {
		if slices.Contains(places, len(patterns[i])) != (i < 2) {
			return false
		}
	}
	return true
}

// step returns the standing after one more word.
func (s standing) step(patterns [][]string, word string) standing {
	out := make(standing, len(s))
	for i, places := range s {
		p := patterns[i]
		for _, at := range places {
			switch {
			case at == len(p):
			case p[at] == "#":
				out[i] = reach(p, out[i], at)
			case p[at] == "*", p[at] == word:
				out[i] = reach(p, out[i], at+1)
			}
		}
		slices.Sort(out[i])
		out[i] = slices.Compact(out[i])
	}
	return out
}

// reach adds a place of a pattern, and those behind it that need no word.
func reach(pattern []string, places []int, at int) []int {
	places = append(places, at)
	for ; at < len(pattern) && pattern[at] == "#"; at++ {
		places = append(places, at+1)
	}
	return places
}

// shareHeaders reports whether a message can have headers that match both bindings, and none of the
// others. It tries the messages with the fewest headers: every other message has all headers of one
// of them, and thus matches at least the same bindings.
func shareHeaders(a, b topology.Binding, others []topology.Binding) bool {
	for _, one := range fewestHeaders(a) {
		for _, two := range fewestHeaders(b) {
			message, ok := together(one, two)
			if ok && !slices.ContainsFunc(others, func(o topology.Binding) bool { return matchesHeaders(o, message) }) {
				return true
			}
		}
	}
	return false
}

// comparedHeaders returns what a headers binding compares. Names that begin with x- count only with
// all-with-x and any-with-x.
func comparedHeaders(b topology.Binding) (headers topology.Arguments, anyMatches bool) {
	mode, _ := b.Arguments[topology.ArgMatch].(string)
	if strings.HasSuffix(mode, "-with-x") {
		return b.Arguments.Without(topology.ArgMatch), strings.HasPrefix(mode, "any")
	}
	return b.Arguments.WithoutX(), strings.HasPrefix(mode, "any")
}

// fewestHeaders returns the smallest sets of headers that match a binding.
func fewestHeaders(b topology.Binding) []topology.Arguments {
	headers, anyMatches := comparedHeaders(b)
	if !anyMatches {
		return []topology.Arguments{headers}
	}
	var out []topology.Arguments
	for name, v := range headers {
		out = append(out, topology.Arguments{name: v})
	}
	return out
}

// together returns a message with both sets of headers. It reports false if they want different
// values of a header. A value that is nil stands for any.
func together(a, b topology.Arguments) (topology.Arguments, bool) {
	out := maps.Clone(a)
	if out == nil {
		out = topology.Arguments{}
	}
	for name, v := range b {
		have, both := out[name]
		if both && have != nil && v != nil && topology.FormatValue(have) != topology.FormatValue(v) {
			return nil, false
		}
		if !both || have == nil {
			out[name] = v
		}
	}
	return out, true
}

// matchesHeaders reports whether a binding matches a message.
func matchesHeaders(b topology.Binding, message topology.Arguments) bool {
	headers, anyMatches := comparedHeaders(b)
	for name, v := range headers {
		have, ok := message[name]
		matches := ok && (v == nil || have != nil && topology.FormatValue(have) == topology.FormatValue(v))
		if matches == anyMatches {
			return anyMatches
		}
	}
	return !anyMatches
}
