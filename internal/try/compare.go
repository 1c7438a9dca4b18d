package try

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// early is by how much a message may be too early: brokers and clients round to milliseconds.
	early = 2 * time.Millisecond
	// late is by how much a message may be late on a machine that does much else, without being
	// marked.
	late = 2 * time.Second
)

// seen is a delivery that came.
type seen struct {
	at, answered  time.Time
	exchange, key string
	headers       map[string]any
	answer        amqp.Answer
}

// step is a delivery to a consumer of the trial that is predicted.
type step struct {
	trace.Stop
	// from is the index of the step before, -1 for the first one.
	from int
	// via are the stops in between, which consumers do not see.
	via []trace.Stop
	// returned is the number of the delivery among those of the stop: the broker delivers a message
	// again whose consumer crashes.
	returned int
}

// wait is how long the message waits before the delivery, at least.
func (s step) wait() time.Duration {
	total := time.Duration(0)
	for _, v := range s.via {
		total += v.Wait
	}
	return total
}

// isRead reports whether the trial consumes the queue of a stop.
func isRead(s trace.Stop) bool {
	return s.Role == topology.RoleWork || s.Role == topology.RoleDeadLetter || s.Role == topology.RoleUnroutable
}

// steps returns the deliveries of a journey. A message in a dead-letter queue has arrived: whatever
// its queue does with it later is not waited for.
func steps(j trace.Journey) []step {
	var out []step
	last := make([]int, len(j.Stops)) // by stop: the index of its last step, or of the one before it
	via := make([][]trace.Stop, len(j.Stops))
	over := make([]bool, len(j.Stops))
	for i, s := range j.Stops {
		last[i] = -1
		if s.From >= 0 {
			last[i], via[i] = last[s.From], via[s.From]
			over[i] = over[s.From]
			if before := j.Stops[s.From]; before.Queue == s.Queue && before.Role == topology.RoleWork {
				via[i] = []trace.Stop{{Wait: before.Wait}} // RabbitMQ delays it in the queue
			}
		}
		switch {
		case over[i]:
		case !isRead(s):
			via[i] = append(slices.Clone(via[i]), s)
		default:
			for n := range s.Returned + 1 {
				out = append(out, step{Stop: s, from: last[i], via: via[i], returned: n})
				last[i], via[i] = len(out)-1, nil
			}
			over[i] = s.Role != topology.RoleWork
		}
	}
	return out
}

// comparison compares what became of a message with what is predicted.
type comparison struct {
	message   *message
	published time.Time
	refused   string
	came      map[string][]seen
	patience  time.Duration
}

