package survey

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Keys are routing keys of messages: one key, or those that a pattern of a topic exchange matches.
// What came through a fanout or headers exchange has any key: the pattern "#".
type Keys struct {
	Text    string
	Pattern bool
}

// String describes the keys for people.
func (k Keys) String() string {
	switch {
	case k.Pattern && k.Text == "#":
		return "any key"
	case k.Text == "":
		return "an empty key"
	default:
		return "key " + k.Text
	}
}

// AnyKey are all keys.
func AnyKey() Keys { return Keys{"#", true} }

// AnyWord stands for a word that no binding names.
const AnyWord = "any~word"

// Samples returns keys of the set that decide for all others: words that no binding names, and as
// many of them as patterns tell apart.
func (k Keys) Samples() []string {
	if !k.Pattern {
		return []string{k.Text}
	}
	one := strings.Split(strings.ReplaceAll(k.Text, "*", AnyWord), ".")
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
				words = append(words, slices.Repeat([]string{AnyWord}, n)...)
			case w != "#":
				words = append(words, w)
			}
		}
		out = append(out, strings.Join(words, "."))
	}
	return out
}

// IsPattern reports whether a key of a topic binding has a wildcard.
func IsPattern(key string) bool {
	for word := range strings.SplitSeq(key, ".") {
		if word == "*" || word == "#" {
			return true
		}
	}
	return false
}

func (k Keys) matches(key string) bool {
	if !k.Pattern {
		return k.Text == key
	}
	return matches(words(k.Text), words(key))
}

// matches reports whether a pattern matches the words of a key, in which a wildcard is a word like
// others.
func matches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return matches(pattern[1:], key) || len(key) > 0 && matches(pattern, key[1:])
	default:
		return len(key) > 0 && (pattern[0] == key[0] || pattern[0] == "*") && matches(pattern[1:], key[1:])
	}
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

// narrowed returns the keys of a set that a binding of the exchange lets through, or more of them
// where two patterns meet.
func (e *Exchange) narrowed(k Keys, binding string) Keys {
	switch {
	case e.Type == topology.Direct, e.Type == topology.Topic && !IsPattern(binding):
		return Keys{Text: binding}
	case e.Type == topology.Topic && k == AnyKey():
		return Keys{binding, true}
	default:
		return k
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
func (e *Exchange) sharing(k Keys) []topology.Binding {
	if e.Type != topology.Direct && e.Type != topology.Topic {
		return e.Out
	}
	if e.words == nil {
		for _, b := range e.Out {
			e.words = append(e.words, words(b.Key))
		}
	}
	var out []topology.Binding
	for i, pattern := 0, words(k.Text); i < len(e.Out); i++ {
		// A wildcard in a binding of a direct exchange is a word like others.
		if overlap(pattern, e.words[i]) && (e.Type == topology.Topic || !IsPattern(e.Out[i].Key)) {
			out = append(out, e.Out[i])
		}
	}
	return out
}
