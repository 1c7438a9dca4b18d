package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// previousDeadLetterQueue reports whether q, a queue that is not in the file, is the dead-letter
// queue that a work queue of the file had before. Like a retired tier it is deleted only once it is
// empty. The dead-letter queue of a work queue that is itself no longer in the file is not one: it
// goes with the work queue, by consent. That of an entry with match is one as long as the file has
// such an entry: it is not known in which queues its dead letters failed.
func (r *resolver) previousDeadLetterQueue(q topology.Queue) bool {
	matches := len(r.want.Matches) > 0
	if len(r.want.WorkQueues) == 0 && !matches || !r.owns(q.Arguments) {
		return false
	}
	var serves, bound bool // a work queue of the file; any queue
	for _, b := range r.bindingsTo(q.Name) {
		if !r.picksDeadLetterQueue(b.Source) {
			continue
		}
		_, known := r.works[strings.TrimPrefix(b.Key, topology.AddressKey(""))]
		serves, bound = serves || known || matches && b.Key == topology.AddressKey(q.Name), true
	}
	if bound {
		return serves
	}
	return r.namedDeadLetterQueue(q.Name) || r.perhapsDeadLetterQueue(q)
}

// namedDeadLetterQueue reports whether a queue has the name that dlxctl gives the dead-letter queue
// of queues of the file: the shared one, and the own one of a work queue of the file, or of one
// that an entry with match may have covered.
func (r *resolver) namedDeadLetterQueue(name string) bool {
	label := r.queueLabel(name, topology.RoleWork)
	_, known := r.works[label.Queue]
	_, exists := r.existing[label.Queue]
	return label.Role == topology.RoleDeadLetter &&
		(label.Queue == "" || known || len(r.want.Matches) > 0 && !exists)
}

// perhapsDeadLetterQueue reports whether q, an own queue that is not in the file, looks like a
// dead-letter queue whose name an earlier file chose, such as dead: {queue: graves}, and to which
// nothing is bound any more. The name may end like an own one: payments.dead, without a queue
// payments. If there was one, an apply with consent to delete both was stopped halfway.
//
// A work queue looks the same that has deadLetterBy: unmanaged, gets its messages by its name, and
// is classic or has the highest delivery limit: so names that the file lists under removed are
// those of work queues, which go by consent. A topology without the exchange that picks dead-letter
// queues has made none.
func (r *resolver) perhapsDeadLetterQueue(q topology.Queue) bool {
	kept := q.Type() == topology.Classic || // else no file can have made it one
		q.Type() == topology.Quorum && q.Arguments[topology.ArgDeliveryLimit] == topology.Unlimited
	role := r.queueLabel(q.Name, topology.RoleWork).Role
	chosen := role == topology.RoleWork || role == topology.RoleDeadLetter && !r.namedDeadLetterQueue(q.Name)
	if !kept || !chosen || slices.Contains(r.want.Removed, q.Name) {
		return false
	}
	// A managed work queue has a return path, which is deleted with it, and dead-lettering.
	_, deadLetters := q.Arguments[topology.ArgDeadLetterExchange]
	policy := slices.ContainsFunc(r.state.Have.Policies, func(p topology.Policy) bool {
		return p.Name == topology.PolicyName(r.want.Name, q.Name)
	})
	dead := slices.ContainsFunc(r.state.Have.Exchanges, func(e topology.Exchange) bool {
		return e.Name == topology.DeadLetterName(r.want.Name) && r.owns(e.Arguments)
	})
	return dead && !deadLetters && !policy && len(r.bindingsTo(q.Name)) == 0
}

// bindingsTo returns the bindings that end at a queue.
func (r *resolver) bindingsTo(queue string) []topology.Binding {
	var out []topology.Binding
	for _, b := range r.state.Have.Bindings {
		if b.DestinationType == topology.ToQueue && b.Destination == queue {
			out = append(out, b)
		}
	}
	return out
}

// retiresDeadLetters reports whether a previous dead-letter queue stays, and notes it: it holds
// messages, has consumers, or dead letters can still come to it. The counts that it goes by are up
// to 5 seconds old: a queue that is bound now is deleted by a later apply.
func (r *orphans) retiresDeadLetters(q topology.Queue) bool {
	u := r.usage(q.Name)
	held, bound := u.Ready+u.Unacknowledged, len(r.bindingsTo(q.Name)) > 0
	if held == 0 && u.Consumers == 0 && !bound {
		return false
	}
	what, why, or := "the dead-letter queue", "", ""
	if r.perhapsDeadLetterQueue(q) {
		what, why = "the queue", ", as it may be a previous dead-letter queue"
		or = "; if it is a work queue, list it under removed"
	}
	line := fmt.Sprintf("%s %s is no longer declared and is kept until it is empty%s: %s", what, text.Name(q.Name), why,
		text.Count(held, "message"))
	if bound {
		line += countAge
	}
	if u.Consumers > 0 {
		line += ", " + text.Count(u.Consumers, "consumer")
	}
	r.warn(topology.WarnRetiredDeadLetters, line+"; to delete it, empty it and run apply again"+or)
	r.retiredDead = append(r.retiredDead, q.Name)
	return true
}

// PreviousDeadLetterQueues returns the dead-letter queues that work queues of a topology had by a
// previous file, as far as they hold messages, or may: the broker does not tell.
func PreviousDeadLetterQueues(want topology.Compiled, state topology.State) []string {
	r := &resolver{
		want: want, state: state,
		works:    byName(want.WorkQueues, func(w topology.WorkQueue) string { return w.Name }),
		existing: byName(state.Have.Queues, func(q topology.Queue) string { return q.Name }),
		working:  foundWork(want.Name, state),
	}
	inFile := namesOf(want.Queues, func(q topology.Queue) string { return q.Name })
	var out []string
	for _, q := range state.Have.Queues {
		if !inFile[q.Name] && (r.held(q.Name) > 0 || state.Usage[q.Name].Uncounted) && r.previousDeadLetterQueue(q) {
			out = append(out, q.Name)
		}
	}
	return out
}