// compare returns what became of a message, and where it differs from what is predicted.
func (c comparison) compare() Message {
	out := Message{ID: c.message.id, Name: c.message.name, Copies: []string{}}
	if c.refused != "" {
		out.differ("the publish failed: %s", c.refused)
	}
	taken := map[string]int{}
	for _, j := range c.message.predicted.Journeys {
		stops := c.follow(steps(j), taken, &out)
		if j.Queue == c.message.queue {
			out.Stops = stops
		} else {
			out.Copies = append(out.Copies, j.Queue)
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(c.came)) {
		for _, more := range c.came[queue][min(taken[queue], len(c.came[queue])):] {
			out.Stops = append(out.Stops, Stop{
				Queue: queue, Waited: new(time.Duration), Measured: new(more.at.Sub(c.published)), Event: unpredicted,
			})
			out.differ("%s got it once more than predicted, after %s", text.Name(queue), text.Took(more.at.Sub(c.published)))
		}
	}
	return out
}

// follow compares the steps of a journey. taken counts the deliveries that were compared, by queue.
func (c comparison) follow(journey []step, taken map[string]int, out *Message) []Stop {
	var stops []Stop
	ended := make([]time.Time, len(journey)) // by step, zero if it did not come
	differs := false
	for i, s := range journey {
		stop := newStop(s)
		came := c.came[s.Queue]
		n := taken[s.Queue]
		taken[s.Queue]++
		switch before := s.from; {
		case n < len(came):
			stop.Measured = new(came[n].at.Sub(c.published))
			ended[i] = came[n].answered
			begin := c.published
			if before >= 0 && !ended[before].IsZero() {
				begin = ended[before]
			}
			stop.Waited = new(came[n].at.Sub(begin))
			if !differs { // what follows would differ too
				differs = c.check(s, came[n], &stop, out)
			}
		case before >= 0 && ended[before].IsZero(): // the step before is missing, and is named
		default:
			out.differ("%s did not come within %s", s.describe(), text.Took(c.patience))
		}
		stops = mergeReturned(stops, stop, s)
	}
	return stops
}

// mergeReturned adds a stop. Deliveries that a crash returns are one stop.
func mergeReturned(stops []Stop, stop Stop, s step) []Stop {
	if s.returned == 0 {
		return append(stops, stop)
	}
	last := &stops[len(stops)-1]
	last.Returned = s.returned
	if !stop.came() {
		last.Waited, last.Measured = nil, nil
	}
	return stops
}

// check compares one delivery, and reports whether it differs.
func (c comparison) check(s step, came seen, stop *Stop, out *Message) bool {
	var found []string
	switch {
	case *stop.Waited+early < s.wait():
		found = append(found, fmt.Sprintf("came %s after the delivery before, predicted %s at the earliest",
			text.Took(*stop.Waited), text.Took(s.wait())))
	case *stop.Waited > s.wait()+late:
		stop.Late = true
	}
	if came.exchange != s.Exchange {
		found = append(found, fmt.Sprintf("has the exchange %s, predicted %s", text.Name(came.exchange),
			text.Name(s.Exchange)))
	}
	if came.key != s.Key {
		found = append(found, fmt.Sprintf("has the key %s, predicted %s", text.Name(came.key), text.Name(s.Key)))
	}
	found = append(found, headerDifferences(s.Headers, came.headers)...)
	if len(found) == 0 {
		return false
	}
	const most = 3
	if n := len(found) - most; n > 0 {
		found = append(found[:most], "and "+text.Count(n, "difference")+" more")
	}
	out.differ("%s %s", s.describe(), strings.Join(found, "; "))
	return true
}

// describe names a delivery.
func (s step) describe() string {
	name := text.Name(s.Queue)
	switch {
	case s.Role != topology.RoleWork:
		return "the message in " + name
	case s.returned > 0:
		return fmt.Sprintf("delivery %d in %s after crash %d", s.Delivery, name, s.returned)
	default:
		return fmt.Sprintf("delivery %d in %s", s.Delivery, name)
	}
}

// headerDifferences describes the headers that differ.
func headerDifferences(predicted, came map[string]any) []string {
	want, got := fixed(predicted), fixed(came)
	names := map[string]bool{}
	for name := range want {
		names[name] = true
	}
	for name := range got {
		names[name] = true
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w, isWanted := want[name]
		g, isThere := got[name]
		switch {
		case w == g && isWanted == isThere:
		case !isThere:
			out = append(out, fmt.Sprintf("has no header %s, predicted %s", text.Name(name), w))
		case !isWanted:
			out = append(out, fmt.Sprintf("has the header %s=%s, predicted none", text.Name(name), g))
		default:
			out = append(out, fmt.Sprintf("has the header %s=%s, predicted %s", text.Name(name), g, w))
		}
	}
	return out
}

// fixed returns headers as text, without times and without what the broker counts by delivery.
func fixed(headers map[string]any) map[string]string {
	out := map[string]string{}
	for name, v := range headers {
		switch {
		case topology.IsDeliveryCount(name) || name == "time" || name == topology.HistoryAt:
		case strings.HasSuffix(name, "-failed-at"):
			out[name] = "a time"
		default:
			out[name] = fixedValue(v)
		}
	}
	return out
}

// fixedValue returns a value as text, whatever type the AMQP library has for it.
func fixedValue(v any) string {
	switch v := v.(type) {
	case amqp091.Table:
		return fixedValue(map[string]any(v))
	case topology.Arguments:
		return fixedValue(map[string]any(v))
	case map[string]any:
		fields := fixed(v)
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			parts = append(parts, name+"="+fields[name])
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		var parts []string
		for _, element := range v {
			parts = append(parts, fixedValue(element))
		}
		return "[" + strings.Join(parts, " ") + "]"
	default:
		return topology.Printable(fmt.Sprint(v))
	}
}
