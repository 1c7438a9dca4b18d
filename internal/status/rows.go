package status

import (
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// Work is what a person wants to know of a work queue, or of the legacy queue that it replaces.
type Work struct {
	Name string `json:"name"`
	// Role is [topology.RoleWork] or [topology.RoleLegacy].
	Role topology.Role `json:"-"`
	// Backoff is empty for a legacy queue.
	Backoff  string `json:"-"`
	Owner    string `json:"-"`
	Severity string `json:"-"`
	Type     string `json:"-"`

	Ready          int64 `json:"ready"`
	Unacknowledged int64 `json:"unacknowledged"`
	// Other is how many messages are neither ready nor unacknowledged.
	Other int64 `json:"other,omitempty"`
	// Retrying is how many messages are in the failed queue and the retry queues of its backoff. With
	// a native one RabbitMQ delays or dead-letters them.
	Retrying int64 `json:"retrying"`
	// Native says that its backoff is native.
	Native bool `json:"native,omitempty"`
	// SharedRetrying says that other queues use the backoff too, so that Retrying has messages of
	// all of them.
	SharedRetrying bool `json:"sharedRetrying,omitempty"`
	// Dead is how many messages its dead-letter queue holds, and those where its dead letters went
	// by a previous file.
	Dead int64 `json:"dead"`
	// SharedDead says that other queues use one of these queues too.
	SharedDead bool `json:"sharedDead,omitempty"`

	Consumers        int64 `json:"-"`
	ConsumersUnknown bool  `json:"-"`
	// Oldest is that of [Queue].
	Oldest time.Time `json:"-"`
	// NextDue is that of [Queue].
	NextDue time.Time `json:"-"`
	// InOutageSince is since when the queue is in outage, as processors tell. Zero: none tells that.
	InOutageSince time.Time `json:"inOutageSince,omitzero"`
	// InOutageBefore says that no processor saw the outage begin: it may be older.
	InOutageBefore bool `json:"inOutageBefore,omitempty"`
	// Problems are the names of the problems of this queue: dead-letters, no-consumers,
	// consumers-unknown, loops, stuck, outage. What is wrong with its backoff is not among them.
	Problems []string `json:"problems"`
}

// Quiet reports that nothing is wrong with the queue, that it has consumers, and that no message of
// its own is anywhere.
func (w Work) Quiet() bool { return len(w.Problems) == 0 && w.Consumers > 0 && w.messages() == 0 }

// messages counts the messages that are the queue's own.
func (w Work) messages() int64 {
	n := w.Ready + w.Unacknowledged + w.Other
	if !w.SharedRetrying {
		n += w.Retrying
	}
	if !w.SharedDead {
		n += w.Dead
	}
	return n
}

// Backoff is the state of the failed queue and the retry queues of a backoff.
type Backoff struct {
	Name string
	// Queues is how many work queues of the file use it. Zero: it is no longer in the file.
	Queues int
	// Failed is how many messages wait for the processor.
	Failed int64
	// Tiers are its retry queues.
	Tiers []Tier
	// Processors is how many consumers the failed queue has.
	Processors        int64
	ProcessorsUnknown bool
	// Unprocessed says that it is in the file, and that its failed queue exists and has no
	// consumers.
	Unprocessed bool
	// Asked says that the failed queue itself was asked for its consumers. Else the number is up to
	// 10 seconds old.
	Asked bool
}

// Tier is the state of a retry queue.
type Tier struct {
	Delay    time.Duration
	Messages int64
	// Outage says that messages wait there for the end of an outage.
	Outage bool
	// Timer says that RabbitMQ holds the messages of a delay there until they are due.
	Timer bool
	// NextDue is when the first of them is due, as far as the broker tells.
	NextDue time.Time
}

// Retrying counts the messages that wait for their delay.
func (b Backoff) Retrying() int64 {
	n := int64(0)
	for _, t := range b.Tiers {
		n += t.Messages
	}
	return n
}

// Quiet reports that the backoff has a processor, and that no message is in it.
func (b Backoff) Quiet() bool { return b.Processors > 0 && b.Failed == 0 && b.Retrying() == 0 }

// backoffs adds those that have queues.
func (m *maker) backoffs() {
	index := map[string]int{}
	for _, q := range m.out.Queues {
		if q.DelayOf != "" || q.Role != topology.RoleFailed && q.Role != topology.RoleRetry {
			continue
		}
		i, ok := index[q.Backoff]
		if !ok {
			i, index[q.Backoff] = len(m.out.Backoffs), len(m.out.Backoffs)
			m.out.Backoffs = append(m.out.Backoffs, Backoff{Name: q.Backoff})
		}
		b := &m.out.Backoffs[i]
		if q.Role == topology.RoleRetry {
			b.Tiers = append(b.Tiers, Tier{
				Delay: q.Delay, Messages: q.Messages, Outage: topology.IsOutageQueueName(m.t.Name, q.Name),
			})
			continue
		}
		_, wanted := m.t.Backoff(q.Backoff)
		b.Failed, b.Processors, b.ProcessorsUnknown = q.Messages, q.Consumers, q.ConsumersUnknown
		b.Asked = m.state.Usage[q.Name].ConsumersAsked
		held := !b.Asked && q.Unacknowledged > 0 // by a consumer that the statistics do not show yet
		b.Unprocessed = wanted && q.Consumers == 0 && !q.ConsumersUnknown && !held
	}
	for _, w := range m.t.WorkQueues {
		if i, ok := index[w.Backoff]; ok {
			m.out.Backoffs[i].Queues++
		}
	}
}

// works adds the work queues and the legacy queues.
func (m *maker) works() {
	queues := map[string]Queue{}
	for _, q := range m.out.Queues {
		queues[q.Name] = q
	}
	retrying := map[string]Backoff{}
	for _, b := range m.out.Backoffs {
		retrying[b.Name] = b
	}
	for _, w := range m.t.WorkQueues {
		if q, ok := queues[w.Name]; ok {
			row := workOf(q)
			b := retrying[w.Backoff]
			row.Retrying, row.SharedRetrying = b.Failed+b.Retrying(), b.Queues > 1
			if _, row.Native = m.t.NativeBackoff(w.Backoff); row.Native {
				row.Retrying, row.Other = row.Other, 0
			}
			for _, queue := range m.deadLetterQueues(w) {
				row.Dead += queues[queue].Messages
				counts := queue == w.DeadLetterQueue || queues[queue].Messages > 0
				row.SharedDead = row.SharedDead || counts && m.dead[queue] > 1
			}
			row.Problems = append(row.Problems, m.trafficProblems(w.Name)...)
			if began, out := m.began(w); out {
				row.InOutageSince, row.InOutageBefore = began.At, began.AtLeast
				row.Problems = append(row.Problems, outage)
			}
			if row.Dead > 0 && !row.SharedDead {
				row.Problems = append(row.Problems, deadLetters)
			}
			m.out.Works = append(m.out.Works, row)
		}
		if old, ok := queues[w.Replaces]; ok && old.Role == topology.RoleLegacy {
			m.out.Works = append(m.out.Works, workOf(old))
			delete(queues, w.Replaces) // another successor may name it too
		}
	}
}

// workOf returns what the queue itself says.
func workOf(q Queue) Work {
	w := Work{
		Name: q.Name, Role: q.Role, Backoff: q.Backoff, Owner: q.Owner, Severity: q.Severity, Type: q.Type,
		Ready: q.Messages - q.Unacknowledged - q.Other, Unacknowledged: q.Unacknowledged, Other: q.Other,
		Consumers: q.Consumers, ConsumersUnknown: q.ConsumersUnknown, Oldest: q.Oldest, NextDue: q.NextDue,
	}
	switch {
	case q.Role != topology.RoleWork || q.Type == topology.Stream: // a stream does not report consumers
	case q.ConsumersUnknown:
		w.Problems = append(w.Problems, consumersUnknown)
	case q.Consumers == 0:
		w.Problems = append(w.Problems, noConsumers)
	}
	return w
}
