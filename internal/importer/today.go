package importer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// maxTargets is how many queues behind a dead-letter exchange are listed, and maxWays how many of
// them a comment names.
const (
	maxTargets = 20
	maxWays    = 3
	mostNamed  = 5
)

// today says what happens to messages of a queue that fail.
func (v *view) today(q *survey.Queue) string {
	if q.Tied() {
		return tied(q)
	}
	if !q.DeadLetters {
		return "Rejected messages are lost (no-dead-lettering)."
	}
	by := "By argument"
	if q.To.ExchangeBy != "" {
		by = "By the policy " + quoted(q.To.ExchangeBy)
	}
	out := by + ", " + v.nextHop(q)
	for _, s := range []string{partly(q), v.later(q)} {
		if s != "" {
			out += " " + s
		}
	}
	switch fate := q.Fate(); {
	case fate == survey.Undecided && !strings.Contains(out, "may be lost"):
		out += " The objects do not tell where all of them end: some may be lost."
	case fate == survey.Endless && !strings.Contains(out, "without end"):
		out += " They come back without end (retries-forever)."
	}
	return out
}

// tied says what happens to failed messages of a queue where only RabbitMQ knows which policy
// applies.
func tied(q *survey.Queue) string {
	out := "Two policies have the same priority (policies-tie), and it depends on the choice of RabbitMQ what becomes of failed messages: "
	if q.Fate() == survey.Endless {
		return out + "they are kept, or come back without end."
	}
	return out + "they may be lost."
}

// nextHop says where the dead letters of a queue go first.
func (v *view) nextHop(q *survey.Queue) string {
	targets := q.Targets()
	switch {
	case q.AllLost() && q.To.AtLeastOnce:
		return fmt.Sprintf("failed messages stay in the queue, invisible to consumers: %s (%s).", q.Hops[0].Why(), v.noQueue(q))
	case q.AllLost():
		return fmt.Sprintf("failed messages are lost: %s (%s).", q.Hops[0].Why(), v.noQueue(q))
	case len(targets) == 0 || len(targets) > maxTargets || q.ByKey():
		return fmt.Sprintf("failed messages go to %s.", exchangeText(q.To.Exchange))
	}
	var ways []string
	for _, name := range targets[:min(len(targets), maxWays)] {
		ways = append(ways, v.wayTo(q, v.survey.Queue(name)))
	}
	if more := len(targets) - maxWays; more > 0 {
		ways = append(ways, text.Count(more, "more queue"))
	}
	return fmt.Sprintf("failed messages go to %s.", strings.Join(ways, ", and to "))
}

// noQueue names the rule about a queue whose dead letters reach no queue.
func (v *view) noQueue(q *survey.Queue) string {
	switch {
	case v.survey.Exchange(q.To.Exchange) == nil:
		return "dead-letter-exchange-missing"
	case q.To.Exchange == "":
		return "dead-letter-queue-missing"
	default:
		return "dead-letter-unrouted"
	}
}

// partly says why some dead letters of a queue reach no queue, while others do.
func partly(q *survey.Queue) string {
	if q.AllLost() {
		return ""
	}
	verb := map[survey.Verdict]string{survey.Nowhere: "are lost", survey.Partly: "may be lost"}
	if q.To.AtLeastOnce {
		verb = map[survey.Verdict]string{survey.Nowhere: "stay in the queue", survey.Partly: "may stay in the queue"}
	}
	for _, verdict := range []survey.Verdict{survey.Nowhere, survey.Partly} {
		if i := slices.IndexFunc(q.Hops, func(h survey.Hop) bool { return h.Verdict == verdict }); i >= 0 {
			return fmt.Sprintf("Some %s: %s (dead-letter-partly-unrouted).", verb[verdict], q.Hops[i].Why())
		}
	}
	return ""
}

// later says which messages of a queue are lost behind the next hop, or because the broker takes
// their way for a cycle.
func (v *view) later(q *survey.Queue) string {
	who := map[route.Reason]string{
		route.Rejected: "Failed messages", route.Expired: "Messages that expire",
		route.MaxLen: "Messages that a full queue drops", route.DeliveryLimit: "Messages that are returned too often",
	}
	said := map[string]bool{}
	var out []string
	for _, w := range q.Ways { // rejections come first
		if w.Fate != survey.Lost || len(w.Hops) == 0 && !endsInCycle(w) || q.Supposed(w) {
			continue
		}
		why := v.lossOf(w)
		if !said[why] {
			out = append(out, fmt.Sprintf("%s are lost: %s.", who[w.Reason], why))
		}
		said[why] = true
	}
	return strings.Join(out, " ")
}

func endsInCycle(w survey.Way) bool {
	return slices.ContainsFunc(w.Ends, func(e route.End) bool { return e.Cause == route.Cycle })
}

