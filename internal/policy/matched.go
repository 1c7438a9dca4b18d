package policy

import (
	"github.com/dlxctl/dlxctl/topology"
)

// WithMatched returns c with the queues of a virtual host that its matches cover, as
// [topology.Compiled.WithMatched] does.
func WithMatched(c topology.Compiled, queues []topology.Queue) topology.Compiled {
	if len(c.Matches) == 0 {
		return c
	}
	entryOf := Matched(c)
	return c.WithMatched(queues, entryOf)
}

// Declared returns the queue of a name as a service may declare it, if a match of c covers the
// name: a quorum queue, or a classic one where the match covers no others.
func Declared(c topology.Compiled, name string) (topology.Queue, bool) {
	entryOf := Matched(c)
	for _, kind := range []string{topology.Quorum, topology.Classic} {
		q := topology.Queue{
			Name: name, Durable: true, External: true, Arguments: topology.Arguments{topology.ArgQueueType: kind},
			Label: topology.Label{Role: topology.RoleWork, Queue: name},
		}
		if _, covered := entryOf(q); covered {
			return q, true
		}
	}
	return topology.Queue{}, false
}

// Matched returns a function that finds the first entry of a topology that covers a queue. No entry
// covers a queue that dlxctl made, one that only its connection can use, one of a type that no
// policy can make dead-letter, or one whose name is too long for an address.
func Matched(c topology.Compiled) func(topology.Queue) (topology.Match, bool) {
	set := All(topology.State{})
	return func(q topology.Queue) (topology.Match, bool) {
		_, managed := topology.Owner(q.Arguments)
		if managed || q.Exclusive || !topology.Addressable(q.Name) {
			return topology.Match{}, false
		}
		for _, m := range c.Matches {
			ofType := m.PolicyNames(c.Name)[q.Type()] != ""
			if ofType && set.matches(topology.Policy{Pattern: m.Pattern}, q.Name) {
				return m, true
			}
		}
		return topology.Match{}, false
	}
}
