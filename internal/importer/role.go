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
	// lost says why some or all dead letters reach no queue. The zero End: none is lost.
	lost route.End
	// byArgument reports that an argument decides, which no policy can change.
	byArgument bool
}

// maxTargets is how many queues behind one dead-letter exchange are followed.
const maxTargets = 20

// readFailures finds out where each queue dead-letters to.
func (v *view) readFailures() {
	v.failures, v.feeders = map[string]failures{}, map[string][]string{}
	v.onward, v.returns = map[string]map[string]bool{}, map[string]map[string]bool{}
	reachable := map[string][]string{} // by exchange
	for _, q := range v.state.Have.Queues {
		to, ok := v.router.DeadLettering(q.Name)
		f := failures{DeadLettering: to, deadLetters: ok, byArgument: q.Arguments.HasAny(
			topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy)}
		if ok {
			v.follow(&f, q.Name, reachable)
		}
		v.failures[q.Name] = f
		for _, target := range f.queues {
			if target != q.Name {
				v.feeders[target] = append(v.feeders[target], q.Name)
			}
		}
	}
	for name, targets := range v.onward {
		f := v.failures[name]
		f.queues = slices.Compact(slices.Sorted(slices.Values(append(sortedKeys(targets), f.queues...))))
		f.limit()
		v.failures[name] = f
	}
}

// limit forgets a long list of queues.
func (f *failures) limit() {
	if len(f.queues) > maxTargets {
		f.queues, f.many = nil, true
	}
}

// follow finds the queues that dead letters of a queue reach. Without a dead-letter routing key
// that depends on the keys of the messages, which the bindings of the queue show, unless these
// have wildcards.
func (v *view) follow(f *failures, queue string, reachable map[string][]string) {
	keys, certain := keysOf(v.all[queueKey(queue)], queue, *f)
	found := map[string]bool{}
	for _, key := range keys {
		result := v.router.DeadLetter(queue, route.Message{Keys: []string{key}}, route.Rejected)
		for _, name := range result.Queues {
			found[name] = true
			v.goOn(queue, name, result.Message)
		}
		if len(result.Lost) > 0 && f.lost.Cause == "" && certain {
			f.lost = result.Lost[0]
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
	f.limit()
}

// goOn follows a dead letter of a queue one hop further, to where it goes when its time in the
// next queue ends.
func (v *view) goOn(from, to string, m route.Message) {
	for _, name := range v.router.DeadLetter(to, m, route.Expired).Queues {
		if v.onward[to] == nil {
			v.onward[to] = map[string]bool{}
		}
		v.onward[to][name] = true
		if name == from {
			if v.returns[from] == nil {
				v.returns[from] = map[string]bool{}
			}
			v.returns[from][to] = true
		}
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
// A retry queue has a TTL and dead-letters, and no business exchange leads to it. A keeper gets
// dead letters of work queues and does not dead-letter, and no business exchange leads to it
// either. What is unclear counts as a work queue.
func (v *view) assignRoles() {
	v.roles = map[string]role{}
	dlx := v.deadLetterExchanges()
	for _, q := range v.state.Have.Queues {
		f := v.failures[q.Name]
		unbound := len(v.all[queueKey(q.Name)]) == 0
		if v.ttl(q) > 0 && f.deadLetters && (len(f.queues) > 0 || f.many) && !v.bound(q.Name, dlx) &&
			(unbound || len(v.feeders[q.Name]) > 0) {
			v.roles[q.Name] = roleRetry
		}
	}
	dlx = v.deadLetterExchanges() // without those by which retry queues give back
	for _, q := range v.state.Have.Queues {
		fed := slices.ContainsFunc(v.feeders[q.Name], func(f string) bool { return v.roles[f] == roleWork })
		if fed && !v.bound(q.Name, dlx) && !v.failures[q.Name].deadLetters {
			v.roles[q.Name] = roleKeeper
		}
	}
}

// deadLetterExchanges gives the exchanges that work queues dead-letter to.
func (v *view) deadLetterExchanges() map[string]bool {
	out := map[string]bool{}
	for name, f := range v.failures {
		if f.deadLetters && v.roles[name] == roleWork {
			out[f.Exchange] = true
		}
	}
	return out
}

// bound reports whether an exchange that is none of dlx has a binding to a queue.
func (v *view) bound(queue string, dlx map[string]bool) bool {
	return slices.ContainsFunc(v.all[queueKey(queue)], func(b topology.Binding) bool { return !dlx[b.Source] })
}

func queueKey(name string) topology.Key { return topology.Key{Kind: topology.KindQueue, Name: name} }

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
