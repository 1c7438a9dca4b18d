package spec

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// checkNames returns what is wrong with the names in s taken together: declared
// twice, taken by something that dlxctl makes, or too long for what is made of
// them. It works on a Spec with gaps: what has no name is passed over.
func checkNames(s *Spec) []Problem {
	n := names{spec: s, failed: map[string]string{}, retry: map[string]string{}}
	for _, b := range s.Backoffs {
		n.failed[topology.FailedQueueName(s.Name, b.Name)] = b.Name
		n.retry[topology.RetryExchangeName(s.Name, b.Name)] = b.Name
	}
	n.declaredExchanges()
	n.delays()
	n.declaredQueues()
	n.deadQueues()
	n.removed()
	n.lengths()
	return n.problems
}

// names collects the problems of one Spec.
type names struct {
	spec *Spec
	// failed and retry give the backoff that a name is made of.
	failed, retry map[string]string
	problems      []Problem
}

func (n *names) add(pos Pos, fix, format string, args ...any) {
	n.problems = append(n.problems, Problem{Pos: pos, Msg: fmt.Sprintf(format, args...), Fix: fix})
}

func (n *names) declaredExchanges() {
	first := map[string]Pos{}
	for _, e := range n.spec.Exchanges {
		n.once(first, e.Pos, "exchange", e.Name, "remove one", n.reservedExchange(e.Name))
	}
}

// once checks one declared name: it is not that of another, of those in first, and dlxctl does
// not use it for what it makes, which reserved says. It reports whether the name is the first.
func (n *names) once(first map[string]Pos, pos Pos, kind, name, fix, reserved string) bool {
	if name == "" {
		return false
	}
	if other, twice := first[name]; twice {
		n.add(pos, fix, "%s %q is already declared at %s", kind, name, other)
		return false
	}
	first[name] = pos
	if reserved != "" {
		n.add(pos, "rename it, or the topology", "%s %q has the name that dlxctl uses for %s", kind, name, reserved)
	}
	return true
}

// delays checks the exchanges of the delays against those of the file and each other.
func (n *names) delays() {
	first := map[string]Pos{}
	for _, e := range n.spec.Exchanges {
		first[e.Name] = e.Pos
	}
	for _, x := range n.spec.Delays {
		if !n.once(first, x.Pos, "exchange", x.Name, "rename one", n.reservedExchange(x.Name)) {
			continue
		}
		made := topology.NewDelay(n.spec.Name, x.Name, x.To, x.Max, x.Native)
		longest := made.LevelExchange
		for _, l := range made.Levels {
			if len(l.Queue) > len(longest) {
				longest = l.Queue
			}
		}
		n.length(x.Pos, "delay", x.Name, longest)
	}
}

func (n *names) declaredQueues() {
	first := map[string]Pos{}
	for _, q := range n.spec.Queues {
		what := n.reservedQueue(q.Name)
		if n.spec.Name != "" && q.Name == topology.DeadLetterName(n.spec.Name) {
			what = "the shared dead-letter queue"
		}
		if backoff, failed := topology.FailedBackoff(n.spec.Name, q.Name); failed && !q.External {
			// Also of a backoff that does not exist: apply moves what is in such a queue to other
			// queues once the file has neither.
			what = "the failed queue of backoff " + backoff
		}
		n.once(first, q.Pos, "queue", q.Name, "remove one", what)
	}
}

// deadQueues checks the names of dead-letter queues against the work queues,
// and against each other: two queues may share one, if they agree on it.
func (n *names) deadQueues() {
	works := map[string]bool{}
	for _, q := range n.spec.Queues {
		works[q.Name] = true
	}
	queues := make([]*Queue, 0, len(n.spec.Queues)+len(n.spec.Matches))
	for i := range n.spec.Queues {
		queues = append(queues, &n.spec.Queues[i])
	}
	for _, m := range n.spec.Matches {
		queues = append(queues, &Queue{Name: m.Pattern, Dead: m.Dead, Pos: m.Pos})
	}
	first := map[string]*Queue{}
	for _, q := range queues {
		dead := q.Dead.Queue
		if dead == "" || q.Name == "" {
			continue
		}
		if works[dead] {
			n.add(q.Dead.Pos, "rename the work queue, or choose another dead-letter queue: dead: {queue: NAME}",
				"queue %q has the dead-letter queue %q, which is a work queue of the file", q.Name, dead)
		}
		if what := n.reservedQueue(dead); what != "" {
			n.add(q.Dead.Pos, "choose another name", "dead-letter queue %q of queue %q has the name that dlxctl uses for %s",
				dead, q.Name, what)
		}
		before, shared := first[dead]
		if !shared {
			first[dead] = q
			continue
		}
		if before.Dead.External != q.Dead.External {
			external, other := before.Name, q.Name
			if q.Dead.External {
				external, other = other, external
			}
			n.add(q.Dead.Pos, "write external: true for both, or for neither",
				"dead-letter queue %q is external for queue %q, and not for queue %q", dead, external, other)
		}
		if !before.Dead.Arguments.Equal(q.Dead.Arguments) {
			n.add(q.Dead.Pos, "give both the same arguments",
				"dead-letter queue %q has arguments %s for queue %q and %s for queue %q",
				dead, q.Dead.Arguments, q.Name, before.Dead.Arguments, before.Name)
		}
		if before.Dead.Keep != q.Dead.Keep {
			n.add(q.Dead.Pos, "give both the same keep",
				"dead-letter queue %q has keep %s for queue %q and %s for queue %q",
				dead, keepText(q.Dead), q.Name, keepText(before.Dead), before.Name)
		}
	}
}

