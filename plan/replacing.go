package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// ReplacesQueue reports whether c replaces a queue under its own name, or goes on with that. It is
// blocked as a single change: package migrate carries it out.
func (c Change) ReplacesQueue() bool {
	return c.Action == Blocked && (c.Unfinished || slices.Contains(c.Hazards, topology.ReplacesQueue))
}

// Replacements returns the queues that may be replaced under their names, and those of which that
// has begun: where the old queue still exists, with a consent.
func (p Plan) Replacements(allow []Consent) []string {
	var out []string
	for _, c := range p.Changes {
		if p.mayReplace(c, allow) {
			out = append(out, c.Name)
		}
	}
	return out
}

// mayReplace reports whether c replaces a queue under its name, and may do so.
func (p Plan) mayReplace(c Change, allow []Consent) bool {
	return c.ReplacesQueue() && len(p.consents(allow).refused(c)) == 0
}

// Replaced returns p without the queues that may be replaced under their names: what is left to do
// once they are, as far as p knows it.
func Replaced(p Plan, allow []Consent) Plan {
	out := p
	out.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return p.mayReplace(c, allow) })
	return out
}

// ReplacementPause says what the replacement of a queue under its name does to it and to its
// consumers.
const ReplacementPause = "once it is proved empty, which takes some 6 seconds in which its consumers get nothing new, it is deleted and declared as the file has it; they get basic.cancel and have to subscribe again; what is published to its name in between is lost"

// Replacement is what a broker shows of a queue that is to be replaced under its name. It changes
// nothing of a plan, and is not in its fingerprint.
type Replacement struct {
	// Pause says what happens to the queue, and how long its consumers get nothing.
	Pause string `json:"pause"`
	// ByName says how publishers that use the name of the queue are seen. Empty: none is seen.
	ByName string `json:"byName"`
	// ByNameMessages is how many messages came to the queue by its name since the broker counts.
	ByNameMessages int64 `json:"byNameMessages"`
	// ByNameRate is how many of them come in a second.
	ByNameRate *float64 `json:"byNameRate,omitempty"`
	// ByNameAtMost says that the two numbers are upper bounds: the broker counts no more precisely.
	ByNameAtMost bool `json:"byNameAtMost"`
	// Restart are the clients of consumers that stay connected and idle after basic.cancel.
	Restart []Client `json:"restart"`
	// Unmeasured are the clients of which it is not known what they do after basic.cancel.
	Unmeasured []Client `json:"unmeasured"`
	// UnseenConsumers is how many consumers have a connection that the user does not see.
	UnseenConsumers int64 `json:"unseenConsumers"`
	// Declarations says what a service gets that declares the queue with the old arguments.
	Declarations string `json:"declarations"`
	// Better says why a new queue is better. Empty: nothing is seen that speaks against a replacement.
	Better []string `json:"better"`
}

// Client is a client library with which services consume a queue.
type Client struct {
	// Name is the name of the library, with its version.
	Name string `json:"name"`
	// Consumers is how many consumers of the queue it has.
	Consumers int `json:"consumers"`
	// Connections are the names of their connections.
	Connections []string `json:"connections"`
}

// Lines says for a person what the broker shows.
func (r Replacement) Lines() []string {
	out := append([]string{r.byNameLine()}, r.ConsumerLines()...)
	out = append(out, r.Declarations)
	if len(r.Better) > 0 {
		out = append(out, "a new queue (replaces:) is the better way here: "+text.List(r.Better))
	}
	return out
}

// byNameLine is about the publishers that use the name of the queue.
func (r Replacement) byNameLine() string {
	most, rate := "", "how many a second is not known"
	if r.ByNameAtMost {
		most = "at most "
	}
	switch {
	case r.ByNameRate != nil && *r.ByNameRate == 0:
		rate = "none just now"
	case r.ByNameRate != nil:
		rate = fmt.Sprintf("%s%.1f a second just now", most, *r.ByNameRate)
	}
	switch {
	case r.ByName != "":
		return fmt.Sprintf("publishers send to it by its name: %s; %s", r.ByName, rate)
	case r.ByNameMessages > 0:
		return fmt.Sprintf("publishers may send to it by its name: %s%s came so, and %s; the broker counts no more precisely",
			most, text.Count(r.ByNameMessages, "message"), rate)
	default:
		return "no publisher is seen that sends to it by its name"
	}
}

