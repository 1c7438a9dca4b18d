package route_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// topicMatches reports whether a topic exchange with one binding routes a key.
func topicMatches(pattern, key string) bool {
	router := route.New(topology.State{Have: topology.Topology{
		Exchanges: []topology.Exchange{{Name: "x", Type: topology.Topic}},
		Queues:    []topology.Queue{{Name: "q"}},
		Bindings:  []topology.Binding{bind("x", pattern, "q")},
	}})
	return len(router.Publish("x", key, nil).Queues) == 1
}

func TestTopicPatterns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern  string
		matches  []string
		mismatch []string
	}{
		{"", []string{""}, []string{".", "a"}},
		{"a", []string{"a"}, []string{"", "A", "a.", ".a", "a.a"}},
		{"*", []string{"a", "*", "#"}, []string{"", ".", "a.b"}},
		{"#", []string{"", ".", "a", "a.b.c", "#", "*.#"}, nil},
		{"a.*.b", []string{"a.x.b", "a..b", "a.*.b"}, []string{"a.b", "a.x.y.b"}},
		{"a.#.b", []string{"a.b", "a.x.b", "a..b", "a.x.y.b", "a.b.b"}, []string{"a", "b", "a.b.", "a.bb"}},
		{"#.a", []string{"a", ".a", "x.y.a", "a.a"}, []string{"", "a.", "xa"}},
		{"a.#", []string{"a", "a.", "a.b.c"}, []string{"", "ab", ".a"}},
		{"*.#", []string{"a", ".", "a.b"}, []string{""}},
		{"#.*", []string{"a", ".", "a.b"}, []string{""}},
		{"#.*.#", []string{"a", "a.b.c", "."}, []string{""}},
		{"*.*", []string{".", "a.b"}, []string{"a", "a.b.c"}},
		{"a*", []string{"a*"}, []string{"ab", "a.b"}},
		{"#.#", []string{"", "a", "a.b.c"}, nil},
		{".", []string{"."}, []string{"", "a"}},
	} {
		t.Run(tc.pattern, func(t *testing.T) {
			t.Parallel()
			for _, key := range tc.matches {
				if !topicMatches(tc.pattern, key) {
					t.Errorf("%q does not match %q", tc.pattern, key)
				}
			}
			for _, key := range tc.mismatch {
				if topicMatches(tc.pattern, key) {
					t.Errorf("%q matches %q", tc.pattern, key)
				}
			}
		})
	}
}

// Many "#" in a pattern must not cost more with each: a naive search doubles its work.
func TestTopicWithManyWildcards(t *testing.T) {
	t.Parallel()
	pattern := strings.Repeat("#.a.", 60) + "b"
	if topicMatches(pattern, strings.Repeat("a.", 120)+"c") {
		t.Error("it matches")
	}
}

// FuzzTopic compares with the definition of a topic pattern: "#" is any number of words, "*" is
// one.
func FuzzTopic(f *testing.F) {
	for _, seed := range [][2]string{
		{"a.*.#", "a.b"}, {"", ""}, {"#.a.#.b", "a.a.b"}, {"..", ".."}, {"#.#", "a"}, {"*", "#"}, {"#.*.a", "#.a"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if len(pattern) > 40 || len(key) > 40 {
			return // the reference is exponential
		}
		want := reference(words(pattern), words(key))
		if got := topicMatches(pattern, key); got != want {
			t.Errorf("pattern %q, key %q: matches %v, want %v", pattern, key, got, want)
		}
	})
}

func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ".")
}

func reference(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return reference(pattern[1:], key) || len(key) > 0 && reference(pattern, key[1:])
	case len(key) == 0:
		return false
	default:
		return slices.Contains([]string{"*", key[0]}, pattern[0]) && reference(pattern[1:], key[1:])
	}
}
