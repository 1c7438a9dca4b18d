package migrate

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Outlook is what a person should know of a move before it is made.
type Outlook struct {
	Standing
	// Made counts what is made first: the new queue and its retry plane.
	Made int64
	// Sources are the exchanges that lead to the legacy queue.
	Sources []string
	// Added are bindings that only the file has, Kept those that only the legacy
	// queue has. The new queue gets both; plan then shows the latter as drift.
	Added, Kept []topology.Binding
	// ByName says what is known of publishers that use the queue's name. Empty: nothing.
	ByName string
	// Notes say what becomes of each argument and policy of the legacy queue.
	Notes []Note
	// Reasons say why the move cannot be made. Empty: it can.
	Reasons []string
}

// Note is about one property of a legacy queue.
type Note struct {
	// Decide asks a person: as the file stands, the new queue behaves otherwise.
	Decide bool
	Text   string
}

// Outlooks tells what is ahead of the moves of legacy, of all if it is empty.
func Outlooks(want topology.Topology, state plan.State, legacy []string) []Outlook {
	var out []Outlook
	for _, s := range Standings(want, state) {
		if len(legacy) > 0 && !slices.Contains(legacy, s.Legacy) {
			continue
		}
		o := Outlook{Standing: s, Reasons: s.Reasons(want, state), Made: int64(len(Preparation(want, state, []Move{s.Move}).Changes))}
		f := s.find(state)
		all := union(f.onLegacy, f.onGate)
		for _, b := range all {
			if !slices.Contains(o.Sources, b.Source) {
				o.Sources = append(o.Sources, b.Source)
			}
		}
		if s.Stage == Prepare || s.Stage == Cutover {
			o.Added, o.Kept = lacking(s.Wanted, union(all, f.onNew)), lacking(all, s.Wanted)
			for i := range o.Kept {
				o.Kept[i].Destination, o.Kept[i].DestinationType = s.New, topology.ToQueue
			}
		}
		o.Notes = append(s.notes(want, state), endured(want, state)...)
		out = append(out, o)
	}
	return out
}

// notes compares the legacy queue with the new one.
func (m Move) notes(want topology.Topology, state plan.State) []Note {
	is := func(name string) func(topology.Queue) bool {
		return func(q topology.Queue) bool { return q.Name == name }
	}
	i, j := slices.IndexFunc(state.Have.Queues, is(m.Legacy)), slices.IndexFunc(want.Queues, is(m.New))
	if i < 0 || j < 0 {
		return nil
	}
	legacy, successor := state.Have.Queues[i], want.Queues[j]
	var out []Note
	for _, name := range legacy.Arguments.Names() {
		if name != topology.ArgManagedBy {
			out = append(out, m.argument(name, legacy.Arguments[name], successor.Arguments))
		}
	}
	if !legacy.Durable {
		out = append(out, Note{Text: m.Legacy + " is not durable: a restart of the broker before the end loses what waits in it; " + m.New + " is durable"})
	}
	if plan.Drops(state, legacy) {
		_, length := successor.Arguments[topology.ArgMaxLength]
		_, bytes := successor.Arguments[topology.ArgMaxLengthBytes]
		out = append(out, Note{Decide: length || bytes, Text: fmt.Sprintf("%s has a delivery limit and no dead-letter exchange: what %s refuses, being full, goes back there each time migrate ends, and the broker drops what went back too often; make room in %s before the drain, or give %s a dead-letter exchange by a policy", m.Legacy, m.New, m.New, m.Legacy)})
	}
	out = append(out, m.feeding(state)...)
	return append(out, m.policies(state, legacy, successor)...)
}

// consequences say what an argument did that the new queue is without.
func consequence(argument string) string {
	switch argument {
	case topology.ArgMessageTTL:
		return "messages that expired wait for a consumer now"
	case topology.ArgMaxLength, topology.ArgMaxLengthBytes:
		return "the queue grows without limit"
	case topology.ArgOverflow:
		return "it said what happens at the limit of the length"
	case "x-expires":
		return "the queue is not deleted any more when nobody uses it; until the drain, keep a consumer on the legacy queue, or it deletes itself with its messages"
	case "x-single-active-consumer":
		return "several consumers get messages at the same time, and order is not kept"
	case "x-max-priority":
		return "priorities are ignored; quorum queues know two since 4.0, without this argument"
	case topology.ArgDeliveryLimit:
		return "the broker's own default holds; it is written as deliveryLimit"
	default:
		return ""
	}
}

// argument says what becomes of an argument of the legacy queue.
func (m Move) argument(name string, v any, successor topology.Arguments) Note {
	had := name + " " + topology.FormatValue(v)
	own, given := successor[name]
	switch {
	case given && topology.FormatValue(own) == topology.FormatValue(v):
		return Note{Text: had + " is carried over"}
	case name == topology.ArgQueueType:
		return Note{Text: fmt.Sprintf("%s becomes %s", had, topology.FormatValue(own))}
	case name == topology.ArgDeadLetterExchange:
		return Note{Text: had + " is replaced: what is dead-lettered goes through the backoff of " + m.New + ", and nothing of it reaches that exchange any more"}
	case name == topology.ArgDeadLetterRoutingKey || name == topology.ArgDeadLetterStrategy:
		return Note{Text: had + " is replaced with the dead-lettering"}
	case given:
		return Note{Text: fmt.Sprintf("%s is replaced by %s", had, topology.FormatValue(own))}
	}
	n := Note{Decide: true, Text: had + " is not on " + m.New}
	if c := consequence(name); c != "" {
		n.Text += ": " + c
	}
	if name != topology.ArgDeliveryLimit {
		n.Text += fmt.Sprintf("; to keep it, write arguments: {%s: %s}", name, topology.FormatValue(v))
	}
	return n
}

// policies says which policy the legacy queue leaves, and which the new one gets.
func (m Move) policies(state plan.State, legacy, successor topology.Queue) []Note {
	old, had := plan.PolicyFor(state, legacy)
	own, has := plan.PolicyFor(state, successor)
	switch {
	case had && has && old.Name == own.Name, !had && !has:
		return nil
	case had && !has:
		return []Note{{Decide: true, Text: fmt.Sprintf("the policy %q is in force on %s, and none will be on %s: what it sets (%s) ends there, unless its pattern %q is widened", old.Name, m.Legacy, m.New, old.Definition, old.Pattern)}}
	case !had:
		return []Note{{Decide: true, Text: fmt.Sprintf("the policy %q will be in force on %s, and none is on %s: it sets %s", own.Name, m.New, m.Legacy, own.Definition)}}
	default:
		return []Note{{Decide: true, Text: fmt.Sprintf("the policy %q is in force on %s, and %q will be on %s: %s in place of %s", old.Name, m.Legacy, own.Name, m.New, own.Definition, old.Definition)}}
	}
}