// ConsumerLines says which consumers need a restart afterwards, and of which it is not known.
func (r Replacement) ConsumerLines() []string {
	var out []string
	for _, c := range r.Restart {
		out = append(out, fmt.Sprintf("%s %s a restart afterwards, unless the code subscribes again: %s may stay connected and idle after basic.cancel (%s)",
			text.Count(c.Consumers, "consumer"), text.Choose(c.Consumers, "needs", "need"), c.Name, text.Some(c.Connections)))
	}
	for _, c := range r.Unmeasured {
		out = append(out, fmt.Sprintf("it is not known whether %s of %s again (%s)", text.Count(c.Consumers, "consumer"),
			c.Name+text.Choose(c.Consumers, " subscribes", " subscribe"), text.Some(c.Connections)))
	}
	if n := r.UnseenConsumers; n > 0 {
		out = append(out, fmt.Sprintf("it is not known whether %s %s again: this user does not see their connections (with the tag monitoring it sees those of all users, some seconds late), or the broker keeps no statistics",
			text.Count(n, "consumer"), text.Choose(n, "subscribes", "subscribe")))
	}
	return out
}

// CannotReplace is the text in the reason of a blocked queue before why it cannot be replaced under
// its name.
const CannotReplace = "it cannot be replaced under its name: "

// replacing lets a work queue that the broker cannot change be replaced under its name, if that can
// be done without losing a message. c is the blocked change of the queue.
func (r resolved) replacing(c Change, have, want topology.Queue) Change {
	if want.Label.Role != topology.RoleWork {
		return c
	}
	if why := r.irreplaceable(have); why != "" {
		c.Reason += "; " + CannotReplace + why
		c.Brief = strings.TrimPrefix(c.Brief+"; "+CannotReplace+why, "; ")
		return c
	}
	c.Hazards, c.Immutable = []topology.Hazard{topology.ReplacesQueue}, false
	way := fmt.Sprintf("with consent (%s, or replace: true in the file), 'dlxctl apply' replaces the queue",
		Consent{topology.ReplacesQueue, c.Name}.Flag())
	c.Reason += ". Under its name: " + way
	c.Brief = strings.TrimSuffix(way+"; or "+c.Brief, "; or ")
	return c
}

// irreplaceable says why a queue cannot be replaced under its name. Empty: it can.
func (r resolved) irreplaceable(q topology.Queue) string {
	switch {
	case q.Exclusive:
		return "it is exclusive: it belongs to one connection and ends with it"
	case q.AutoDelete:
		return "the broker deletes it with its last consumer (auto-delete)"
	case q.Type() == topology.Stream:
		return "it is a stream: messages cannot be removed from it"
	case q.Arguments.HasAny(topology.ArgExpires):
		return "the broker deletes it, with its messages, while it has no consumer (x-expires)"
	}
	now := r.present().after(nil)
	if _, expires := now.policy(q)[topology.KeyExpires]; expires {
		return "the broker deletes it, with its messages, while it has no consumer (a policy with expires)"
	}
	if feeders := now.feeders()[q.Name]; len(feeders) > 0 {
		return fmt.Sprintf("%s %s to it by its name: such messages would be lost while there is no queue",
			text.Some(feeders), text.Choose(len(feeders), "dead-letters", "dead-letter"))
	}
	return ""
}

// unfinished reports whether the replacement of a queue under its name has begun and not ended.
func (r *resolver) unfinished(queue string) bool { return r.begun[queue] }

// abandoned reports whether that is so, and the file no longer has the queue.
func (r *resolver) abandoned(queue string) bool {
	return r.unfinished(queue) &&
		!slices.ContainsFunc(r.want.Queues, func(q topology.Queue) bool { return q.Name == queue })
}

