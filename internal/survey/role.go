package survey

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Roles that no file gives to a queue. The others are those of package topology.
const (
	// Delay is a queue in which publishers let messages wait, until they are dead-lettered to the
	// queue that is meant.
	Delay topology.Role = "delay"
	// Stream is a stream: consumers do not reject its messages.
	Stream topology.Role = "stream"
)

// setRoles decides what each queue is for. What is unclear is a work queue.
func (s *Survey) setRoles() {
	mixed := s.mixedExchanges()
	for _, q := range s.Queues {
		q.From = slices.Sorted(maps.Keys(q.from))
		q.business = s.isBusiness(q, mixed)
		q.Role, q.Made = s.roleByMark(q)
	}
	for _, q := range s.Queues {
		switch waits := s.waits(q); {
		case q.Made:
		case q.Type() == topology.Stream:
			q.Role = Stream
		case waits && len(q.From) > 0:
			q.Role = topology.RoleRetry
		case waits:
			q.Role = Delay
		case !q.business && len(q.From) == 0 && len(q.Bindings) > 0 && s.onlyAlternates(q) && s.onlyHolds(q):
			q.Role = topology.RoleUnroutable
		}
	}
	s.setChains()
	for _, q := range s.Queues {
		if s.isWorkOfLoop(q) {
			q.Role = topology.RoleWork
		}
	}
	for _, q := range s.Queues {
		if !q.Made && q.Role == topology.RoleWork && s.keeps(q) {
			q.Role = topology.RoleDeadLetter
		}
	}
}

// setChains makes delay queues of those that get messages from delay queues alone, so that no
// message in them has failed: NServiceBus and Celery add up a delay from a chain of queues.
func (s *Survey) setChains() {
	for changed := true; changed; {
		changed = false
		for _, q := range s.Queues {
			if q.Role == topology.RoleRetry && !q.Made && q.Args.HasAny(topology.ArgMessageTTL) && len(q.FailedFrom()) == 0 {
				q.Role, changed = Delay, true
			}
		}
	}
}

// FailedFrom are the queues of From that are not delay queues: what comes from those has not
// failed.
func (q *Queue) FailedFrom() []string {
	return slices.DeleteFunc(slices.Clone(q.From), func(name string) bool { return q.host.queues[name].Role == Delay })
}

// Waits reports whether messages wait in the queue for the end of a TTL, and it is none that
// dlxctl generated.
func (q *Queue) Waits() bool { return !q.Made && (q.Role == topology.RoleRetry || q.Role == Delay) }

// Generated reports whether dlxctl made the queue for itself: a failed queue, a retry queue or a
// hold.
func (q *Queue) Generated() bool {
	return q.Made && !slices.Contains([]topology.Role{
		topology.RoleWork, topology.RoleDeadLetter, topology.RoleUnroutable,
	}, q.Role)
}

// roleByMark returns the role of what dlxctl made, by its label, its owner mark, or the exchange
// that leads to it. It reports false for what dlxctl did not make.
func (s *Survey) roleByMark(q *Queue) (topology.Role, bool) {
	owner, marked := topology.Owner(q.Arguments)
	label := q.Label.Role
	if marked && label == "" {
		generated, ok := topology.QueueLabelOf(owner, q.Name)
		switch {
		case q.DeadLetters && q.To.Exchange == topology.FailedExchangeName(owner):
			label = topology.RoleWork // whatever its name
		case ok:
			label = generated.Role
		case topology.IsDeskQueue(DeskOwner(owner), q.Queue):
			label = topology.RoleHold
		}
	}
	switch label {
	case topology.RoleWork, topology.RoleDeadLetter, topology.RoleUnroutable, topology.RoleFailed, topology.RoleRetry,
		topology.RoleHold, topology.RoleParked, topology.RoleLog:
		return label, true
	case topology.RoleReturn, topology.RoleBusiness, topology.RoleLegacy: // exchanges, and what is no longer made
	}
	for _, b := range q.Bindings {
		if owner, marked := topology.Owner(b.Arguments); marked && b.Source == topology.DeadLetterName(owner) {
			return topology.RoleDeadLetter, true
		}
	}
	return topology.RoleWork, false
}

