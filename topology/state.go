package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

// State is what was read from a broker.
type State struct {
	// Version is the broker's version, such as 4.0.5.
	Version string
	// Cluster is the name of its cluster.
	Cluster string
	// VHost is the virtual host that was read.
	VHost string
	// ExchangeTypes are those that the broker knows. Nil is not known.
	ExchangeTypes []string
	// Have are the objects of the virtual host: those of other teams included.
	Have Topology
	// Down are the queues that exist and that Have lacks, as the broker does not list them: their node
	// is down. What they hold is not known.
	Down []string
	// Usage is, by queue name, what a queue holds.
	Usage map[string]Usage
	// QueuePolicies names, by queue, the policy in effect, as the broker reports it. A
	// queue without one is not in it. Nil where the broker does not report it.
	QueuePolicies map[string]string
	// ExchangePolicies names, by exchange, the policy in effect.
	ExchangePolicies map[string]string
	// DisabledFlags are the feature flags that are not enabled. Nil where the user
	// may not read them.
	DisabledFlags []string
	// Alarm describes the alarms in effect, such as "memory alarm on rabbit@a". Empty: none.
	Alarm string
	// OperatorPolicies are the operator policies. Nil where the user may not read them.
	OperatorPolicies []Policy
}

// WithDown returns the state with the queues of Down among the others, of which only the names are
// known.
func (s State) WithDown() State {
	s.Have.Queues = slices.Clone(s.Have.Queues)
	for _, name := range s.Down {
		s.Have.Queues = append(s.Have.Queues, Queue{Name: name, Durable: true})
	}
	return s
}

// Major returns the first number of the broker's version, 0 if there is none.
func (s State) Major() int {
	first, _, _ := strings.Cut(s.Version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// AtLeast reports whether the broker's version is that or a later one, by its first two numbers.
func (s State) AtLeast(major, minor int) bool {
	_, rest, _ := strings.Cut(s.Version, ".")
	second, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(second)
	return s.Major() > major || s.Major() == major && err == nil && n >= minor
}

// DelaysRetries reports whether native backoffs are for RabbitMQ of the state's version: for
// [FirstNative] and later. A version without a third number is taken for the newest of its line.
func (s State) DelaysRetries() bool {
	return s.AtLeast(4, 3) && !strings.HasPrefix(s.Version, "4.3.0")
}

// Usage is what a queue holds, as of the last statistics of the broker.
type Usage struct {
	Ready int64 `json:"ready"`
	// Unacknowledged is how many messages are not ready: those that consumers hold, and Other.
	Unacknowledged int64 `json:"unacknowledged"`
	// Other is how many of Unacknowledged no consumer holds: RabbitMQ is dead-lettering them, or, from
	// 4.3 on, delays them (x-delayed-retry-type).
	Other int64 `json:"other,omitempty"`
	// Uncounted says that the broker does not report how many messages the queue holds: its node is
	// down, or it is a stream. Ready and Unacknowledged are then 0.
	Uncounted bool `json:"-"`
	// Consumers are those of all users.
	Consumers int64 `json:"consumers"`
	// ConsumersUnknown says that the broker did not report whether the queue has
	// consumers. What is unsafe with consumers is then refused.
	ConsumersUnknown bool `json:"consumersUnknown,omitempty"`
	// ConsumersAsked says that the queue itself was asked how many consumers it has at this moment.
	// Else the number is that of the statistics, up to 10 seconds old.
	ConsumersAsked bool `json:"-"`
	// Bytes is the size of the message bodies. Zero also where it is not known: for some seconds, or
	// without statistics.
	Bytes int64 `json:"bytes"`
	// Oldest is the timestamp of the message at the head of the queue. Zero: not known. The broker
	// reports it for classic queues whose publishers set it.
	Oldest time.Time `json:"-"`
	// NextDue is when the first message that RabbitMQ 4.3 delays is due, by statistics that are up to
	// 12 seconds old. Zero: there is none, or it is not known.
	NextDue time.Time `json:"-"`
}

// MayBeConsumed reports whether the queue has consumers, or may have some.
func (u Usage) MayBeConsumed() bool { return u.Consumers > 0 || u.ConsumersUnknown }

// Held returns how many messages consumers hold.
func (u Usage) Held() int64 { return u.Unacknowledged - u.Other }

// NotReady says for people what becomes of the messages that are not ready: "2 unacknowledged", and
// what no consumer holds.
func (u Usage) NotReady() string {
	out := strconv.FormatInt(u.Held(), 10) + " unacknowledged"
	if u.Other > 0 {
		out += fmt.Sprintf(", %d delayed or being dead-lettered by RabbitMQ", u.Other)
	}
	return out
}

// ConsumersText returns the number of consumers for people: "2 consumers", or that it
// is not known, and what would show it.
func (u Usage) ConsumersText() string {
	if u.ConsumersUnknown {
		return "consumers unknown: the statistics of the broker do not show them, for a new queue not yet for 10s, and neither does AMQP, which takes any permission for the queue"
	}
	return text.Count(u.Consumers, "consumer")
}

// Traffic counts the deliveries of a queue, by the statistics of the broker.
type Traffic struct {
	// Within is the time that it covers.
	Within time.Duration
	// Delivered counts deliveries to consumers and to basic.get. Redelivered counts those of them of a
	// message that was delivered before.
	Delivered, Redelivered int64
	// Acknowledged counts acknowledgements. The broker counts no rejections.
	Acknowledged int64
	// Redelivering is in how many steps of the time messages were redelivered.
	Redelivering int
}

// Began is when an outage of a work queue began, as far as processors know.
type Began struct {
	At time.Time
	// AtLeast says that no processor saw it begin: it may have begun before.
	AtLeast bool
}

// Still reports whether no message was delivered or acknowledged.
func (t Traffic) Still() bool { return t.Delivered == 0 && t.Acknowledged == 0 }
