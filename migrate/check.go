package migrate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Reasons says why a move cannot be made: all of it at once. None: it can.
func (m Move) Reasons(want topology.Topology, state plan.State) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, m.Legacy+": "+fmt.Sprintf(format, args...)) }
	for _, q := range state.Have.Queues {
		switch {
		case q.Name != m.Legacy:
		case q.Exclusive:
			add("it is exclusive: it belongs to one connection and ends with it")
		case q.AutoDelete:
			add("it deletes itself with its last consumer: declare it without auto-delete, or let it go and take replaces out")
		case q.Type() == topology.Stream:
			add("it is a stream: its messages cannot be taken out")
		}
	}
	types := map[string]string{}
	for _, e := range state.Have.Exchanges {
		types[e.Name] = e.Type
	}
	for _, b := range m.find(state).onLegacy {
		if t := types[b.Source]; dividing(t) {
			add("it is bound to %s of type %s, which divides messages among its bindings: one more or less moves those of all", b.Source, t)
		}
	}
	out = append(out, m.inexact(state)...)
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		if c.Action == plan.Blocked && (c.Name == m.New || m.needs(want, c)) {
			add("%s %s is blocked: %s", c.Kind, c.Name, c.Reason)
		}
	}
	return out
}

// inexact says which bindings of the legacy queue cannot be made again as they are.
// A whole number that is a float becomes an integer on its way through JSON, and a
// headers exchange of 4.x lets neither match the other: messages would have no way.
func (m Move) inexact(state plan.State) []string {
	var out []string
	for _, b := range m.find(state).onLegacy {
		if !compares(state, b.Source) {
			continue
		}
		for _, name := range b.Arguments.Names() {
			if floats(b.Arguments[name]) {
				out = append(out, fmt.Sprintf("%s: it is bound to %s with the argument %s, a floating-point number without a fraction, which cannot be carried over as it is: let it be bound with an integer or a string in place of that, and published with the same", m.Legacy, b.Source, name))
			}
		}
	}
	return out
}

// compares reports whether an exchange may look at the arguments of its bindings.
func compares(state plan.State, exchange string) bool {
	return slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool {
		return e.Name == exchange && !slices.Contains([]string{"direct", "fanout", "topic"}, e.Type)
	})
}

// floats reports whether there is a float that is a whole number in v.
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

// dividing reports whether an exchange of that type sends a message to some of
// its bindings, depending on which others there are.
func dividing(exchangeType string) bool {
	return slices.Contains([]string{"x-consistent-hash", "x-modulus-hash", "x-random", "x-recent-history", "x-local-random"}, exchangeType)
}

// needs reports whether a change belongs to the new queue or to the retry plane
// around it.
func (m Move) needs(want topology.Topology, c plan.Change) bool {
	work, _ := want.Work(m.New)
	switch c.Label.Role {
	case topology.RoleUnroutable, topology.RoleReturn, topology.RoleDead, topology.RoleFailed, topology.RoleRetry:
		return (c.Label.Queue == "" || c.Label.Queue == m.New) && (c.Label.Backoff == "" || c.Label.Backoff == work.Backoff)
	case topology.RoleWork:
		return c.Label.Queue == m.New && (c.Kind == topology.KindPolicy || c.Name == m.New)
	case topology.RoleBusiness:
		return c.Kind == topology.KindExchange && slices.ContainsFunc(m.Wanted, func(b topology.Binding) bool { return b.Source == c.Name })
	case topology.RoleLegacy:
	}
	return false
}

// Preparation gives the changes that make the new queues and the retry planes
// around them, and nothing else of the file. What a way back has turned to the legacy
// queue is not bound to the new one beside it: the cutover turns it.
func Preparation(want topology.Topology, state plan.State, moves []Move) plan.Plan {
	p := plan.Make(want, state, plan.Options{})
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool {
		makes := c.Action == plan.Create || c.Action == plan.Migrate || c.Action == plan.Update
		return !makes || !slices.ContainsFunc(moves, func(m Move) bool { return m.needs(want, c) && !m.turned(state, c) })
	})
	return p
}

// turned reports whether a change binds the new queue to what comes to the legacy
// queue or to the switch.
func (m Move) turned(state plan.State, c plan.Change) bool {
	b, isBinding := c.After.(topology.Binding)
	f := m.find(state)
	return isBinding && len(lacking([]topology.Binding{b}, union(f.onLegacy, f.onGate))) == 0
}

// Rights gives what a user must be permitted for moving queues.
func Rights(want topology.Topology, state plan.State, moves []Move) []plan.Right {
	p := Preparation(want, state, moves)
	for _, m := range moves {
		f := m.find(state)
		p.Changes = append(p.Changes, m.make(state, found{exchanges: map[string]bool{}}, m.toOld())...)
		for _, b := range union(union(f.onLegacy, f.onGate), m.Wanted) {
			for _, destination := range []string{m.Legacy, m.New, m.gate()} {
				b.Destination, b.DestinationType = destination, topology.ToQueue
				p.Changes = append(p.Changes, create(topology.KindBinding, "", b))
			}
		}
		p.Changes = append(p.Changes, remove(topology.KindQueue, m.Legacy, topology.Queue{Name: m.Legacy, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum}}))
	}
	rights := plan.Rights(p)
	for _, m := range moves { // the drain
		rights = append(rights, plan.Right{Permission: plan.Write, Kind: topology.KindExchange, Name: m.toNew()})
	}
	plan.SortRights(rights)
	return slices.Compact(rights)
}

// Standing says where a move stands.
type Standing struct {
	Move
	// Stage is the one that is to be done next.
	Stage Stage
	// Ready, Unacknowledged and Consumers are those of the legacy queue.
	plan.Usage
	// Bindings are the legacy queue's from exchanges.
	Bindings int64
}

// Standings says where each move stands.
func Standings(want topology.Topology, state plan.State) []Standing {
	var out []Standing
	for _, m := range Moves(want, state) {
		s := Standing{Move: m, Usage: state.Usage[m.Legacy], Bindings: int64(len(m.find(state).onLegacy))}
		switch f := m.find(state); {
		case len(Preparation(want, state, []Move{m}).Changes) > 0:
			s.Stage = Prepare
		case m.Next(state, nil).Doing != "":
			s.Stage = Cutover
		case f.legacy && (s.Ready+s.Unacknowledged > 0 || s.Consumers > 0 || s.ConsumersUnknown):
			s.Stage = Drain
		default:
			s.Stage = Retire
		}
		out = append(out, s)
	}
	return out
}

// String gives the standing in a line.
func (s Standing) String() string {
	where := map[Stage]string{
		Prepare: "to be prepared", Cutover: "to be cut over", Drain: "to be drained", Retire: "to be retired",
	}[s.Stage]
	return fmt.Sprintf("%s -> %s: %s; the legacy queue has %s", s.Legacy, s.New, where, strings.Join([]string{
		number(s.Bindings, "binding"), number(s.Ready, "message") + " ready", fmt.Sprintf("%d unacknowledged", s.Unacknowledged), s.ConsumersText(),
	}, ", "))
}

// number gives "1 message" or "2 messages".
func number(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
