package audit

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// role is what a queue is for, as far as objects tell.
type role int

const (
	// work is a queue whose consumers do the work. Everything else has one of the other roles.
	work role = iota
	// keeper is a dead-letter queue: dead letters of other queues come to it, and nothing else.
	keeper
	// retry is a queue in which dead letters wait, to be dead-lettered on.
	retry
	// catchAll is a queue for messages that no binding matches.
	catchAll
	// managed is a queue that dlxctl generated: a failed queue, a retry queue, a hold.
	managed
	// stream is a stream: consumers do not reject its messages.
	stream
)

// setRoles decides what each queue is for.
func (x *index) setRoles() {
	mixed := x.mixedExchanges()
	business := map[*queue]bool{}
	for _, q := range x.queues {
		business[q] = x.isBusiness(q, mixed)
	}
	for _, q := range x.queues {
		made := false
		if q.role, made = x.roleByMark(q); made {
			q.made = true
			continue
		}
		switch {
		case q.Type() == topology.Stream:
			q.role = stream
		case q.args.HasAny(topology.ArgMessageTTL) && x.delays(q, business):
			q.role = retry
		case business[q]:
		case len(q.from) > 0 && q.args.HasAny(topology.ArgMessageTTL) && q.leadsElsewhere():
			q.role = retry
		case len(q.from) > 0 && q.deadLetters && x.returns(q, business):
			q.role = retry
		case len(q.from) == 0 && len(q.bindings) > 0 && x.onlyAlternates(q):
			q.role = catchAll
		}
	}
	for _, q := range x.queues {
		if q.made || q.role != work || business[q] {
			continue
		}
		for name := range q.from {
			// Queues that dead-letter to each other, without bindings, may be anything.
			if source := x.byName[name]; source.role != retry && !source.from[q.Name] {
				q.role = keeper
			}
		}
	}
}

// roleByMark returns the role of what dlxctl made, by its label, its owner mark, or the exchange
// that leads to it. It reports false for what dlxctl did not make.
func (x *index) roleByMark(q *queue) (role, bool) {
	owner, marked := topology.Owner(q.Arguments)
	label := q.Label.Role
	if marked && label == "" {
		generated, ok := topology.LabelOf(owner, q.Name)
		switch {
		case q.deadLetters && q.to.Exchange == topology.FailedExchangeName(owner):
			label = topology.RoleWork // whatever its name
		case ok:
			label = generated.Role
		case topology.IsDeskQueue(deskOwner(owner), q.Queue):
			label = topology.RoleHold
		}
	}
	switch label {
	case topology.RoleWork:
		return work, true
	case topology.RoleDeadLetter:
		return keeper, true
	case topology.RoleUnroutable:
		return catchAll, true
	case topology.RoleFailed, topology.RoleRetry, topology.RoleHold, topology.RoleParked:
		return managed, true
	case topology.RoleReturn, topology.RoleBusiness, topology.RoleLegacy: // exchanges, and what is no longer made
	}
	for _, b := range q.bindings {
		if owner, marked := topology.Owner(b.Arguments); marked && b.Source == topology.DeadLetterName(owner) {
			return keeper, true
		}
	}
	return work, false
}

// deskOwner returns the topology of an owner mark, which for queues of the desk has a suffix.
func deskOwner(owner string) string {
	name, _, _ := strings.Cut(owner, "/")
	return name
}

// mixedExchanges returns the dead-letter exchanges that also lead to queues to which no queue
// dead-letters: messages of the business pass them too.
func (x *index) mixedExchanges() map[string]bool {
	mixed := map[string]bool{}
	for _, q := range x.queues {
		for _, b := range q.bindings {
			if len(q.from) == 0 {
				mixed[b.Source] = true
			}
		}
	}
	return mixed
}

// isBusiness reports whether messages that are no dead letters come to a queue by its bindings.
func (x *index) isBusiness(q *queue, mixed map[string]bool) bool {
	return slices.ContainsFunc(q.bindings, func(b topology.Binding) bool {
		e := x.exchange[b.Source]
		switch {
		case e == nil:
			return false
		case !x.carriesDeadLetters(e, map[string]bool{}):
			return len(e.alternateOf) == 0
		case len(e.deadLettersOf) == 0 && x.isPublishedTo(e, map[string]bool{}):
			return true
		default:
			return mixed[b.Source] && !e.keyed[b.Key]
		}
	})
}

// carriesDeadLetters reports whether a queue dead-letters to the exchange, or to one that leads
// to it.
func (x *index) carriesDeadLetters(e *exchange, seen map[string]bool) bool {
	if e == nil || seen[e.Name] {
		return false
	}
	seen[e.Name] = true
	if len(e.deadLettersOf) > 0 {
		return true
	}
	for _, b := range e.in {
		if x.carriesDeadLetters(x.exchange[b.Source], seen) {
			return true
		}
	}
	return slices.ContainsFunc(e.alternateOf, func(name string) bool {
		return x.carriesDeadLetters(x.exchange[name], seen)
	})
}

// isPublishedTo reports whether bindings between exchanges lead here from an exchange to which no
// queue dead-letters: messages of services come through them, as through the exchanges of delayed
// messages that NServiceBus and Celery declare, which are dead-letter exchanges too.
func (x *index) isPublishedTo(e *exchange, seen map[string]bool) bool {
	if e == nil || seen[e.Name] {
		return false
	}
	seen[e.Name] = true
	if len(e.alternateOf) == 0 && !x.carriesDeadLetters(e, map[string]bool{}) {
		return true
	}
	return slices.ContainsFunc(e.in, func(b topology.Binding) bool { return x.isPublishedTo(x.exchange[b.Source], seen) })
}

// delaysPublished reports whether services choose by the key how long their messages wait in a
// queue: bindings lead from their exchange to it.
func (x *index) delaysPublished(q *queue) bool {
	return q.role == retry && slices.ContainsFunc(q.bindings, func(b topology.Binding) bool {
		return x.isPublishedTo(x.exchange[b.Source], map[string]bool{})
	})
}

// delays reports whether messages wait in a queue before they come to a queue of the business: a
// service publishes to it, as to the retry queues of many libraries. It has no consumers, as far as
// that is known.
func (x *index) delays(q *queue, business map[*queue]bool) bool {
	if n, known := x.consumers(q); known && n > 0 {
		return false
	}
	return slices.ContainsFunc(q.hops, func(h hop) bool {
		return slices.ContainsFunc(h.queues, func(name string) bool { return name != q.Name && business[x.byName[name]] })
	})
}

// leadsElsewhere reports whether the queue dead-letters to another queue than itself.
func (q *queue) leadsElsewhere() bool {
	return slices.ContainsFunc(q.hops, func(h hop) bool {
		return slices.ContainsFunc(h.queues, func(name string) bool { return name != q.Name })
	})
}

// returns reports whether a queue dead-letters back to the queues whose dead letters it gets, and
// those have messages of their own: it is a retry queue whose messages have a TTL each.
func (x *index) returns(q *queue, business map[*queue]bool) bool {
	for name := range q.from {
		if source := x.byName[name]; source.from[q.Name] && business[source] {
			return true
		}
	}
	return false
}

// onlyAlternates reports whether all bindings of a queue come from alternate exchanges.
func (x *index) onlyAlternates(q *queue) bool {
	return !slices.ContainsFunc(q.bindings, func(b topology.Binding) bool {
		e := x.exchange[b.Source]
		return e == nil || len(e.alternateOf) == 0
	})
}
