package try

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// The messages that each work queue gets.
const (
	succeeds   = "succeeds"
	failsTwice = "fails twice"
	crashes    = "crashes"
	poison     = "poison"
	// Where RabbitMQ does the retries: consumers reject the message without requeue, or requeue it
	// by basic.nack once more than its backoff has retries.
	refused = "no requeue"
	nacked  = "basic.nack"
)

const (
	// mostCrashes is the highest delivery limit up to which consumers crash as often as the queue
	// allows. Each crash opens a channel.
	mostCrashes = 30
	// freeCrashes is how many times consumers crash where the queue has no delivery limit, or a
	// higher one.
	freeCrashes = 3
	// endlessFailures is how many times poison fails in a queue whose own dead-lettering leads back
	// to it without end.
	endlessFailures = 3
)

// message is a message of the trial, and what it meets in its queue and in those to which that
// retries. In every other queue consumers acknowledge their copy.
type message struct {
	id, name, queue string
	way             way
	cause           trace.Cause
	// failures is by queue the number of deliveries that consumers do not acknowledge, or
	// trace.Always.
	failures map[string]int
	// requeues are the queues whose consumers requeue what fails, as RabbitMQ does their retries.
	requeues map[string]bool
	// passes reports that the crashes pass the delivery limit of the queue, once.
	passes    bool
	predicted trace.Report
}

// answer says what the consumer of a queue does with the delivery of a number, from 1.
func (m *message) answer(queue string, delivery int) amqp.Answer {
	switch failures := m.failures[queue]; {
	case failures != trace.Always && delivery > failures:
		return amqp.Acknowledge
	case m.cause == trace.Crash:
		return amqp.Crash
	case m.cause == trace.Refused:
		return amqp.Reject
	case m.cause == trace.Nacked:
		return amqp.Nack
	case m.requeues[queue]:
		return amqp.Requeue
	default:
		return amqp.Reject
	}
}

// messages returns the messages of the trial: four for each work queue, and two more where RabbitMQ
// does the retries.
func (t *trial) messages(version string) []*message {
	state := topology.State{Version: version, Have: t.topology.Topology}
	router := route.New(state)
	requeues, natives := map[string]bool{}, map[string]topology.Backoff{}
	for _, w := range t.topology.WorkQueues {
		natives[w.Name], requeues[w.Name] = t.topology.NativeBackoff(w.Backoff)
	}
	var out []*message
	for _, q := range t.workQueues() {
		m := message{queue: q.Name, way: wayTo(t.topology, router, q.Name), cause: trace.Rejected, requeues: requeues}
		all := []message{
			m.named(succeeds, nil), m.named(failsTwice, t.failing(q.Name, 2)), t.crashing(m, q, state),
			m.named(poison, t.failing(q.Name, trace.Always)),
		}
		if requeues[q.Name] {
			m.cause = trace.Refused
			all = append(all, m.named(refused, map[string]int{q.Name: trace.Always}))
			m.cause = trace.Nacked
			all = append(all, m.named(nacked, map[string]int{q.Name: len(natives[q.Name].Tiers) + 1}))
		}
		for _, one := range all {
			one.id = fmt.Sprintf("try-%s-%d", t.id, len(out))
			t.predict(&one, state)
			out = append(out, &one)
		}
	}
	return out
}

// workQueues returns the work queues in the order of the files. Queues
// whose dead-lettering dlxctl does not manage are among them.
func (t *trial) workQueues() []topology.Queue {
	out := slices.DeleteFunc(slices.Clone(t.topology.Queues), func(q topology.Queue) bool {
		return q.Label.Role != topology.RoleWork
	})
	slices.SortStableFunc(out, func(a, b topology.Queue) int {
		return comparePlaces(t.topology.Places[a.ID()], t.topology.Places[b.ID()])
	})
	return out
}

// failing returns where a message fails that comes to a queue and fails a number of times: each
// queue may retry to another one.
func (t *trial) failing(queue string, times int) map[string]int {
	out := map[string]int{}
	for n := 0; n < times || times == trace.Always && out[queue] != trace.Always; n++ {
		out[queue]++
		if times == trace.Always {
			out[queue] = trace.Always
		}
		if w, ok := t.topology.WorkQueue(queue); ok {
			queue = w.ReturnsTo()
		}
	}
	return out
}

func (m message) named(name string, failures map[string]int) message {
	m.name, m.failures = name, failures
	return m
}

// crashing returns the message that crashes its consumer: until the delivery limit of the queue is
// passed once, or a few times where there is none.
func (t *trial) crashing(m message, q topology.Queue, state topology.State) message {
	m.cause = trace.Crash
	limit, limited := policy.DeliveryLimit(state, q, policy.Effective(state, q))
	if m.passes = limited && limit <= mostCrashes; m.passes {
		return m.named(crashes, map[string]int{m.queue: int(limit) + 1})
	}
	return m.named(crashes, map[string]int{m.queue: freeCrashes})
}

func (t *trial) predict(m *message, state topology.State) {
	failures := maps.Clone(m.failures)
	switch {
	case m.requeues[m.queue]: // each delivery is one of the backoff
	case m.passes: // to the queue, all crashes up to the limit are one failure
		failures[m.queue] = 1
	case m.cause == trace.Crash: // and below it they are none
		failures[m.queue] = 0
	}
	in := trace.Input{
		State: state, Files: []topology.Compiled{t.topology}, Exchange: m.way.exchange, Key: m.way.key,
		Headers: m.way.headers, Cause: m.cause, QueueFailures: failures,
	}
	m.predicted = trace.Run(in)
	if m.name == poison && isEndless(m.predicted) {
		m.failures[m.queue], in.QueueFailures[m.queue] = endlessFailures, endlessFailures
		m.predicted = trace.Run(in)
	}
	if m.cause == trace.Crash && !m.passes && !m.requeues[m.queue] {
		m.returnFirst()
	}
}

// returnFirst notes the crashes below the delivery limit with the first delivery.
func (m *message) returnFirst() {
	for _, j := range m.predicted.Journeys {
		if j.Queue == m.queue && len(j.Stops) > 0 {
			j.Stops[0].Returned = m.failures[m.queue]
		}
	}
}

func (t *trial) hasLimit(queue string) bool {
	return slices.ContainsFunc(t.topology.Queues, func(q topology.Queue) bool {
		return q.Name == queue && q.Arguments.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes)
	})
}

// isEndless reports whether a copy goes round without end.
func isEndless(r trace.Report) bool {
	for _, j := range r.Journeys {
		for _, s := range j.Stops {
			for _, e := range s.Ends {
				if e.Kind == trace.Endless {
					return true
				}
			}
		}
	}
	return false
}
