package migrate

import (
	"fmt"
	"math"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// reasons returns all reasons why a move cannot be made. None: it can be made.
func (m Move) reasons(want topology.Compiled, state topology.State) []string {
	p := plan.Make(want, state, plan.Options{})
	out := m.reasonsOf(want, state, p.Changes)
	for _, why := range unallowed(preparationOf(p, want, []Move{m}), nil) {
		out = append(out, m.Legacy+": "+why)
	}
	return out
}

// reasonsOf is reasons with the changes of a plan of want, without those of unallowed.
func (m Move) reasonsOf(want topology.Compiled, state topology.State, changes []plan.Change) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, m.Legacy+": "+fmt.Sprintf(format, args...)) }
	for _, q := range state.Have.Queues {
		switch {
		case q.Name != m.Legacy:
		case q.Exclusive:
			add("it is exclusive: it belongs to one connection and ends with it")
		case q.AutoDelete:
			add("the broker deletes it with its last consumer: declare it without auto-delete, or let it go and remove replaces from the file")
		case q.Type() == topology.Stream:
			add("it is a stream: messages cannot be removed from it")
		}
	}
	types := map[string]string{}
	for _, e := range state.Have.Exchanges {
		types[e.Name] = e.Type
	}
	for _, b := range m.find(state).onLegacy {
		if t := types[b.Source]; dividing(t) {
			add("it is bound to %s of type %s, which divides messages among its bindings: one binding more or less changes where all messages go", b.Source, t)
		}
	}
	for _, b := range m.find(state).onLegacy {
		if b.HasUnlistableKey() {
			add("it is bound to %s with the key %q: the bindings of its successor have an argument, and RabbitMQ cannot list bindings with arguments and such a key; bind it with a key in which ~ is last, or absent", b.Source, b.Key)
		}
	}
	out = append(out, m.inexact(state)...)
	out = append(out, m.elsewhere(state)...)
	early := !m.replaces() && !m.isCutOver(state)
	for _, c := range changes {
		concerns := c.Name == m.New || c.Kind == topology.KindTopology || m.needs(want, c)
		differs := early && c.Kind == topology.KindQueue && c.Name == m.New
		switch {
		case c.Action == plan.Blocked && concerns && (!c.IsEndured() || c.Unfinished || differs):
			add("%s %s is blocked: %s", c.Kind, c.Name, c.Reason)
		case c.Action == plan.Replace && differs:
			add("the queue %s exists with other arguments than in the file; first run dlxctl apply: %s", c.Name, c.Reason)
		}
	}
	return out
}

// isCutOver reports whether all messages go to the successor, and the drain can reach it.
func (m Move) isCutOver(state topology.State) bool {
	return m.next(state, nil).Doing == "" && m.find(state).successorBound
}

// elsewhere returns otherMove as a reason. Nil: there is no other move.
func (m Move) elsewhere(state topology.State) []string {
	if other := m.otherMove(state); other != "" {
		return []string{m.Legacy + ": " + other}
	}
	return nil
}

// otherMove says that another file moves the legacy queue elsewhere: under its name, or to another
// successor. Both have the same switch exchange, and each message would come to both ends. Empty:
// it does not.
func (m Move) otherMove(state topology.State) string {
	if replaced := replacementOf(m.Topology, m.Legacy); !m.replaces() && replaced.find(state).successor {
		return fmt.Sprintf("it is being replaced under its name, and messages wait in %s; finish that, or roll it back, with the file that has the queue", replaced.New)
	}
	other := ""
	if f := m.find(state).forwarder; f != nil {
		other, _ = f.Definition[topology.KeyDeadLetterRoutingKey].(string)
	}
	for _, b := range state.Have.Bindings {
		// It leads to an exchange while the successor is replaced under its name.
		if b.Source == m.successorEnd() && b.DestinationType == topology.ToQueue && b.Destination != m.New {
			other = b.Destination
		}
	}
	if other == "" || other == m.New {
		return ""
	}
	return fmt.Sprintf("its migration to %s is not finished; finish it, or roll it back, with the file that has that queue",
		text.Name(other))
}

// inexact says which bindings of the legacy queue cannot be created again unchanged. A whole
// number that is a float becomes an integer in JSON, and a headers exchange of 4.x matches
// neither with the other: messages would have no path.
func (m Move) inexact(state topology.State) []string {
	var out []string
	for _, b := range m.find(state).onLegacy {
		if !compares(state, b.Source) {
			continue
		}
		for _, name := range b.Arguments.Names() {
			if floats(b.Arguments[name]) {
				out = append(out, fmt.Sprintf("%s: it is bound to %s with the argument %s, a floating-point number without a fraction, which cannot be carried over unchanged; bind it with an integer or a string instead, and publish with the same value", m.Legacy, b.Source, name))
			}
		}
	}
	return out
}

// compares reports whether an exchange may look at the arguments of its bindings.
func compares(state topology.State, exchange string) bool {
	return slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool {
		return e.Name == exchange && !slices.Contains([]string{"direct", "fanout", "topic"}, e.Type)
	})
}

// floats reports whether v contains a float that is a whole number.
func floats(v any) bool {
	switch v := v.(type) {
	case float64:
		return v == math.Trunc(v)
	case []any:
		return slices.ContainsFunc(v, floats)
	case topology.Arguments:
		return slices.ContainsFunc(v.Names(), func(name string) bool { return floats(v[name]) })
	default:
		return false
	}
}

// dividing reports whether an exchange of that type sends a message to some of its bindings,
// depending on its other bindings.
func dividing(exchangeType string) bool {
	types := []string{"x-consistent-hash", "x-modulus-hash", "x-random", "x-recent-history", "x-local-random"}
	return slices.Contains(types, exchangeType)
}
