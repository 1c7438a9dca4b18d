package importer

import (
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// role is what a queue is for, as far as the objects tell.
type role string

// The roles.
const (
	// roleWork is a queue that consumers read.
	roleWork role = ""
	// roleRetry is a queue in which failed messages wait until their TTL ends.
	roleRetry role = "retry"
	// roleKeeper is a queue that gets dead letters and keeps them.
	roleKeeper role = "keeper"
)

// failures is where the messages of a queue go that fail.
type failures struct {
	route.DeadLettering

	// deadLetters is false for a queue without a dead-letter exchange.
	deadLetters bool
	// queues are where dead letters go, as far as the objects tell, sorted. many says that a
	// dead letter may reach more than maxTargets queues, which are then not listed.
	queues []string
	many   bool
	// lost says why some or all dead letters reach no queue. Empty: none is lost.
	lost string
	// byArgument reports that an argument decides, which no policy can change.
	byArgument bool
}

// maxTargets is how many queues behind one dead-letter exchange are followed.
const maxTargets = 20

// readFailures finds out where each queue dead-letters to.
func (v *view) readFailures() {
	v.failures, v.feeders = map[string]failures{}, map[string][]string{}
	into := bindingsInto(v.state)
	reachable := map[string][]string{} // by exchange
	for _, q := range v.state.Have.Queues {
		to, ok := v.router.DeadLettering(q.Name)
		f := failures{DeadLettering: to, deadLetters: ok, byArgument: q.Arguments.HasAny(
			topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy)}
		if ok {
			v.follow(&f, q.Name, into[topology.Key{Kind: topology.KindQueue, Name: q.Name}], reachable)
		}
		v.failures[q.Name] = f
		for _, target := range f.queues {
			if target != q.Name {
				v.feeders[target] = append(v.feeders[target], q.Name)
			}
		}
	}
}

// follow finds the queues that dead letters of a queue reach. Without a dead-letter routing key
// that depends on the keys of the messages, which the bindings of the queue show, unless these
// have wildcards.
func (v *view) follow(f *failures, queue string, bindings []topology.Binding, reachable map[string][]string) {
	keys, certain := keysOf(bindings, queue, *f)
	found := map[string]bool{}
	for _, key := range keys {
		result := v.router.DeadLetter(queue, route.Message{Keys: []string{key}}, route.Rejected)
		for _, name := range result.Queues {
			found[name] = true
		}
		if len(result.Lost) > 0 && f.lost == "" && certain {
			f.lost = result.Lost[0].String()
		}
		certain = certain && len(result.Unknown) == 0
	}
	if !certain {
		names, known := reachable[f.Exchange]
		if !known {
			names = v.router.Reachable(f.Exchange)
			reachable[f.Exchange] = names
		}
		if f.Exchange == "" || len(names) > maxTargets {
			f.many = true
		} else {
			for _, name := range names {
				found[name] = true
			}
		}
	}
	f.queues = sortedKeys(found)
	if len(f.queues) > maxTargets {
		f.queues, f.many = nil, true
	}
}

// maxKeys is how many keys of a queue's bindings are followed.
const maxKeys = 50

// keysOf gives the routing keys that the dead letters of a queue may have, and whether these are
// all. A message that was published to the queue by its name has that name as its key.
func keysOf(bindings []topology.Binding, queue string, f failures) (keys []string, certain bool) {
	if f.HasKey {
		return []string{f.Key}, true
	}
	certain = len(bindings) <= maxKeys
	for _, b := range bindings[:min(len(bindings), maxKeys)] {
		if strings.ContainsAny(b.Key, "*#") || b.Key == "" {
			certain = false
			continue
		}
		keys = append(keys, b.Key)
	}
	if len(bindings) == 0 {
		keys = append(keys, queue)
	}
	slices.Sort(keys)
	return slices.Compact(keys), certain
}

// assignRoles tells retry queues and keepers from work queues.
//
// A retry queue has a TTL and dead-letters, and nothing but failures reach it. A keeper gets dead
// letters and does not dead-letter, and no business exchange leads to it. What is unclear counts
// as a work queue.
func (v *view) assignRoles() {
	v.roles = map[string]role{}
	into := bindingsInto(v.state)
	for _, q := range v.state.Have.Queues {
		f := v.failures[q.Name]
		fed := len(v.feeders[q.Name]) > 0
		if v.ttl(q) > 0 && f.deadLetters && len(f.queues) > 0 &&
			(fed || len(into[topology.Key{Kind: topology.KindQueue, Name: q.Name}]) == 0) {
			v.roles[q.Name] = roleRetry
		}
	}
	dlx := map[string]bool{} // exchanges that work queues dead-letter to
	for _, q := range v.state.Have.Queues {
		if f := v.failures[q.Name]; f.deadLetters && v.roles[q.Name] == roleWork {
			dlx[f.Exchange] = true
		}
	}
	for _, q := range v.state.Have.Queues {
		fed := slices.ContainsFunc(v.feeders[q.Name], func(f string) bool { return v.roles[f] == roleWork })
		business := slices.ContainsFunc(into[topology.Key{Kind: topology.KindQueue, Name: q.Name}],
			func(b topology.Binding) bool { return !dlx[b.Source] })
		if fed && !business && !v.failures[q.Name].deadLetters {
			v.roles[q.Name] = roleKeeper
		}
	}
}

// ttl gives how long messages wait in a queue, by its argument or its policy. Zero is forever.
func (v *view) ttl(q topology.Queue) time.Duration {
	ttl, limited := q.Arguments[topology.ArgMessageTTL].(int64)
	for _, p := range v.policies.InEffect(q) {
		if other, ok := policy.Arguments(p.Definition)[topology.ArgMessageTTL].(int64); ok && (!limited || other < ttl) {
			ttl, limited = other, true
		}
	}
	return time.Duration(ttl) * time.Millisecond
}
