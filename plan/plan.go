// Package plan compares what a file wants with what a broker has, and holds the
// changes that lead from one to the other.
//
// Three steps: [Resolve] makes want and have comparable, [Diff] compares them,
// [Execute] carries out the changes. The first two are pure functions; the
// third knows the broker through one method.
package plan

import "github.com/dlxctl/dlxctl/topology"

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
	// Have are the objects of the virtual host: all of them, not only ours.
	Have topology.Topology
	// Usage tells, by queue name, what a queue holds.
	Usage map[string]Usage
	// InForce names, by queue, the policy that the broker says applies to it. A
	// queue to which none applies is not in it.
	InForce map[string]string
	// InForceOn names, by exchange, the policy that the broker says applies to it.
	InForceOn map[string]string
	// DisabledFlags are the feature flags that are not enabled. Nil where the user
	// may not read them.
	DisabledFlags []string
	// Alarm is what the broker says of alarms in force. Empty: none.
	Alarm string
	// Operator are the operator policies. Nil where the user may not read them.
	Operator []topology.Policy
}

// Usage is what a queue holds, as of the last statistics of the broker.
type Usage struct {
	Ready          int64
	Unacknowledged int64
	// Consumers are those of all users.
	Consumers int64
	// ConsumersUnknown says that nobody could tell whether there are consumers. What
	// must not be done while there are is then not done either.
	ConsumersUnknown bool
	// Bytes is the size of the message bodies.
	Bytes int64
}

// Action is what a change does. There is no zero action.
type Action string

// The actions.
const (
	Create  Action = "create"
	Update  Action = "update"  // in place
	Replace Action = "replace" // delete and create again
	Delete  Action = "delete"
	Migrate Action = "migrate" // made without its business bindings while a legacy queue lives
	Blocked Action = "blocked" // the broker would refuse it, or it would hurt; Reason says why
)

// Actions gives the actions in the order in which a summary counts them.
func Actions() []Action { return []Action{Create, Update, Replace, Delete, Migrate, Blocked} }

// Hazard is the fixed name of something that a change may do to messages or
// clients.
type Hazard string

// The hazards. A change with one of the first three needs consent by name.
const (
	LosesMessages  Hazard = "loses-messages"
	StopsConsumers Hazard = "stops-consumers"
	DropsRouting   Hazard = "drops-routing"
	AtMostOnce     Hazard = "at-most-once"
)

// Change is one change of one object.
type Change struct {
	Action Action
	Kind   topology.Kind
	// Name is the object's name; for a binding Binding.String.
	Name string
	// Before and After are a topology.Exchange, Queue, Binding or Policy. Before
	// is nil for a creation, After for a deletion.
	Before, After any
	// Fields are what differs, by name. For a creation all arguments and flags
	// that are not the default.
	Fields  []Field
	Hazards []Hazard
	// Stake is what the queue holds that a change deletes or replaces. Nil where
	// nothing is at stake.
	Stake *Usage
	// Reason says in words why, and for a blocked change the ways out.
	Reason string
	// Label says what the object is for.
	Label topology.Label
	// Rank orders the changes: those of one rank may run at the same time, and
	// each rank begins when the one before it has ended.
	Rank int
}

// LeadsBack reports whether c takes away what leads the messages of retired tiers
// back: it must not be carried out while one of these stays.
func (c Change) LeadsBack() bool { return c.Action == Delete && c.Rank >= rankUnbind+rankLeadsBack }

func (c Change) key() topology.Key { return topology.Key{Kind: c.Kind, Name: c.Name} }

// Field is a property of an object that a change sets. Before and After are
// canonical values (see topology.Arguments); nil means that the object or the
// field is not there.
type Field struct {
	Name          string
	Before, After any
}

// Warning is something that a person should know and that stops nothing.
type Warning struct {
	// Name is one of a fixed set, such as overruled or unused-backoff.
	Name string
	Text string
}

// Plan is what has to be done. It is plain data: ordered, deterministic, and
// the same for the same file and broker.
type Plan struct {
	Topology string
	VHost    string
	Version  string // of the broker
	Cluster  string
	// Fingerprint stands for the state that the plan was made from.
	Fingerprint string
	// Changes are in the order in which they are carried out, blocked ones first.
	Changes []Change
	// Drift are objects that nobody declared and that touch ours, as the
	// deletions that Options.Prune makes of them.
	Drift []Change
	// Retiring are the retired tiers that are deleted once they are empty.
	Retiring []string
	Warnings []Warning
	// Loops and Works are those of the wanted topology, for the reader: they
	// explain each backoff and let generated objects be told by what they serve.
	Loops []topology.Loop
	Works []topology.Work
}

// Count gives the number of changes with action a.
func (p Plan) Count(a Action) int {
	n := 0
	for _, c := range p.Changes {
		if c.Action == a {
			n++
		}
	}
	return n
}

// Empty reports whether there is nothing to do and nothing that stands in the
// way. Drift does not count.
func (p Plan) Empty() bool { return len(p.Changes) == 0 }
