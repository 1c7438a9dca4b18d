// Package plan compares what a file wants with what a broker has, and holds the
// changes that lead from one to the other.
//
// [Make] has two steps, both pure functions: resolve makes want and have comparable, and
// diff compares them. [Check] and [Allowed] say what may be carried out. No function here has
// a broker, a file or a clock.
package plan

import (
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Action is what a change does. There is no zero action.
type Action string

// The actions.
const (
	Create  Action = "create"
	Update  Action = "update"  // in place
	Replace Action = "replace" // delete and create again
	Delete  Action = "delete"
	Migrate Action = "migrate" // made without its business bindings while a legacy queue lives
	// Blocked: the broker would refuse the change, or the change would do harm; Reason says
	// why. A blocked change with a hazard describes a foreign policy that dlxctl cannot
	// override, or a queue that is replaced under its name. Consent lets the other changes proceed;
	// [Rights] and the phases know nothing of this one.
	Blocked Action = "blocked"
)

// Actions returns the actions in the order in which a summary counts them.
func Actions() []Action { return []Action{Create, Update, Replace, Delete, Migrate, Blocked} }

// Change is one change of one object.
type Change struct {
	Action Action
	Kind   topology.Kind
	// Name is the object's name; for a binding Binding.String.
	Name string
	// Before is the object as it is. Nil for a creation. After is the object as it
	// becomes. Nil for a deletion.
	Before, After topology.Object
	// Reroute says which failures get another route. Nil for any other change; Before and After
	// are then nil.
	Reroute *Reroute
	// Fields are what differs, by name. For a creation all arguments and flags
	// that are not the default.
	Fields  []Field
	Hazards []topology.Hazard
	// AtMostOnce notes that the queue dead-letters at most once: a message can be lost
	// between the queue and its dead-letter exchange. It needs no consent. Plans print
	// it behind the hazards, and write it among them in JSON.
	AtMostOnce bool
	// Stake is the content of a queue that a change deletes or replaces. Nil where nothing is
	// at risk.
	Stake *topology.Usage
	// Delays says that RabbitMQ may delay messages in the queue that the change deletes. Such messages
	// are not ready: only the counts of the queue show them.
	Delays bool
	// ProvedEmpty says that the queue which the change deletes was proved empty just now, and that no
	// exchange leads to it: it is not proved empty again. Make does not set it.
	ProvedEmpty bool
	// Rebinds are the bindings that go with a queue when it is replaced. Apply creates them again at
	// once, as no later plan knows those of a service. Empty where the queue gets a policy first.
	Rebinds []topology.Binding
	// Replacement is what the broker shows of a queue that is to be replaced under its name. Make does
	// not set it. Nil: it was not read.
	Replacement *Replacement
	// Reason explains the change in words. For a blocked change it has the suggested fixes.
	Reason string
	// Fixes say, by the name of a field, what to write in the file so that the object can stay as
	// it is. Only a change that is blocked because the broker cannot make it has them, and only
	// if all of them together end it.
	Fixes map[string]string
	// Immutable says that the change is blocked because the broker cannot change the object.
	Immutable bool
	// Brief is, for an immutable change and for a queue that is replaced under its name, what Reason
	// and Fixes do not say of all of them. Empty: nothing.
	Brief string
	// Label says what the object is for.
	Label topology.Label
	// Unfinished says that the queue is being replaced under its name: that has begun and not ended.
	Unfinished bool
	// ComesBack says that the change is blocked as messages of a delay could come back to it.
	ComesBack bool
	// Phase orders the changes.
	Phase Phase
	// Outdated says that the change deletes a previous dead-letter queue, which must not be carried
	// out while the queue holds a message.
	Outdated bool
	// ReturnPath says that the change removes a part of the return path of retired tiers, or of
	// its protection: it must not be carried out while one of these tiers exists. Only
	// deletions have it.
	ReturnPath bool
	// Copies are new bindings of other queues that match messages of the binding which the change
	// deletes, or of a binding of the queue which it deletes: what is published between the two
	// goes to both queues.
	Copies []topology.Binding
}

// Object returns the object as it becomes, or, for a deletion, as it is. It is nil for a
// change of the topology as a whole and for a [Reroute].
func (c Change) Object() topology.Object {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

func (c Change) key() topology.Key { return topology.Key{Kind: c.Kind, Name: c.Name} }

// Field is a property of an object that a change sets. Before and After are
// canonical values (see topology.Arguments); nil means that the object or the
// field is not there.
type Field struct {
	Name   string `json:"name"`
	Before any    `json:"before"`
	After  any    `json:"after"`
}

// Warning is something that a person should know and that stops nothing.
type Warning struct {
	// Name is one of a fixed set, such as overruled or unused-backoff.
	Name string `json:"name"`
	Text string `json:"text"`
}

// Reschedule is a backoff of the file whose tiers on the broker differ from those of the file.
type Reschedule struct {
	Before, After topology.Backoff
	// Queues are the work queues that have the backoff, in the order of the file.
	Queues []string
}

// Plan is what has to be done. It is plain data: ordered, deterministic, and
// the same for the same file and broker.
type Plan struct {
	Topology string
	VHost    string
	Version  string // of the broker
	Cluster  string
	// Fingerprint is a hash of the state from which the plan was made.
	Fingerprint string
	// Changes are in the order in which they are carried out, blocked ones first.
	Changes []Change
	// Drift are bindings that no file declares and that touch the topology. Each is a deletion,
	// which Options.Prune carries out.
	Drift []Change
	// Retiring are the retired tiers and failed queues that are deleted once they are empty and not
	// read. StillRead are those that a processor with an older file reads.
	Retiring, StillRead []string
	// RetiringDead are the previous dead-letter queues that are deleted once they are empty. Only
	// people empty them, so that no run waits for them.
	RetiringDead []string
	// Staying are queues that are not in the file and stay because a legacy queue that dlxctl
	// created needs them.
	Staying  []topology.Queue
	Warnings []Warning
	// Unprocessed are the failed queues that no processor consumes. Each has a warning too.
	Unprocessed []Unprocessed
	// Allow is what was allowed when the plan was made.
	Allow []Consent
	// Destroy says that the plan deletes the whole topology.
	Destroy bool
	// Removed are the names that the file lists as removed on purpose: their routing may end.
	Removed []string
	// Replace are the names of queues that the file allows to replace under their names.
	Replace []string
	// Harms describe in words what policies of other teams do to generated queues. Some end
	// when the plan is carried out, and some do not.
	Harms []string
	// Backoffs, Native and WorkQueues are those of the wanted topology. Renderers use them to explain
	// each backoff, and to group generated objects by the queue that they serve.
	Backoffs   []topology.Backoff
	Native     []topology.Backoff
	WorkQueues []topology.WorkQueue
	// Matches are the entries of the wanted topology that cover queues by a pattern.
	Matches []topology.Match
	// Keeps are the ages from which dead letters are old in the wanted topology. No change has them:
	// the broker knows nothing of them.
	Keeps []topology.Keep
	// Rescheduled are the backoffs whose tiers change, by name.
	Rescheduled []Reschedule
	// Places say where the file declares the objects.
	Places map[topology.Key]topology.Place
	// Unchanged is how many objects of the file are on the broker as the file wants them.
	Unchanged int
	// Withheld are the bindings of the file that wait for migrate: their queue replaces a legacy queue
	// that is not cut over.
	Withheld []topology.Binding

	present func() *present // what the plan was made from, for Allowed; nil for a plan of other changes
	read    consulted       // the queues whose statistics decided
}

// Consulted names the queues, in order, of whose [topology.Usage] the plan depends on more than the
// number of messages: on consumers, size or age. A plan made from a state in which these are not
// known of other queues is the same. Some may not exist.
func (p Plan) Consulted() []string { return slices.Sorted(maps.Keys(p.read)) }

// Count returns the number of changes with action a.
func (p Plan) Count(a Action) int {
	n := 0
	for _, c := range p.Changes {
		if c.Action == a {
			n++
		}
	}
	return n
}

// Empty reports whether there is nothing to do and nothing that
// prevents it. Drift does not count.
func (p Plan) Empty() bool { return len(p.Changes) == 0 }
