package route

import (
	"slices"
	"strings"
)

// topicMatcher matches routing keys with the patterns of a topic exchange.
type topicMatcher struct{ root *topicNode }

// topicNode is a word of some patterns. Patterns that begin alike share nodes.
type topicNode struct {
	children map[string]*topicNode
	// star and hash are the children for "*", which is one word, and "#", which is any number
	// of words, none included. They are in children too: a key may have such a word itself.
	star, hash *topicNode
	// manyWords is true for the child of a "#".
	manyWords bool
	// bindings are those whose pattern ends here.
	bindings []int
}

// add adds a pattern. Words stand between dots, and may be empty: "a..b" has three, "." has two.
// Only the empty pattern has none.
func (n *topicNode) add(pattern string, binding int) {
	if pattern == "" {
		n.bindings = append(n.bindings, binding)
		return
	}
	for word := range strings.SplitSeq(pattern, ".") {
		next := n.children[word]
		if next == nil {
			next = &topicNode{manyWords: word == "#"}
			if n.children == nil {
				n.children = map[string]*topicNode{}
			}
			n.children[word] = next
			switch word {
			case "*":
				n.star = next
			case "#":
				n.hash = next
			}
		}
		n = next
	}
	n.bindings = append(n.bindings, binding)
}

func (t topicMatcher) match(m Message) (matched, unsure []int) {
	for _, key := range m.Keys {
		matched = t.root.collect(key, matched)
	}
	return once(matched), nil
}

// collect appends the bindings whose pattern matches key. It moves a set of nodes forward, word
// by word, so that many "#" in patterns cost no more than the nodes they reach.
func (n *topicNode) collect(key string, found []int) []int {
	var few, fewNext [16]*topicNode
	current, next := n.into(few[:0]), fewNext[:0]
	if key != "" {
		for word := range strings.SplitSeq(key, ".") {
			next = next[:0]
			for _, node := range current {
				if node.manyWords {
					next = node.into(next)
				}
				if child := node.children[word]; child != nil {
					next = child.into(next)
				}
				if node.star != nil {
					next = node.star.into(next)
				}
			}
			current, next = next, current
		}
	}
	for _, node := range current {
		found = append(found, node.bindings...)
	}
	return found
}

// into adds the node to a set, and its child for "#", as that needs no word.
func (n *topicNode) into(set []*topicNode) []*topicNode {
	if slices.Contains(set, n) {
		return set
	}
	set = append(set, n)
	if n.hash != nil {
		return n.hash.into(set)
	}
	return set
}

// TopicMatches reports whether a routing key fits a pattern of a topic exchange.
func TopicMatches(pattern, key string) bool {
	root := &topicNode{}
	root.add(pattern, 0)
	return len(root.collect(key, nil)) > 0
}