// unfinishedChange says what to do about a replacement that was stopped. While the old queue
// exists, it needs consent to go on, as to begin: 'dlxctl migrate abort' can still roll it back.
func unfinishedChange(have, want topology.Queue, exists, differs bool) Change {
	c := Change{
		Action: Blocked, Kind: topology.KindQueue, Name: want.Name, After: want, Label: want.Label,
		Unfinished: !want.External && want.Label.Role == topology.RoleWork,
	}
	if exists {
		c.Before = have
	}
	c.Reason = "the queue is being replaced under its name, and that is not finished; 'dlxctl apply' goes on where it was stopped"
	switch {
	case want.External:
		c.Reason += ", with a file in which the queue is not external"
	case differs:
		c.Hazards = []topology.Hazard{topology.ReplacesQueue}
		c.Reason += fmt.Sprintf(", with consent (%s, or replace: true in the file), and 'dlxctl migrate abort %s' rolls it back",
			Consent{topology.ReplacesQueue, want.Name}.Flag(), text.ShellQuote(want.Name))
	}
	c.Brief = c.Reason
	return c
}

// replacementsOf returns the queues of the file, and of the broker, that are being replaced under
// their names: each has a hold. stray are holds of queues that are not in the file.
func replacementsOf(want topology.Compiled, state topology.State) (begun map[string]bool, stray []topology.Queue) {
	holds, begun := map[string]topology.Queue{}, map[string]bool{}
	for _, q := range state.Have.Queues {
		if topology.IsReplacementHold(want.Name, q) {
			holds[q.Name] = q
		}
	}
	if len(holds) == 0 {
		return begun, nil
	}
	for _, q := range state.Have.Queues {
		if _, held := holds[topology.ReplacementHoldName(want.Name, q.Name)]; held {
			begun[q.Name] = true
		}
	}
	for _, q := range want.Queues {
		name := topology.ReplacementHoldName(want.Name, q.Name)
		if _, held := holds[name]; held {
			begun[q.Name] = true
			delete(holds, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		stray = append(stray, holds[name])
	}
	return begun, stray
}

// withParked returns the state with the bindings that queues get back when their replacement under
// their names ends or is rolled back: until then, only their switch exchanges have them. So a key
// that the file takes from such a queue, or gives it, is a change as of any other queue, and is
// carried out after the replacement.
func withParked(topologyName string, state topology.State, begun map[string]bool) topology.State {
	if len(begun) == 0 {
		return state // as almost always
	}
	queues, has := map[string]string{}, map[string]bool{} // by switch exchange; identities
	for queue := range begun {
		queues[topology.SwitchExchangeName(topologyName, queue)] = queue
	}
	var parked []topology.Binding
	for _, b := range state.Have.Bindings {
		queue, switched := queues[b.Destination]
		switch {
		case b.DestinationType == topology.ToQueue && begun[b.Destination]:
			has[b.Identity()] = true
		case b.DestinationType == topology.ToExchange && switched:
			owner, marked := b.Arguments[topology.ArgBoundBy]
			b.Destination, b.DestinationType = queue, topology.ToQueue
			b.Arguments = b.Arguments.Without(topology.ArgBoundBy, topology.ArgManagedBy)
			if marked {
				b.Arguments = b.Arguments.With(topology.ArgManagedBy, owner)
			}
			parked = append(parked, b)
		}
	}
	parked = slices.DeleteFunc(parked, func(b topology.Binding) bool { return has[b.Identity()] })
	state.Have.Bindings = slices.Concat(state.Have.Bindings, parked)
	return state
}

// strayReason says what to do about a hold of a queue that is not in the file.
const strayReason = "messages of a queue that is being replaced under its name wait there, and that is not finished; run 'dlxctl apply' with the file that has the queue, and delete the queue afterwards"

// Differs reports whether a queue exists and the broker cannot turn it into the one of the file:
// its type or its arguments differ.
func Differs(want topology.Compiled, state topology.State, queue string) bool {
	r := newResolver(policy.WithMatched(want, state.Have.Queues), state)
	for _, want := range r.want.Queues {
		if want.Name == queue {
			return r.differs(want)
		}
	}
	return false
}

// differs reports whether a queue of the file exists and the broker cannot turn it into that one.
func (r *resolver) differs(want topology.Queue) bool {
	have, exists := r.existing[want.Name]
	if !exists || want.External {
		return false
	}
	have.Arguments = r.attached(have, aligned(have.Arguments, want.Arguments, arguments.Compared()))
	return len(differing(have.Properties(), want.Properties())) > 0
}
