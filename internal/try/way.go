package try

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// way is how messages are published so that they reach a queue.
type way struct {
	// exchange is empty for the default exchange.
	exchange, key string
	headers       map[string]any
	// why says why it is the default exchange. Empty: it is not.
	why string
}

// anyWord stands where a topic binding accepts any word.
const anyWord = "any"

// farthest is how many exchanges a way may pass.
const farthest = 5

// wayTo returns how to reach a queue: through the first of its bindings for which there is a
// message that the router sends to the queue, else by its name.
func wayTo(c topology.Compiled, router *route.Router, queue string) way {
	bound := false
	for _, b := range inOrder(c) {
		if b.Destination != queue || b.DestinationType != topology.ToQueue || b.Label.Role != topology.RoleBusiness {
			continue
		}
		bound = true
		for _, w := range candidates(c.Topology, b, way{headers: map[string]any{}}, farthest) {
			to := router.Publish(w.exchange, w.key, w.headers)
			if len(to.Unknown) == 0 && slices.Contains(to.Queues, queue) {
				return w
			}
		}
	}
	w := way{key: queue, why: "the file has no binding of it"}
	if bound {
		w.why = "no message was found that its bindings certainly route to it"
	}
	return w
}

// inOrder returns the bindings in the order of the files.
func inOrder(c topology.Compiled) []topology.Binding {
	out := slices.Clone(c.Bindings)
	slices.SortStableFunc(out, func(a, b topology.Binding) int {
		return comparePlaces(c.Places[a.ID()], c.Places[b.ID()])
	})
	return out
}

func comparePlaces(a, b topology.Place) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// candidates returns messages that may pass a binding, and before it those to its exchange. A
// client may not publish to an internal exchange.
func candidates(t topology.Topology, b topology.Binding, after way, left int) []way {
	w := way{exchange: b.Source, key: sampleKey(b.Key), headers: sampleHeaders(b, after.headers)}
	keys := []string{w.key}
	if after.key != "" && after.key != w.key {
		keys = append(keys, after.key)
	}
	var out []way
	i := slices.IndexFunc(t.Exchanges, func(e topology.Exchange) bool { return e.Name == b.Source })
	if i < 0 || !t.Exchanges[i].Internal {
		for _, key := range keys {
			out = append(out, way{exchange: b.Source, key: key, headers: w.headers})
		}
	}
	if left == 0 {
		return out
	}
	for _, before := range t.Bindings {
		if before.DestinationType == topology.ToExchange && before.Destination == b.Source {
			for _, key := range keys {
				out = append(out, candidates(t, before, way{key: key, headers: w.headers}, left-1)...)
			}
		}
	}
	return out
}

// sampleKey returns a key that the key of a binding matches.
func sampleKey(key string) string {
	words := strings.Split(key, ".")
	for i, word := range words {
		if word == "*" || word == "#" {
			words[i] = anyWord
		}
	}
	return strings.Join(words, ".")
}

// sampleHeaders returns headers that a binding matches, in addition to others.
func sampleHeaders(b topology.Binding, others map[string]any) map[string]any {
	out := maps.Clone(others)
	match, _ := b.Arguments[topology.ArgMatch].(string)
	for name, v := range b.Arguments {
		switch {
		case name == topology.ArgMatch || name == topology.ArgManagedBy:
		case strings.HasPrefix(name, "x-") && !strings.HasSuffix(match, "-with-x"):
		case v == nil: // the binding asks for the header with any value
			out[name] = anyWord
		default:
			out[name] = v
		}
	}
	return out
}
