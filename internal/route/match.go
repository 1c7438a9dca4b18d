package route

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// verdict is whether a binding matches.
type verdict int

const (
	no verdict = iota
	yes
	// unsure: the objects do not tell.
	unsure
)

// matcher finds the bindings of one exchange that match a message, by their index. Both lists are
// sorted, have each binding once, and are not to be changed.
type matcher interface {
	match(m Message) (matched, unsure []int)
}

// newMatcher returns the matcher of an exchange type, nil for a type that the router does not
// know.
func newMatcher(exchangeType string, bindings []topology.Binding, d dialect) matcher {
	switch exchangeType {
	case topology.Direct:
		byKey := directMatcher{}
		for i, b := range bindings {
			byKey[b.Key] = append(byKey[b.Key], i)
		}
		return byKey
	case topology.Fanout:
		all := make(fanoutMatcher, len(bindings))
		for i := range all {
			all[i] = i
		}
		return all
	case topology.Topic:
		root := &topicNode{}
		for i, b := range bindings {
			root.add(b.Key, i)
		}
		return topicMatcher{root}
	case topology.Headers:
		return newHeadersMatcher(bindings, d)
	default:
		return nil
	}
}

// directMatcher has the bindings by their key. Each key of the message is looked up.
type directMatcher map[string][]int

func (d directMatcher) match(m Message) (matched, unsure []int) {
	if len(m.Keys) == 1 {
		return d[m.Keys[0]], nil
	}
	for _, key := range m.Keys {
		matched = append(matched, d[key]...)
	}
	return once(matched), nil
}

// fanoutMatcher is the list of all bindings: each matches.
type fanoutMatcher []int

func (f fanoutMatcher) match(Message) (matched, unsure []int) { return f, nil }

// once sorts a list and removes what it has twice.
func once(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}
