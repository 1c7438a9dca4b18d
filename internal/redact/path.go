package redact

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// path is the keys of a value below the root. The key * is any.
type path []string

// parsePath reads a path and returns its root, body or headers.
func parsePath(text string) (root string, p path, err error) {
	if !regexp.MustCompile(`^(body|headers)(\.[^.\[\]]+(\[\*\])*)+$`).MatchString(text) {
		return "", nil, fmt.Errorf("%q is not a path; write it like body.customer.email, body.items[*].card or headers.authorization", text)
	}
	keys := strings.Split(strings.ReplaceAll(text, "[*]", ""), ".")
	for i, k := range keys {
		keys[i] = fold(k)
	}
	return keys[0], path(keys[1:]), nil
}

// fold makes names comparable: a program may write customer_email where another writes
// CustomerEmail.
func fold(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}

// isNamed reports a path with a name that is neither a number nor *.
func (p path) isNamed() bool {
	return slices.ContainsFunc(p, func(key string) bool {
		return key != "*" && strings.Trim(key, "0123456789") != ""
	})
}

// state is a path of which a walk through a tree has matched a part.
type state struct {
	rest path
	// any reports that the last key was *.
	any bool
}

func start(paths []path) []state {
	states := make([]state, len(paths))
	for i, p := range paths {
		states[i] = state{rest: p}
	}
	return states
}

// advance returns the states of the value under a key. A key may hold dots, as names of headers
// do: it then matches several keys of a path.
func advance(states []state, key string) []state {
	if len(states) == 0 {
		return nil
	}
	var out []state
	key = fold(key)
	dots := strings.Count(key, ".")
	for _, s := range states {
		if len(s.rest) > 0 && s.rest[0] == "*" {
			out = append(out, state{s.rest[1:], true})
			continue
		}
		if n := dots + 1; len(s.rest) >= n && strings.Join(s.rest[:n], ".") == key {
			out = append(out, state{s.rest[n:], false})
		}
	}
	return out
}

// elements returns the states of the elements of a list. Each path means all elements; * may
// stand for them too.
func elements(states []state) []state {
	var out []state
	for _, s := range states {
		out = append(out, s)
		if len(s.rest) > 0 && s.rest[0] == "*" {
			out = append(out, state{s.rest[1:], true})
		}
	}
	return out
}

// hits reports whether a path names the value itself.
func hits(states []state) bool {
	return slices.ContainsFunc(states, func(s state) bool { return len(s.rest) == 0 })
}

// misses reports whether a path names something inside a value that is text. What it names may
// then be part of the text.
func misses(states []state) bool {
	return slices.ContainsFunc(states, func(s state) bool {
		return len(s.rest) > 0 && !s.any && s.rest[0] != "*"
	})
}
