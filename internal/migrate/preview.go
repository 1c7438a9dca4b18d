package migrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// Preview is what an operator should know of a move before it starts.
type Preview struct {
	Status
	// Made counts the objects that are created first: the successor and its retry queues.
	Made int64
	// Sources are the exchanges that route to the legacy queue.
	Sources []string
	// Added are bindings that only the file has, Kept those that only the legacy
	// queue has. The successor gets both; plan then shows the latter as drift.
	Added, Kept []topology.Binding
	// ByName says what is known of publishers that use the queue's name; empty if nothing.
	ByName string
	// Stays says why the legacy queue is kept until the user consents to its deletion. Empty: it goes.
	Stays string
	// Notes say what becomes of each argument and policy of the legacy queue.
	Notes []Note
	// Reasons say why the move cannot be made. Empty: it can.
	Reasons []string
}

// Note is about one property of a legacy queue.
type Note struct {
	// Decide asks for a decision: with this file, the successor behaves differently.
	Decide bool
	Text   string
}

// Previews returns the previews of the moves of legacy, or of all moves if it is empty.
func Previews(want topology.Compiled, state topology.State, legacy []string) []Preview {
	var out []Preview
	judged := survey.New(state)
	for _, s := range Statuses(want, state) {
		if len(legacy) > 0 && !slices.Contains(legacy, s.Legacy) {
			continue
		}
		made := preparation(want, state, []Move{s.Move})
		o := Preview{Status: s, Reasons: s.reasons(want, state), Made: int64(len(made.Changes))}
		f := s.find(state)
		all := union(f.onLegacy, f.onSwitch)
		for _, b := range all {
			if !slices.Contains(o.Sources, b.Source) {
				o.Sources = append(o.Sources, b.Source)
			}
		}
		if s.Stage == Prepare || s.Stage == Cutover {
			o.Added, o.Kept = lacking(s.Wanted, union(all, f.onSuccessor)), lacking(all, s.Wanted)
			for i := range o.Kept {
				o.Kept[i].Destination, o.Kept[i].DestinationType = s.New, topology.ToQueue
			}
		}
		o.Notes = append(s.notes(want, state, judged), enduredPolicies(want, state)...)
		out = append(out, o)
	}
	return out
}

// notes compares the legacy queue with its successor.
func (m Move) notes(want topology.Compiled, state topology.State, judged *survey.Survey) []Note {
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
			out = append(out, m.argumentNote(state.Version, name, legacy.Arguments[name], successor))
		}
	}
	if !legacy.Durable {
		out = append(out, Note{Text: m.Legacy +
			" is not durable: a restart of the broker before the end loses its messages; " + m.New + " is durable"})
	}
	if policy.Drops(state, legacy) {
		_, length := successor.Arguments[topology.ArgMaxLength]
		_, bytes := successor.Arguments[topology.ArgMaxLengthBytes]
		out = append(out, Note{
			Decide: length || bytes,
			Text:   fmt.Sprintf("%s has a delivery limit and no dead-letter exchange: when %s is full, it refuses messages, which are requeued each time migrate ends, and the broker drops a message that is requeued more often than the limit; make room in %s before the drain, or give %s a dead-letter exchange by a policy", m.Legacy, m.New, m.New, m.Legacy),
		})
	}
	if state.TakesNative(legacy) {
		out = append(out, Note{Text: fmt.Sprintf("on RabbitMQ %s, %s can have retries under its own name, without a migration: list it with external: true and a backoff that has engine: native",
			state.Version, m.Legacy)})
	}
	out = append(out, m.unreadNotes(state)...)
	out = append(out, m.feederNotes(judged)...)
	out = append(out, m.deskNotes(state)...)
	return append(out, m.policyNotes(state, legacy, successor)...)
}

// unreadNotes says that messages will wait in the successor, where consumers read the legacy queue
// and none reads the successor.
func (m Move) unreadNotes(state topology.State) []Note {
	u := state.Usage[m.New] // zero: it is to be created
	if state.Usage[m.Legacy].Consumers == 0 || u.Consumers > 0 || u.ConsumersUnknown {
		return nil
	}
	f := m.find(state)
	if m.published(f.onSuccessor) && !m.published(f.onLegacy) {
		return []Note{{Decide: true, Text: fmt.Sprintf("no consumer reads %s, where new messages wait: let a service consume it", m.New)}}
	}
	return []Note{{Decide: true, Text: fmt.Sprintf("no consumer reads %s: from the cutover on, new messages wait there; "+
		"run migrate --until prepare, let a service consume %s, then run migrate", m.New, m.New)}}
}

// consequence says what changes without an argument. Empty: nothing to say.
func consequence(argument string) string {
	switch argument {
	case topology.ArgMessageTTL:
		return "messages no longer expire; they wait for a consumer"
	case topology.ArgMaxLength, topology.ArgMaxLengthBytes:
		return "the queue grows without limit"
	case topology.ArgOverflow:
		return "it set what happens at the maximum length"
	case topology.ArgExpires:
		return "the successor is not deleted when it is unused; until the drain, keep a consumer on the legacy queue, or the broker deletes that queue with its messages"
	case topology.ArgSingleActiveConsumer:
		return "several consumers get messages at the same time, and order is not kept"
	case topology.ArgDeliveryLimit:
		return "the broker's default applies; set deliveryLimit to change it"
	default:
		return ""
	}
}

