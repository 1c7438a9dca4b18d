package topology

import (
	"slices"
	"strings"
	"time"
)

// Delay is an exchange whose messages come to another exchange later. The processor reads what was
// published to it, and lets each message wait in one level after the other, until it is due.
type Delay struct {
	// Name is the name of the exchange that publishers use.
	Name string `json:"name"`
	// To is the exchange to which the processor publishes a message that is due.
	To string `json:"to"`
	// Intake is the queue of the exchange, and Due that of messages which come from a level. The
	// processor reads both.
	Intake string `json:"intake"`
	Due    string `json:"due"`
	// LevelExchange is the headers exchange that picks the level by [HeaderDelayLevel].
	LevelExchange string `json:"levelExchange"`
	// Max is how far ahead a message may be due.
	Max time.Duration `json:"max"`
	// Levels are where messages wait, the shortest first. Each is twice as long as the one before it.
	Levels []Tier `json:"levels"`
	// Place is where the file has the delay.
	Place Place `json:"place"`
}

const (
	// ShortestLevel is the shortest level of a delay, and so how much too late a message may be.
	ShortestLevel = time.Second
	// DefaultLongestDelay is how far ahead a message may be due where the file does not say.
	DefaultLongestDelay = 24 * time.Hour
)

// The headers of a publisher that say when a message is due. [HeaderDelay] is that of the plugin
// for delayed messages.
const (
	// HeaderDelay is a number of milliseconds.
	HeaderDelay = "x-delay"
	// HeaderDelayUntil is a time: a timestamp, milliseconds since 1970, or a text in RFC 3339.
	HeaderDelayUntil = "x-delay-until"
)

// The headers of a message that waits in a level. Only the processor writes and removes them: those
// of a publisher are replaced.
const (
	HeaderDelayDue        = "dlxctl-delay-due"   // milliseconds since 1970
	HeaderDelayLevel      = "dlxctl-delay-level" // the index of the level
	HeaderDelayExpiration = "dlxctl-delay-expiration"
	// HeaderDelayUserID stays when the message is due: no copy can have the property.
	HeaderDelayUserID = "dlxctl-delay-user-id"
)

// DelayHeaders returns the headers that only the processor writes.
func DelayHeaders() []string {
	return []string{HeaderDelayDue, HeaderDelayLevel, HeaderDelayExpiration, HeaderDelayUserID}
}

// The parts of the names of what dlxctl makes for a delay, behind the name of the topology. The
// name of the delay follows. No name of a backoff's queue is like them: see [RetryBackoff].
const (
	intakeInfix        = ".delay.in."
	dueInfix           = ".delay.due."
	levelInfix         = ".delay.level."
	levelExchangeInfix = ".delay.levels."
)

// IntakeQueueName names the queue of the exchange of a delay.
func IntakeQueueName(topology, delay string) string { return topology + intakeInfix + delay }

// DueName names the exchange to which the levels of a delay dead-letter, and its queue.
func DueName(topology, delay string) string { return topology + dueInfix + delay }

// LevelExchangeName names the headers exchange that picks the level.
func LevelExchangeName(topology, delay string) string { return topology + levelExchangeInfix + delay }

// LevelQueueName names the queue of one level.
func LevelQueueName(topology, delay string, level time.Duration) string {
	return topology + levelInfix + FormatDelay(level) + "." + delay
}

// DelayOf returns the label of what dlxctl makes for a delay, by its name. It reports false for any
// other name.
func DelayOf(topology, name string) (Label, bool) {
	for _, infix := range []string{intakeInfix, dueInfix} {
		if delay, ok := strings.CutPrefix(name, topology+infix); ok && delay != "" {
			return Label{Role: RoleFailed, Delay: delay}, true
		}
	}
	if delay, ok := strings.CutPrefix(name, topology+levelExchangeInfix); ok && delay != "" {
		return Label{Role: RoleRetry, Delay: delay}, true
	}
	rest, ok := strings.CutPrefix(name, topology+levelInfix)
	level, delay, more := strings.Cut(rest, ".")
	if _, err := ParseDelay(level); ok && more && delay != "" && err == nil {
		return Label{Role: RoleRetry, Delay: delay}, true
	}
	return Label{}, false
}

// IsDelayName reports whether a name is one that dlxctl makes for delays.
func IsDelayName(topology, name string) bool {
	_, ok := DelayOf(topology, name)
	return ok
}

// NewDelay returns a delay of a topology with the levels that longest takes.
func NewDelay(topology, name, to string, longest time.Duration) Delay {
	d := Delay{
		Name: name, To: to, Max: longest, Intake: IntakeQueueName(topology, name), Due: DueName(topology, name),
		LevelExchange: LevelExchangeName(topology, name),
	}
	for wait := ShortestLevel; wait <= longest; wait *= 2 {
		d.Levels = append(d.Levels, Tier{Delay: wait, Queue: LevelQueueName(topology, name, wait)})
	}
	return d
}

// Level returns the index of the longest level that is not longer than a wait, and the shortest for
// every shorter one.
func (d Delay) Level(wait time.Duration) int {
	for i, l := range slices.Backward(d.Levels) {
		if l.Delay <= wait {
			return i
		}
	}
	return 0
}

// IsLevel reports whether a queue is a level of d, also one that d has no longer.
func (d Delay) IsLevel(topology, queue string) bool {
	label, ok := DelayOf(topology, queue)
	return ok && label.Delay == d.Name && label.Role == RoleRetry
}

// Queues returns the queues of d that the processor reads.
func (d Delay) Queues() []string { return []string{d.Intake, d.Due} }

// AsBackoff returns what reads one of the queues of d as a backoff, for what the processor has in
// common for both: the queue, the exchange that it publishes to, and the queues behind that.
func (d Delay) AsBackoff(queue string) Backoff {
	return Backoff{Name: d.Name, FailedQueue: queue, RetryExchange: d.LevelExchange, Tiers: d.Levels, Place: d.Place}
}

// Delay returns the delay of that name.
func (c Compiled) Delay(name string) (Delay, bool) {
	i := slices.IndexFunc(c.Delays, func(d Delay) bool { return d.Name == name })
	if i < 0 {
		return Delay{}, false
	}
	return c.Delays[i], true
}

// Read returns what the processor reads: the backoffs whose attempts it counts, and the queues of
// the delays as backoffs.
func (c Compiled) Read() []Backoff {
	out := slices.Clone(c.Backoffs)
	for _, d := range c.Delays {
		for _, queue := range d.Queues() {
			out = append(out, d.AsBackoff(queue))
		}
	}
	return out
}
