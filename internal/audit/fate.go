package audit

import (
	"slices"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// way is what happens to messages of a queue that die for a reason.
type way struct {
	reason route.Reason
	keys   keys
	fate   Fate
	// ends say where a lost message ends. A message is lost if all of its copies are.
	ends []route.End
	// hops are the queues on the way to the first end or to where it stays.
	hops []string
	// returns is true if the message comes back to the queue that it died in.
	returns bool
	// discards names a queue on the way that gives up what it was sent to keep; dies is why.
	discards string
	dies     route.Reason
}

// reasons returns why messages of a queue may die: a consumer can always reject one.
func (x *index) reasons(q *queue) []route.Reason {
	out := []route.Reason{route.Rejected}
	if q.args.HasAny(topology.ArgMessageTTL) {
		out = append(out, route.Expired)
	}
	overflow, _ := q.args[topology.ArgOverflow].(string)
	if q.dropsHead() || q.refuses() && overflow == rejectPublishDLX {
		out = append(out, route.MaxLen)
	}
	if _, _, ok := x.delivers(q); ok {
		out = append(out, route.DeliveryLimit)
	}
	return out
}

// follow computes what happens to the failed messages of each queue.
func (x *index) follow() {
	for _, q := range x.queues {
		if q.role == stream || q.role == managed || !q.deadLetters {
			continue
		}
		for _, reason := range x.reasons(q) {
			for _, h := range q.hops {
				q.ways = append(q.ways, x.way(q, h, reason))
			}
			if len(q.hops) == 0 { // its keys are not known
				q.ways = append(q.ways, way{reason: reason, keys: anyKey(), fate: Undecided})
			}
		}
	}
}

// maxHops is how many queues a message is followed through.
const maxHops = 12

// way follows messages with certain keys that die in a queue.
func (x *index) way(q *queue, h hop, reason route.Reason) way {
	w := way{reason: reason, keys: h.keys, fate: Undecided}
	if h.verdict == unknown || h.verdict == partly {
		return w
	}
	sample := h.keys.samples()[0]
	t := trip{index: x, start: q, way: &w}
	w.fate = t.die(q, route.Message{Keys: []string{sample}}, reason)
	if w.fate != Lost {
		w.ends = nil
	}
	return w
}

// trip is the way of one message, through queues in which no consumer looks at it.
type trip struct {
	index *index
	start *queue
	way   *way
	depth int
}

// die returns what happens to a message that dies in a queue.
func (t *trip) die(q *queue, m route.Message, reason route.Reason) Fate {
	if t.depth++; t.depth > maxHops {
		return Undecided
	}
	result := t.index.router.DeadLetter(q.Name, m, reason)
	if len(result.Stuck) > 0 {
		return Kept // in the queue that it died in
	}
	fate := Lost
	for _, name := range result.Queues {
		switch f := t.enter(t.index.byName[name], result.Message); {
		case f == Kept:
			fate = Kept
		case f == Undecided && fate == Lost:
			fate = Undecided
		}
	}
	switch {
	case fate == Kept:
	case t.index.undecided(result):
		return Undecided
	default:
		t.way.ends = append(t.way.ends, result.Lost...)
	}
	return fate
}

// enter returns what happens to a message that comes to a queue as a dead letter.
func (t *trip) enter(q *queue, m route.Message) Fate {
	t.way.hops = append(t.way.hops, q.Name)
	if q == t.start {
		t.way.returns = true
	}
	if q == t.start || q.role == work || q.role == managed || q.role == stream {
		return Kept
	}
	if q.AutoDelete || q.args.HasAny("x-expires") {
		t.way.discards = q.Name // it is deleted with its messages
		return Lost
	}
	fate := Kept
	for _, reason := range t.index.leaves(q) {
		if !q.deadLetters {
			t.way.discards, t.way.dies = q.Name, reason
			t.way.ends = append(t.way.ends, route.End{Cause: route.NoDeadLettering, Queue: q.Name})
			return Lost
		}
		if f := t.die(q, m, reason); f == Lost || f == Undecided && fate == Kept {
			fate = f
			if f == Lost && t.way.discards == "" {
				t.way.discards, t.way.dies = q.Name, reason
			}
		}
	}
	return fate
}

// leaves returns why messages leave a queue that has no consumers.
func (x *index) leaves(q *queue) []route.Reason {
	return slices.DeleteFunc(x.reasons(q), func(r route.Reason) bool {
		return r != route.Expired && r != route.MaxLen
	})
}

// fates returns what happens to failed messages, by work queue.
func (x *index) fates() map[string]Fate {
	out := map[string]Fate{}
	for _, q := range x.queues {
		if q.role == work && !q.temporary() && !namedLikeKeeper(q.Name) || q.role == work && q.deadLetters {
			out[q.Name] = q.fate()
		}
	}
	return out
}

// fate returns the worst of what happens to messages of a queue.
func (q *queue) fate() Fate {
	if !q.deadLetters {
		return Lost
	}
	fate := Kept
	for _, w := range q.ways {
		if w.fate == Lost {
			return Lost
		}
		if w.fate == Undecided {
			fate = Undecided
		}
	}
	return fate
}