// keepText writes how long dead letters are kept.
func keepText(d Dead) string {
	if d.Keep == 0 {
		return "unset"
	}
	return text.Duration(d.Keep)
}

// reservedExchange says what the exchange of that name is in the topology, or
// nothing if the name is free.
func (n *names) reservedExchange(name string) string {
	s := n.spec
	if s.Name == "" {
		return ""
	}
	switch name {
	case topology.UnroutableName(s.Name):
		return "the unroutable exchange"
	case topology.DeadLetterName(s.Name):
		return "the exchange that routes to dead-letter queues"
	case topology.ReturnExchangeName(s.Name):
		return "the exchange that returns messages to their work queues"
	case topology.FailedExchangeName(s.Name):
		return "the exchange that all work queues dead-letter to"
	case topology.NextExchangeName(topology.FailedExchangeName(s.Name)):
		return "the exchange that routes failures while a backoff changes"
	case topology.AnyFailedExchangeName(s.Name), topology.NextExchangeName(topology.AnyFailedExchangeName(s.Name)):
		return "the exchange of failures of queues that a match covers"
	case topology.NextExchangeName(topology.DeadLetterName(s.Name)):
		return "the exchange that routes dead letters while a dead-letter queue changes"
	}
	if backoff, ok := n.failed[name]; ok {
		return fmt.Sprintf("the failed queue of backoff %s", backoff)
	}
	if backoff, ok := n.retry[name]; ok {
		return fmt.Sprintf("the exchange that routes to the tiers of backoff %s", backoff)
	}
	for exchange, backoff := range n.retry {
		if name == topology.NextExchangeName(exchange) {
			return fmt.Sprintf("the exchange that routes retries while the tiers of backoff %s change", backoff)
		}
	}
	if topology.IsDelayName(s.Name, name) {
		return "the exchanges of delays"
	}
	if strings.HasPrefix(name, topology.SwitchPrefix(s.Name)) {
		return "the switch exchange of a migration"
	}
	return ""
}

// reservedQueue says what the queue of that name is in the topology, or nothing
// if the name is free. The shared dead-letter queue is not among them.
// Names of retry queues are taken for backoffs that do not exist, too: the
// processor believes the count of whatever died in such a queue.
func (n *names) reservedQueue(name string) string {
	s := n.spec
	if s.Name == "" {
		return ""
	}
	switch name {
	case topology.UnroutableName(s.Name):
		return "the unroutable queue"
	case topology.LockName(s.Name):
		return "the lock of apply"
	case topology.ParkedName(s.Name):
		return "the messages that dlxctl desk parks"
	}
	if backoff, ok := n.failed[name]; ok {
		return fmt.Sprintf("the failed queue of backoff %s", backoff)
	}
	if topology.IsRetryQueueName(s.Name, name) {
		return "a retry queue"
	}
	if topology.IsDelayName(s.Name, name) {
		return "the queues of delays"
	}
	if strings.HasPrefix(name, topology.HoldName(s.Name, "")) {
		return "the queues of dlxctl desk"
	}
	return ""
}

// lengths checks the declared names and what is made of them, one problem for
// each. What is made of the topology's and the backoffs' names alone cannot be
// too long, since those have 63 bytes at most.
func (n *names) lengths() {
	for _, e := range n.spec.Exchanges {
		n.length(e.Pos, "exchange", e.Name, e.Name)
	}
	for _, q := range n.spec.Queues {
		if q.Unmanaged {
			n.length(q.Pos, "queue", q.Name, q.Name)
			continue
		}
		own := topology.DeadLetterQueueName(q.Name)
		if q.Dead.Queue == own {
			n.length(q.Pos, "queue", q.Name, own)
			continue
		}
		n.length(q.Pos, "queue", q.Name, topology.AddressKey(q.Name))
		n.length(q.Dead.Pos, "dead-letter queue", q.Dead.Queue, q.Dead.Queue)
	}
	for _, m := range n.spec.Matches {
		n.length(m.Dead.Pos, "dead-letter queue", m.Dead.Queue, topology.AddressKey(m.Dead.Queue))
	}
}

// length checks made, the longest name that comes of name.
func (n *names) length(pos Pos, kind, name, made string) {
	over := len(made) - topology.MaxNameBytes
	if over <= 0 {
		return
	}
	msg := fmt.Sprintf("%s %q has %d bytes, more than the %d that AMQP allows", kind, name, len(name),
		topology.MaxNameBytes)
	if made != name && len(name) <= topology.MaxNameBytes {
		msg = fmt.Sprintf("%s %q makes the name %q of %d bytes, more than the %d that AMQP allows", kind, name, made,
			len(made), topology.MaxNameBytes)
	}
	n.add(pos, fmt.Sprintf("shorten it by %d", over), "%s", msg)
}