// DeskOwner returns the topology of an owner mark, which for queues of the desk has a suffix.
func DeskOwner(owner string) string {
	name, _, _ := strings.Cut(owner, "/")
	return name
}

// mixedExchanges returns the dead-letter exchanges that also lead to queues to which no queue
// dead-letters: messages of the business pass them too.
func (s *Survey) mixedExchanges() map[string]bool {
	mixed := map[string]bool{}
	for _, q := range s.Queues {
		for _, b := range q.Bindings {
			if len(q.from) == 0 {
				mixed[b.Source] = true
			}
		}
	}
	return mixed
}

// isBusiness reports whether messages that are not dead letters come to a queue by its bindings.
func (s *Survey) isBusiness(q *Queue, mixed map[string]bool) bool {
	return slices.ContainsFunc(q.Bindings, func(b topology.Binding) bool {
		e := s.exchanges[b.Source]
		switch {
		case e == nil:
			return false
		case !s.carriesDeadLetters(e, map[string]bool{}):
			return len(e.AlternateOf) == 0
		case len(e.DeadLettersOf) == 0 && s.isPublishedTo(e, map[string]bool{}):
			return true
		default:
			return mixed[b.Source] && !e.Keyed[b.Key]
		}
	})
}

// carriesDeadLetters reports whether a queue dead-letters to the exchange, or to one that leads
// to it.
func (s *Survey) carriesDeadLetters(e *Exchange, seen map[string]bool) bool {
	if e == nil || seen[e.Name] {
		return false
	}
	seen[e.Name] = true
	carries := func(name string) bool { return s.carriesDeadLetters(s.exchanges[name], seen) }
	return len(e.DeadLettersOf) > 0 || slices.ContainsFunc(e.AlternateOf, carries) ||
		slices.ContainsFunc(e.In, func(b topology.Binding) bool { return carries(b.Source) })
}

// isPublishedTo reports whether bindings between exchanges lead here from an exchange to which no
// queue dead-letters: messages of services come through them, as through the exchanges of delayed
// messages that NServiceBus and Celery declare, which are dead-letter exchanges too.
func (s *Survey) isPublishedTo(e *Exchange, seen map[string]bool) bool {
	if e == nil || seen[e.Name] {
		return false
	}
	seen[e.Name] = true
	if len(e.AlternateOf) == 0 && !s.carriesDeadLetters(e, map[string]bool{}) {
		return true
	}
	return slices.ContainsFunc(e.In, func(b topology.Binding) bool { return s.isPublishedTo(s.exchanges[b.Source], seen) })
}

// DelaysPublished reports whether services choose by the key how long their messages wait in a
// queue: bindings lead from their exchange to it.
func (s *Survey) DelaysPublished(q *Queue) bool {
	return q.Waits() && slices.ContainsFunc(q.Bindings, func(b topology.Binding) bool {
		return s.isPublishedTo(s.exchanges[b.Source], map[string]bool{})
	})
}

// waits reports whether messages only wait in a queue before they come to another one: it has no
// consumers, as far as that is known, and
//   - its messages expire and come to a queue of the business, as from the retry queues of many
//     libraries, to which services publish; or
//   - it gets dead letters, which expire and come to another queue; or
//   - it gets dead letters, and gives them back to queues that have messages of their own: each
//     message has a TTL; or
//   - its messages expire and come to a queue that does not seem to be for dead letters.
func (s *Survey) waits(q *Queue) bool {
	if !q.DeadLetters || s.State.Usage[q.Name].Consumers > 0 {
		return false
	}
	var targets []*Queue
	for _, name := range q.Targets() {
		if name != q.Name {
			targets = append(targets, s.queues[name])
		}
	}
	fed, expires := len(q.From) > 0 && !q.business, q.Args.HasAny(topology.ArgMessageTTL) && len(targets) > 0
	switch {
	case expires && slices.ContainsFunc(targets, func(t *Queue) bool { return t.business && !saysDead(t.Name) }):
		return true
	case fed:
		return expires || s.returns(q)
	default:
		return expires && (saysWait(q.Name) || !saysWork(q.Name) && !slices.ContainsFunc(targets, s.takesRejected))
	}
}

