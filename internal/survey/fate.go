package survey

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Fate is what happens to the messages of a queue that fail.
type Fate string

// The fates.
const (
	// Kept means that every failed message reaches a queue that keeps it.
	Kept Fate = "kept"
	// Endless means that none is lost, and rejected ones come back without end.
	Endless Fate = "endless"
	// Lost means that some failed messages are gone.
	Lost Fate = "lost"
	// Undecided means that the objects do not tell.
	Undecided Fate = "unknown"
)

// Way is what happens to messages of a queue that die for a reason.
type Way struct {
	Reason route.Reason
	Fate   Fate
	// Ends say where a lost message ends. A message is lost if all of its copies are.
	Ends []route.End
	// Hops are the queues on the way to the first end or to where it stays.
	Hops []string
	// Returns is true if the message comes back to the queue that it died in.
	Returns bool
	// Known is true if messages of services are known to take it; see [Hop].
	Known bool
	// Discards names a queue on the way that gives up what it was sent to keep; Dies is why.
	Discards string
	Dies     route.Reason
}

// Reasons returns why messages of a queue may die: a consumer can always reject one.
func (s *Survey) Reasons(q *Queue) []route.Reason {
	out := []route.Reason{route.Rejected}
	if q.Args.HasAny(topology.ArgMessageTTL) {
		out = append(out, route.Expired)
	}
	overflow, _ := q.Args[topology.ArgOverflow].(string)
	if q.DropsHead() || q.Refuses() && overflow == policy.RejectPublishDLX {
		out = append(out, route.MaxLen)
	}
	if _, _, ok := s.Delivers(q); ok {
		out = append(out, route.DeliveryLimit)
	}
	return out
}

// follow computes what happens to the failed messages of each queue.
func (s *Survey) follow() {
	for _, q := range s.Queues {
		if q.Type() == topology.Stream || q.Generated() || !q.DeadLetters {
			continue
		}
		for _, reason := range s.Reasons(q) {
			for _, h := range q.Hops {
				q.Ways = append(q.Ways, s.way(q, h, reason))
			}
			if len(q.Hops) == 0 { // its keys are not known
				q.Ways = append(q.Ways, Way{Reason: reason, Fate: Undecided})
			}
		}
	}
}

// maxHops is how many queues a message is followed through.
const maxHops = 12

// way follows messages with certain keys that die in a queue.
func (s *Survey) way(q *Queue, h Hop, reason route.Reason) Way {
	w := Way{Reason: reason, Fate: Undecided, Known: h.Known}
	if h.Verdict == Unknown || h.Verdict == Partly {
		return w
	}
	sample := h.Keys.Samples()[0]
	t := trace{survey: s, start: q, way: &w}
	w.Fate = t.deadLetter(q, route.Message{Keys: []string{sample}}, reason)
	if w.Fate != Lost {
		w.Ends = nil
	}
	return w
}

// trace is the path of one message, through queues in which no consumer looks at it.
type trace struct {
	survey *Survey
	start  *Queue
	way    *Way
	depth  int
}

// deadLetter returns what happens to a message that dies in a queue.
func (t *trace) deadLetter(q *Queue, m route.Message, reason route.Reason) Fate {
	if t.depth++; t.depth > maxHops {
		return Undecided
	}
	result := t.survey.Router.DeadLetter(q.Name, m, reason)
	if len(result.Stuck) > 0 {
		return Kept // in the queue that it died in
	}
	fate := Lost
	for _, name := range result.Queues {
		switch f := t.enter(t.survey.queues[name], result.Message); {
		case f == Kept:
			fate = Kept
		case f == Undecided && fate == Lost:
			fate = Undecided
		}
	}
	switch {
	case fate == Kept:
	case t.survey.undecided(result):
		return Undecided
	default:
		t.way.Ends = append(t.way.Ends, result.Lost...)
	}
	return fate
}

// enter returns what happens to a message that comes to a queue as a dead letter.
func (t *trace) enter(q *Queue, m route.Message) Fate {
	t.way.Hops = append(t.way.Hops, q.Name)
	if q == t.start {
		t.way.Returns = true
	}
	switch {
	case q == t.start || q.Role == topology.RoleWork || q.Type() == topology.Stream:
		return Kept
	case q.Role == topology.RoleFailed && q.Made:
		if fate := t.wait(q, m); fate != Kept { // by a policy of others
			return fate
		}
		return t.exhaust(q)
	case q.Generated():
		return Kept
	}
	return t.wait(q, m)
}

// wait returns what happens to a message in a queue in which no consumer looks at it.
func (t *trace) wait(q *Queue, m route.Message) Fate {
	if slices.ContainsFunc(q.Losses(), policy.Loss.Deletes) {
		t.way.Discards = q.Name // it is deleted with its messages
		return Lost
	}
	fate := Kept
	for _, reason := range t.survey.Leaves(q) {
		if !q.DeadLetters && q.Retains(reason) {
			continue
		}
		if !q.DeadLetters {
			t.way.Discards, t.way.Dies = q.Name, reason
			t.way.Ends = append(t.way.Ends, route.End{Cause: route.NoDeadLettering, Queue: q.Name})
			return Lost
		}
		if f := t.deadLetter(q, m, reason); f == Lost || f == Undecided && fate == Kept {
			fate = f
			if f == Lost && t.way.Discards == "" {
				t.way.Discards, t.way.Dies = q.Name, reason
			}
		}
	}
	return fate
}