// withoutMaxPriority says what a queue of a type does with priorities without x-max-priority. On
// 4.3.6 a message without one came behind 5 and before 3, and one with 0 last.
func withoutMaxPriority(version, queueType string) string {
	state := topology.State{Version: version}
	switch {
	case queueType == topology.Classic || !state.AtLeast(4, 0):
		return "priorities are ignored"
	case state.AtLeast(4, 3):
		return "a quorum queue keeps the priorities 0 to 31 apart, and a message without one has 4, where a classic queue takes it as 0"
	default:
		return "a quorum queue has two priorities, over 4 and up to 4"
	}
}

// argumentNote says what becomes of an argument of the legacy queue, on RabbitMQ of a version.
func (m Move) argumentNote(version, name string, v any, successor topology.Queue) Note {
	had := name + " " + topology.FormatValue(v)
	own, given := successor.Arguments[name]
	switch {
	case given && topology.FormatValue(own) == topology.FormatValue(v):
		return Note{Text: had + " is carried over"}
	case name == topology.ArgQueueType:
		return Note{Text: fmt.Sprintf("%s becomes %s", had, topology.FormatValue(own))}
	case name == topology.ArgDeadLetterExchange:
		const what = "%s is replaced: dead letters go through the backoff of %s, and no longer reach that exchange"
		return Note{Text: fmt.Sprintf(what, had, m.New)}
	case name == topology.ArgDeadLetterRoutingKey || name == topology.ArgDeadLetterStrategy:
		return Note{Text: had + " is replaced with the dead-lettering"}
	case given:
		return Note{Text: fmt.Sprintf("%s is replaced by %s", had, topology.FormatValue(own))}
	}
	n := Note{Decide: true, Text: had + " is not on " + m.New}
	c := consequence(name)
	if name == topology.ArgMaxPriority {
		c = withoutMaxPriority(version, successor.Type())
	}
	if c != "" {
		n.Text += ": " + c
	}
	if name != topology.ArgDeliveryLimit {
		n.Text += "; " + toKeep(version, successor.Type(), topology.Arguments{name: v})
	}
	return n
}

// toKeep says what to write so that a successor of a type has the argument of its legacy queue, if
// RabbitMQ of the version accepts it.
func toKeep(version, queueType string, argument topology.Arguments) string {
	write := fmt.Sprintf("arguments: %s", flow(argument))
	refused := arguments.Refused(version, queueType, argument)
	switch {
	case len(refused) == 0:
		return "to keep it, write " + write
	case len(arguments.Refused(version, topology.Classic, argument)) == 0:
		return refused[0].Msg + ": to keep it, write type: classic and " + write
	default:
		return fmt.Sprintf("RabbitMQ %s refuses it: %s", version, refused[0].Msg)
	}
}

// flow returns one argument as a topology file has it.
func flow(argument topology.Arguments) string {
	name := argument.Names()[0]
	return fmt.Sprintf("{%s: %s}", name, topology.FormatValue(argument[name]))
}

func (m Move) policyNotes(state topology.State, legacy, successor topology.Queue) []Note {
	old, had := policy.All(state).For(legacy)
	own, has := policy.All(state).For(successor)
	switch {
	case had && has && old.Name == own.Name, !had && !has:
		return nil
	case had && !has:
		return []Note{{
			Decide: true,
			Text:   fmt.Sprintf("the policy %q is in effect on %s, and no policy will be on %s; to keep what it sets (%s), widen its pattern %q", old.Name, m.Legacy, m.New, old.Definition, old.Pattern),
		}}
	case !had:
		return []Note{{
			Decide: true,
			Text: fmt.Sprintf("the policy %q will be in effect on %s, and no policy is on %s: it sets %s", own.Name, m.New,
				m.Legacy, own.Definition),
		}}
	default:
		return []Note{{
			Decide: true,
			Text: fmt.Sprintf("the policy %q is in effect on %s, and %q will be on %s: %s in place of %s",
				old.Name, m.Legacy, own.Name, m.New, own.Definition, old.Definition),
		}}
	}
}

// ByName says what the broker knows of messages that come to the legacy queue by its name.
// It returns "" if none came, or if nothing is known.
func (r *Runner) ByName(ctx context.Context, m Move) (string, error) {
	b, err := r.Management.PublishedByName(ctx, m.Legacy)
	switch {
	case err != nil || b.Messages == 0:
		return "", err
	case b.Certain:
		return fmt.Sprintf("%s came to %s by its name, through the default exchange: these publishers must change",
			messages(b.Messages), m.Legacy), nil
	default:
		return fmt.Sprintf("%s at most came to %s by its name, through the default exchange: the broker counts no more precisely (it does with management.rates_mode = detailed)", messages(b.Messages), m.Legacy), nil
	}
}