// takesRejected reports whether a queue seems to be for dead letters: by its name, or because
// dlxctl made it, or because queues without a TTL dead-letter to it, whose messages do not wait.
func (s *Survey) takesRejected(q *Queue) bool {
	return q.Made || saysDead(q.Name) || saysFailed(q.Name) || slices.ContainsFunc(q.From, func(name string) bool {
		return !s.queues[name].Args.HasAny(topology.ArgMessageTTL)
	})
}

// returns reports whether a queue dead-letters back to the queues whose dead letters it gets, and
// those have messages of their own.
func (s *Survey) returns(q *Queue) bool {
	return slices.ContainsFunc(q.From, func(name string) bool {
		return s.queues[name].from[q.Name] && s.queues[name].business
	})
}

// isWorkOfLoop reports whether a queue that seems to be a retry queue is the work queue of two that
// dead-letter to each other, both with a TTL, to which no exchange of the business leads: only
// their names tell.
func (s *Survey) isWorkOfLoop(q *Queue) bool {
	if q.Role != topology.RoleRetry || q.Made || saysWait(q.Name) {
		return false
	}
	return slices.ContainsFunc(q.From, func(name string) bool {
		other := s.queues[name]
		return other.Waits() && other.from[q.Name] && (saysWait(name) || saysWork(q.Name))
	}) && !slices.ContainsFunc(q.From, func(name string) bool { return !s.queues[name].Waits() })
}

// keeps reports whether a queue keeps dead letters: they come to it, and nothing else does. Where
// nothing dead-letters to it, its name says so. An exchange of the business leads to queues with
// such a name too, for services that publish what they could not process. Names that are also those
// of ordinary events decide only if the exchange has one too, or none leads to the queue.
func (s *Survey) keeps(q *Queue) bool {
	if !q.business && slices.ContainsFunc(q.From, func(name string) bool {
		// Queues that dead-letter to each other, without bindings, may be anything.
		source := s.queues[name]
		return source.Role != topology.RoleRetry && source.Role != Delay && !source.from[q.Name] || saysDead(q.Name)
	}) {
		return true
	}
	ordinary := slices.ContainsFunc(q.Bindings, func(b topology.Binding) bool {
		return !saysDead(b.Source) && !saysFailed(b.Source)
	})
	return !q.DeadLetters && (saysDead(q.Name) || saysFailed(q.Name) && len(q.FailedFrom()) == 0 && !ordinary)
}

// onlyAlternates reports whether all bindings of a queue come from alternate exchanges.
func (s *Survey) onlyAlternates(q *Queue) bool {
	return !slices.ContainsFunc(q.Bindings, func(b topology.Binding) bool {
		e := s.exchanges[b.Source]
		return e == nil || len(e.AlternateOf) == 0
	})
}

// onlyHolds reports whether a queue does not seem to have consumers whose messages fail: its name
// says so, or it has none, as far as that is known, and does not dead-letter. Services also use an
// alternate exchange for the queue of all other messages.
func (s *Survey) onlyHolds(q *Queue) bool {
	return saysDead(q.Name) || !q.DeadLetters && s.State.Usage[q.Name].Consumers == 0
}

// Keeper returns the queue whose name says that it keeps the dead letters of a queue.
func (s *Survey) Keeper(q *Queue) (string, bool) {
	for _, word := range []string{"dead", "dlq", "DLQ", "dead-letter"} {
		for _, between := range []string{".", "-", "_", ""} {
			if name := q.Name + between + word; s.queues[name] != nil {
				return name, true
			}
		}
	}
	return "", false
}

// saysDead reports whether a name says that a queue keeps what others could not process.
func saysDead(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "deadline", "")
	return hasWord(name, "dlq", "dlx", "dead", "parking", "parked", "quarantine", "poison", "unroutable", "unrouted")
}

// saysFailed reports the same of names that ordinary events have too.
func saysFailed(name string) bool { return hasWord(name, "failed", "failure", "error") }

// saysWait reports whether a name says that messages wait in a queue.
func saysWait(name string) bool {
	return hasWord(name, "retry", "retries", "delay", "wait", "defer", "backoff", "redeliver")
}

// saysWork reports whether a name says that consumers work on the messages of a queue.
func saysWork(name string) bool { return hasWord(name, "work") }

func hasWord(name string, words ...string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}
