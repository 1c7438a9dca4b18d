package topology

import (
	"math/bits"
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
	// Levels are where messages wait, the shortest first, and the timer at last, if there is one.
	Levels []Tier `json:"levels"`
	// Timer is the queue in which RabbitMQ 4.3 holds each message until the time that a processor has
	// set over AMQP 1.0. Empty: the delay has levels alone.
	Timer string `json:"timer,omitempty"`
	// Place is where the file has the delay.
	Place Place `json:"place"`
}

const (
	// ShortestLevel is the shortest level of a delay, and so how much too late a message may be.
	ShortestLevel = time.Second
	// DefaultLongestDelay is how far ahead a message may be due where the file does not say.
	DefaultLongestDelay = 24 * time.Hour
	// LongestTimer is how far ahead a message may be due in a timer. A time that is 292 years ahead
	// destroys a queue (measured on 4.3.6), so no later one is ever set.
	LongestTimer = 365 * 24 * time.Hour
	// TimerTTL is the TTL of a timer. A message whose time was set does not expire before that, and
	// does so at that moment (measured on 4.3.6). So no message stays in a timer that no processor
	// reads: one whose time was not set leaves it after the TTL, and all others when they are due.
	TimerTTL = 10 * time.Second
	// HeaderDeliveryTime is the annotation that sets the time, in milliseconds since 1970. It is a
	// header over AMQP 0-9-1.
	HeaderDeliveryTime = "x-opt-delivery-time"
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
	HeaderDelayLevel      = "dlxctl-delay-level" // what picks the queue, see Delay.LevelValue
	HeaderDelayExpiration = "dlxctl-delay-expiration"
	// HeaderDelayUserID stays when the message is due: no copy can have the property.
	HeaderDelayUserID = "dlxctl-delay-user-id"
	// HeaderDelayByLevels is true for a message that waits in levels although there is a timer.
	HeaderDelayByLevels = "dlxctl-delay-by-levels"
)

// DelayHeaders returns the headers that only the processor writes.
func DelayHeaders() []string {
	return []string{HeaderDelayDue, HeaderDelayLevel, HeaderDelayExpiration, HeaderDelayUserID, HeaderDelayByLevels}
}

// The parts of the names of what dlxctl makes for a delay, behind the name of the topology. The
// name of the delay follows. No name of a backoff's queue is like them: see [RetryBackoff].
const (
	intakeInfix        = ".delay.in."
	dueInfix           = ".delay.due."
	levelInfix         = ".delay.level."
	levelExchangeInfix = ".delay.levels."
	timerInfix         = ".delay.timer."
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

// TimerName names the queue in which RabbitMQ holds messages until they are due.
func TimerName(topology, delay string) string { return topology + timerInfix + delay }

// IsTimerName reports whether a queue may be the timer of a delay, of any topology. One with its
// label says it exactly: see Queue.IsTimer.
func IsTimerName(queue string) bool { return strings.Contains(queue, timerInfix) }

// DelayOf returns the label of what dlxctl makes for a delay, by its name. It reports false for any
// other name.
func DelayOf(topology, name string) (Label, bool) {
	for _, infix := range []string{intakeInfix, dueInfix} {
		if delay, ok := strings.CutPrefix(name, topology+infix); ok && delay != "" {
			return Label{Role: RoleFailed, Delay: delay}, true
		}
	}
	for _, infix := range []string{levelExchangeInfix, timerInfix} {
		if delay, ok := strings.CutPrefix(name, topology+infix); ok && delay != "" {
			return Label{Role: RoleRetry, Delay: delay}, true
		}
	}
	rest, ok := strings.CutPrefix(name, topology+levelInfix)
	level, delay, more := strings.Cut(rest, ".")
	if _, err := ParseDelay(level); ok && more && delay != "" && err == nil {
		return Label{Role: RoleRetry, Delay: delay}, true
	}
	return Label{}, false
}

// WaitsFor returns the name of the delay for which the messages of a queue wait, by the name of the
// queue: that of a level, or the due queue, in any topology. It reports false for other queues.
func WaitsFor(queue string) (delay string, ok bool) {
	if topology, delay, ok := strings.Cut(queue, dueInfix); ok && topology != "" && delay != "" {
		return delay, true
	}
	topology, _, _ := strings.Cut(queue, levelInfix)
	label, ok := DelayOf(topology, queue)
	return label.Delay, ok && label.Role == RoleRetry
}

// IsIntake reports whether a queue with its label is the intake queue of a delay: the levels and it
// dead-letter to the due queue, which dead-letters nothing.
func (q Queue) IsIntake() bool {
	return q.Label.Delay != "" && strings.HasSuffix(q.Name, intakeInfix+q.Label.Delay)
}

// IsTimer reports whether a queue with its label is the timer of a delay.
func (q Queue) IsTimer() bool {
	return q.Label.Delay != "" && strings.HasSuffix(q.Name, timerInfix+q.Label.Delay)
}

// IsDelayName reports whether a name is one that dlxctl makes for delays.
func IsDelayName(topology, name string) bool {
	_, ok := DelayOf(topology, name)
	return ok
}

// timedStep is how many times as long as the one before it a level is, next to a timer: few
// messages ever need one.
const timedStep = 32

// NewDelay returns a delay of a topology with the levels that longest takes, and with a timer if
// timed.
func NewDelay(topology, name, to string, longest time.Duration, timed bool) Delay {
	d := Delay{
		Name: name, To: to, Max: longest, Intake: IntakeQueueName(topology, name), Due: DueName(topology, name),
		LevelExchange: LevelExchangeName(topology, name),
	}
	step := time.Duration(2)
	if timed {
		step = timedStep
	}
	for wait := ShortestLevel; wait <= min(longest, MaxDelay); wait *= step {
		d.Levels = append(d.Levels, Tier{Delay: wait, Queue: LevelQueueName(topology, name, wait)})
	}
	if timed {
		d.Timer = TimerName(topology, name)
		d.Levels = append(d.Levels, Tier{Delay: TimerTTL, Queue: d.Timer})
	}
	return d
}

// LevelValue returns what [HeaderDelayLevel] says of a message that goes to the queue with this
// index: of a level how often its time was doubled, whatever other levels there are. So messages of
// a processor with the previous file come to the same level, or to none, while the engine changes.
func (d Delay) LevelValue(i int) any {
	if d.Levels[i].Queue == d.Timer {
		return "timer"
	}
	return int64(bits.Len64(uint64(d.Levels[i].Delay/ShortestLevel))) - 1
}

// Level returns the index of the longest level that is not longer than a wait, and the shortest for
// every shorter one.
func (d Delay) Level(wait time.Duration) int {
	for i, l := range slices.Backward(d.Levels) {
		if l.Delay <= wait && l.Queue != d.Timer {
			return i
		}
	}
	return 0
}

// IsLevel reports whether a queue is a level of d or its timer, also one that d has no longer.
func (d Delay) IsLevel(topology, queue string) bool {
	label, ok := DelayOf(topology, queue)
	return ok && label.Delay == d.Name && label.Role == RoleRetry
}

// Queues returns the queues of d that the processor moves messages from.
func (d Delay) Queues() []string { return []string{d.Intake, d.Due} }

// Read returns the queues of d that a processor reads: Queues, and the timer if there is one.
func (d Delay) Read() []string {
	if d.Timer == "" {
		return d.Queues()
	}
	return append(d.Queues(), d.Timer)
}

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