// exhaust returns what happens to a message in a failed queue whose last attempt fails: the
// processor publishes it to the dead-letter exchange of its topology, and keeps it in the failed
// queue if no queue gets it. Where the address may be one of several, it is Undecided unless all of
// them agree.
func (t *trace) exhaust(failed *Queue) Fate {
	owner, _ := topology.Owner(failed.Arguments)
	fate := Kept
	for i, key := range t.lastAddresses(owner) {
		f := t.publish(topology.DeadLetterName(owner), key)
		if i > 0 && f != fate {
			return Undecided
		}
		fate = f
	}
	return fate
}

// lastAddresses returns the addresses that a dead letter of the processor of a topology may have:
// that of its work queue, or of the dead-letter queue of a match, if one covers the work queue. The
// broker does not say which match does.
func (t *trace) lastAddresses(owner string) []string {
	var out []string
	dead := topology.DeadLetterName(owner)
	for _, source := range []string{dead, topology.NextExchangeName(dead)} {
		e := t.survey.exchanges[source]
		if e == nil || t.start.To.Key != topology.UnnamedAddress {
			continue
		}
		for _, b := range e.Out {
			of, _ := topology.Owner(b.Arguments)
			if of == owner && b.DestinationType == topology.ToQueue && b.Key == topology.AddressKey(b.Destination) {
				out = append(out, b.Key)
			}
		}
	}
	if len(out) == 0 {
		return []string{topology.AddressKey(t.start.Name)}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// publish returns what happens to a message that the processor publishes.
func (t *trace) publish(exchange, key string) Fate {
	result := t.survey.Router.Publish(exchange, key, nil)
	fate := Kept
	for i, name := range result.Queues {
		f := t.enter(t.survey.queues[name], result.Message)
		if f == Kept {
			return Kept
		}
		if i == 0 || f == Undecided {
			fate = f
		}
	}
	return fate
}

// Retains reports whether what the queue gives up for a reason was kept long enough; see
// [policy.Loss.Retains].
func (q *Queue) Retains(reason route.Reason) bool {
	gives := map[route.Reason][]string{
		route.Expired: {topology.ArgMessageTTL},
		route.MaxLen:  {topology.ArgMaxLength, topology.ArgMaxLengthBytes},
	}[reason]
	losses := slices.DeleteFunc(q.Losses(), func(l policy.Loss) bool { return !slices.Contains(gives, l.Argument) })
	return len(losses) > 0 && !slices.ContainsFunc(losses, func(l policy.Loss) bool { return !l.Retains() })
}

// Leaves returns why messages leave a queue that has no consumers.
func (s *Survey) Leaves(q *Queue) []route.Reason {
	return slices.DeleteFunc(s.Reasons(q), func(r route.Reason) bool {
		return r != route.Expired && r != route.MaxLen
	})
}

// Counts reports whether a queue is one of those of which [Survey.Fates] tells.
func (s *Survey) Counts(q *Queue) bool {
	return q.Role == topology.RoleWork && (!q.Temporary() || q.DeadLetters)
}

// Fates returns what happens to failed messages, by work queue. Queues that a client declared for
// itself are left out, unless they dead-letter.
func (s *Survey) Fates() map[string]Fate {
	out := map[string]Fate{}
	for _, q := range s.Queues {
		if s.Counts(q) {
			out[q.Name] = q.Fate()
		}
	}
	return out
}

// Fate returns the worst of what happens to failed messages of a queue. Where two policies of the
// same priority match an object, and it matters which of them RabbitMQ chooses, it is Undecided, or
// Endless if none is lost.
func (q *Queue) Fate() Fate {
	if q.host.Outcomes == 0 {
		q.host.setFates()
	}
	return q.fate
}

// Tied reports whether the fate of the queue depends on which of two policies RabbitMQ chooses.
func (q *Queue) Tied() bool { return q.Fate() != q.Assumed() }

// Assumed returns the worst of what happens by the policies that the survey takes to be in effect:
// those that a broker reports, or else the first by name.
func (q *Queue) Assumed() Fate {
	if !q.DeadLetters {
		return Lost
	}
	worst := []Fate{Lost, Undecided, Endless, Kept}
	at := len(worst) - 1
	for _, w := range q.Ways {
		fate := w.Fate
		if fate == Kept && w.Returns && w.Reason == route.Rejected {
			fate = Endless
		}
		at = min(at, slices.Index(worst, fate))
	}
	return worst[at]
}

// Returns reports whether messages of the queue that die may come back to it.
func (q *Queue) Returns() bool {
	return slices.ContainsFunc(q.Ways, func(w Way) bool { return w.Returns && !q.Supposed(w) })
}

// Supposed reports whether no message is known to take a way, while messages that are known are
// lost: what would happen on the way says nothing of them.
func (q *Queue) Supposed(way Way) bool {
	return !way.Known && slices.ContainsFunc(q.Ways, func(w Way) bool {
		return w.Known && w.Reason == way.Reason && w.Fate == Lost
	})
}

// Score says of how many work queues failed messages are kept. Count is how many there are of each
// fate.
func Score(count map[Fate]int) string {
	n := count[Kept] + count[Endless] + count[Lost] + count[Undecided]
	if n == 0 {
		return "there are no work queues whose messages could fail"
	}
	all := map[int]string{count[Kept]: "kept", count[Endless]: "retried without end", count[Lost]: "lost"}
	if what, only := all[n]; only {
		return fmt.Sprintf("failed messages are %s in %s", what, text.Choose(n, "the only work queue",
			fmt.Sprintf("all %d work queues", n)))
	}
	endless := ""
	if count[Endless] > 0 {
		endless = fmt.Sprintf(" retried without end in %d,", count[Endless])
	}
	return fmt.Sprintf("failed messages are kept in %d of %s,%s lost in %d, unknown in %d", count[Kept],
		text.Count(n, "work queue"), endless, count[Lost], count[Undecided])
}
