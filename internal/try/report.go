package try

import (
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// Report is what a trial has shown.
type Report struct {
	Format   jsondoc.V1 `json:"version"`
	Topology string     `json:"topology"`
	// VHost is the virtual host of the trial.
	VHost  string `json:"vhost"`
	Broker Broker `json:"broker"`
	// Speed is by how much delays were divided.
	Speed int `json:"speed"`
	// AsPredicted reports that nothing differs from what is predicted.
	AsPredicted bool `json:"asPredicted"`
	// Messages counts the messages, and Differing those that differ from what is predicted.
	Messages  int `json:"messages"`
	Differing int `json:"differing"`
	// Took is how long the trial took.
	Took  time.Duration `json:"took"`
	Tiers []Tier        `json:"tiers"`
	// Notes say what the trial has done in another way than the file says.
	Notes  []string `json:"notes"`
	Queues []Queue  `json:"queues"`
	// Differences are those that belong to no message.
	Differences []string `json:"differences"`
}

// Broker is the broker of a trial.
type Broker struct {
	// Version is the version of RabbitMQ.
	Version string `json:"version"`
}

// Queue is a work queue, and its messages.
type Queue struct {
	Name string `json:"name"`
	// Exchange, Key and Headers are how its messages were published. The empty exchange is the
	// default one, and Why says why.
	Exchange string         `json:"exchange"`
	Key      string         `json:"key"`
	Headers  map[string]any `json:"headers"`
	Why      string         `json:"whyDefaultExchange"`
	Messages []Message      `json:"messages"`
}

// Message is a message, and what became of it.
type Message struct {
	// Name says what the message tries.
	Name string `json:"name"`
	// ID is the message-id.
	ID string `json:"id"`
	// Stops are the deliveries in its own queue and what follows: those predicted, and behind them
	// those that came and are not predicted.
	Stops []Stop `json:"stops"`
	// Copies are the other queues that the message is predicted to reach.
	Copies []string `json:"copies"`
	// Differences are those from what is predicted, of the copies too.
	Differences []string `json:"differences"`
}

// unpredicted is the event of a delivery that is not predicted.
const unpredicted trace.Event = "not predicted"

// Stop is a message in a queue that the trial consumes.
type Stop struct {
	Queue string        `json:"queue"`
	Role  topology.Role `json:"role"`
	// Event is what happens to the message there.
	Event trace.Event `json:"event"`
	// Delivery is its number in a work queue, from 1. Returned is how many times a crash returned it.
	Delivery int `json:"delivery"`
	Returned int `json:"returned"`
	// Reason is why the message leaves the queue as a dead letter.
	Reason route.Reason `json:"reason"`
	// Tier is the retry queue in which it waited before, and Count what the processor set. Both are
	// empty if it came from none.
	Tier  string `json:"tier"`
	Count string `json:"count"`
	// Wait is the delay that is predicted since the stop before, and Waited the one measured. Nil: the
	// message did not come.
	Wait   time.Duration  `json:"wait"`
	Waited *time.Duration `json:"waited"`
	// Due is the earliest predicted time of the stop, since the publish, and Measured when it came.
	// Nil: the message did not come.
	Due      time.Duration  `json:"due"`
	Measured *time.Duration `json:"measured"`
	// Late reports that it came late, which is not a difference.
	Late bool `json:"late"`
	// Lost says why the message is predicted to be lost from here. Empty: it is not.
	Lost string `json:"lost"`
}

func (s Stop) came() bool { return s.Measured != nil }

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
				out.Lost = fmt.Sprintf("after %s, %s", text.Duration(s.Wait), e.Why)
			}
		}
	}
	return out
}

func (m *Message) differ(format string, args ...any) {
	m.Differences = append(m.Differences, fmt.Sprintf(format, args...))
}

// count counts the messages, and those that differ from what is predicted.
func (r *Report) count() {
	r.Messages, r.Differing = 0, 0
	for _, q := range r.Queues {
		for _, m := range q.Messages {
			r.Messages++
			if len(m.Differences) > 0 {
				r.Differing++
			}
		}
	}
	r.AsPredicted = r.Differing == 0 && len(r.Differences) == 0
}
