package try

import (
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// Report is what a trial has shown.
type Report struct {
	Topology string
	// Version is that of the broker, and VHost the virtual host of the trial.
	Version, VHost string
	// Speed is by how much delays were divided.
	Speed int
	Tiers []Tier
	// Notes say what the trial has done in another way than the file says.
	Notes  []string
	Queues []Queue
	// Differences are those that belong to no message.
	Differences []string
	Took        time.Duration
}

// Queue is a work queue, and its messages.
type Queue struct {
	Name string
	// Exchange, Key and Headers are how its messages were published. The empty exchange is the
	// default one, and Why says why.
	Exchange, Key string
	Headers       map[string]any
	Why           string
	Messages      []Message
}

// Message is a message, and what became of it.
type Message struct {
	ID, Name string
	// Stops are the deliveries in its own queue and what follows: those predicted, and behind them
	// those that came and are not predicted.
	Stops []Stop
	// Copies are the other queues that the message is predicted to reach.
	Copies []string
	// Differences are those from what is predicted, of the copies too.
	Differences []string
}

// unpredicted is the event of a delivery that is not predicted.
const unpredicted trace.Event = "not predicted"

// Stop is a message in a queue that the trial consumes.
type Stop struct {
	Queue string
	Role  topology.Role
	Event trace.Event
	// Delivery is its number in a work queue, from 1. Returned is how many times a crash returned it.
	Delivery, Returned int
	Reason             route.Reason
	// Tier is the retry queue in which it waited before, and Count what the processor set. Both are
	// empty if it came from none.
	Tier, Count string
	// Wait is the delay that is predicted since the stop before, and Waited the one measured.
	Wait, Waited time.Duration
	// Due is the time since the publish at which the stop is predicted at the earliest, and Measured
	// the time at which it came.
	Due, Measured time.Duration
	// Came reports whether it came, and Late whether it came late, which is no difference.
	Came, Late bool
	// Lost says why the message is predicted to be lost from here. Empty: it is not.
	Lost string
}

// newStop returns the stop of a step, which did not come yet.
func newStop(s step) Stop {
	out := Stop{
		Queue: s.Queue, Role: s.Role, Event: s.Event, Delivery: s.Delivery, Reason: s.Reason,
		Wait: s.wait(), Due: s.At,
	}
	for _, v := range s.via {
		if v.Count != "" {
			out.Count = v.Count
		}
		if v.Role == topology.RoleRetry {
			out.Tier = v.Queue
		}
	}
	for _, e := range s.Ends {
		if e.Kind == trace.Lost {
			out.Lost = e.Why
			if s.Wait > 0 { // in a dead-letter queue with a TTL
				out.Lost = fmt.Sprintf("after %s, %s", topology.FormatDelay(s.Wait), e.Why)
			}
		}
	}
	return out
}

func (m *Message) differ(format string, args ...any) {
	m.Differences = append(m.Differences, fmt.Sprintf(format, args...))
}

// Counts returns the number of messages, and of those that differ from what is predicted.
func (r Report) Counts() (messages, differing int) {
	for _, q := range r.Queues {
		for _, m := range q.Messages {
			messages++
			if len(m.Differences) > 0 {
				differing++
			}
		}
	}
	return messages, differing
}

// Differs reports whether anything differs from what is predicted.
func (r Report) Differs() bool {
	_, differing := r.Counts()
	return differing > 0 || len(r.Differences) > 0
}