// lossOf says why messages are lost that take a way.
func (v *view) lossOf(w survey.Way) string {
	q := v.survey.Queue(w.Discards)
	switch {
	case endsInCycle(w):
		return "RabbitMQ ends the cycle (cycle-cut)"
	case q == nil || q.DeadLetters && w.Dies != "":
		return w.Ends[0].String()
	case w.Dies == route.Expired:
		return fmt.Sprintf("%s deletes them after %s", quoted(q.Name), text.Duration(ttl(q)))
	case w.Dies == route.MaxLen:
		return quoted(q.Name) + " drops its oldest messages when it is full"
	default:
		return "the broker deletes " + quoted(q.Name) + " with them"
	}
}

// wayTo says where a dead letter goes, and what happens to it there.
func (v *view) wayTo(from, q *survey.Queue) string {
	switch {
	case q == from && !from.Returns():
		return "the queue itself (dead-letters-to-itself)"
	case q == from:
		return "the queue itself, at once and without end (dead-letters-to-itself)"
	case !q.Waits():
		return quoted(q.Name)
	}
	if staysIn(q) {
		return quoted(q.Name) + ", which has no TTL, and stay there (retry-queue-returns-nothing)"
	}
	onward := v.survey.Onward(from, q)
	others := slices.DeleteFunc(slices.Clone(onward), func(name string) bool { return name == from.Name })
	out := quoted(q.Name)
	if len(others) < len(onward) {
		out += ", and back " + afterWait(q)
	}
	if len(others) < len(onward) && from.Returns() {
		out += ", without end (retries-forever)"
	}
	if len(others) > 0 && len(others) <= maxTargets {
		out += fmt.Sprintf(", and %s to %s", afterWait(q), text.ListFirst(text.Names(others), mostNamed))
	}
	if len(onward) == 0 {
		out += ", where they wait " + waitText(q)
	}
	return out
}

// staysIn reports whether a dead letter that comes to a queue in which messages wait stays there:
// it has no TTL of its own any more.
func staysIn(q *survey.Queue) bool { return !q.Args.HasAny(topology.ArgMessageTTL) && !q.DropsHead() }

// ttl returns how long messages wait in a queue. Zero is forever, or a time that each message has.
func ttl(q *survey.Queue) time.Duration {
	ms, _ := q.Args[topology.ArgMessageTTL].(int64)
	return time.Duration(ms) * time.Millisecond
}

func waitText(q *survey.Queue) string {
	if !q.Args.HasAny(topology.ArgMessageTTL) {
		return "until they expire"
	}
	return text.Duration(ttl(q))
}

func afterWait(q *survey.Queue) string {
	if !q.Args.HasAny(topology.ArgMessageTTL) {
		return "when they expire"
	}
	return "after " + text.Duration(ttl(q))
}

// asideText says what a queue is for that is not a work queue.
func (v *view) asideText(q *survey.Queue) string {
	said := map[topology.Role]string{
		survey.Stream:           "A stream. It does not dead-letter.",
		topology.RoleUnroutable: "Gets messages that no other binding takes.",
		topology.RoleRetry:      "Failed messages wait here " + waitText(q) + ", then go to " + v.reachableQueues(q) + ".",
		survey.Delay: "Publishers let messages wait here " + waitText(q) +
			"; then they go to " + v.reachableQueues(q) + ".",
	}
	if framework, _, ok := delayer(q.Name); ok && q.Role == survey.Delay {
		return delaysText(framework, []*survey.Queue{q})
	}
	if q.Role == topology.RoleRetry && staysIn(q) {
		return "Failed messages stay here: it has no TTL (retry-queue-returns-nothing)."
	}
	if text := said[q.Role]; text != "" {
		return text
	}
	out := "Keeps dead letters, as its name says: no queue dead-letters to it"
	if from := q.FailedFrom(); len(from) > 0 {
		out = "Keeps the dead letters of " + text.ListFirst(text.Names(from), mostNamed)
	} else if len(q.From) > 0 {
		out = "Keeps dead letters, as its name says: only delay queues dead-letter to it"
	}
	if q.Args.HasAny(topology.ArgMessageTTL) {
		out += fmt.Sprintf(", for %s only (dead-letter-queue-expires)", waitText(q))
	}
	return out + "."
}

// reachableQueues names the queues to which messages go from a queue in which they wait.
func (v *view) reachableQueues(q *survey.Queue) string {
	switch targets := q.Targets(); {
	case q.ByKey(), q.To.Exchange == "" && len(targets) > maxTargets:
		return "the queues that their keys name"
	case len(targets) > 0 && len(targets) <= maxTargets:
		return text.ListFirst(text.Names(targets), mostNamed)
	default:
		return "the queues behind " + exchangeText(q.To.Exchange)
	}
}

// exchangeText names an exchange in a sentence.
func exchangeText(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return "the exchange " + quoted(name)
}
