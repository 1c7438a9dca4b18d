// Package topology holds what a broker's virtual host can contain, as plain
// values: exchanges, queues, bindings and policies, and what dlxctl knows about
// those it generated itself.
//
// The package is pure: it does no I/O, reads no clock and imports no other
// package of this module. A [Topology] is what a file wants, what a broker has,
// or what a test needs; which one it is, the name of the variable says.
package topology

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Topology is the set of objects in one virtual host, wanted or found.
type Topology struct {
	// Name is the topology's name in its file; it prefixes every generated
	// object. Empty for a topology that was read from a broker.
	Name string
	// VHost is the virtual host. Empty means the one of the AMQP URL.
	VHost string
	// Cluster is the only cluster name that this topology may be applied to.
	// Empty means any.
	Cluster string
	// CountHeader is the name of the header that counts the attempts.
	CountHeader string

	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding
	Policies  []Policy

	// Loops are the retry loops, one for each backoff that a queue uses, by
	// name. Empty for a topology that was read from a broker.
	Loops []Loop
	// Works are the declared work queues in the order of the file. Empty for a
	// topology that was read from a broker.
	Works []Work
}

// Queue types, as x-queue-type and the management API spell them.
const (
	Quorum  = "quorum"
	Classic = "classic"
	Stream  = "stream"
)

// Exchange types that every broker has.
const (
	Direct  = "direct"
	Fanout  = "fanout"
	Topic   = "topic"
	Headers = "headers"
)

// ExchangeTypes gives the exchange types that every broker has.
func ExchangeTypes() []string { return []string{Direct, Fanout, Topic, Headers} }

// Exchange is an exchange. Its identity is Name.
type Exchange struct {
	Name       string
	Type       string
	Durable    bool
	AutoDelete bool
	Internal   bool
	Arguments  Arguments
	// External says that the exchange belongs to somebody else: it must exist,
	// and is never created, changed or deleted. An empty Type is then any type.
	External bool
	Label    Label
}

// Queue is a queue. Its identity is Name. Its type stands in
// Arguments["x-queue-type"], always: what a broker reports is completed when
// it is read.
type Queue struct {
	Name       string
	Durable    bool
	AutoDelete bool
	Exclusive  bool
	Arguments  Arguments
	// External says that a service declares the queue: it must exist, and is
	// never created, changed or deleted.
	External bool
	Label    Label
}

// Type gives the queue's type: [Quorum], [Classic], [Stream], or what a plugin
// calls its own.
func (q Queue) Type() string {
	t, _ := q.Arguments[ArgQueueType].(string)
	return t
}

// Destination types of a binding, as the management API spells them.
const (
	ToQueue    = "queue"
	ToExchange = "exchange"
)

// Binding is a binding. It has no name: everything but Label is its identity,
// and the broker keeps bindings apart that differ in their arguments alone.
type Binding struct {
	Source      string
	Destination string
	// DestinationType is [ToQueue] or [ToExchange].
	DestinationType string
	// Key is the routing key. Empty for most fanout and headers bindings.
	Key       string
	Arguments Arguments
	Label     Label
}

// String gives the binding as plan prints it: "source -> destination (key)",
// with the headers in place of the key where there are any, and "exchange:"
// before a destination that is one.
func (b Binding) String() string {
	dst := b.Destination
	if b.DestinationType == ToExchange {
		dst = "exchange:" + dst
	}
	detail := b.Key
	if headers := b.Arguments.WithoutX(); len(headers) > 0 {
		parts := make([]string, 0, len(headers))
		for _, name := range headers.Names() {
			parts = append(parts, name+"="+FormatValue(headers[name]))
		}
		detail = strings.Join(parts, ", ")
	}
	if detail == "" {
		return b.Source + " -> " + dst
	}
	return b.Source + " -> " + dst + " (" + detail + ")"
}

// Key identifies an object within a topology. It is comparable.
type Key struct {
	Kind Kind
	// Name is the object's name; for a binding a text that is equal for equal
	// bindings only.
	Name string
}

// Kind is a kind of object.
type Kind string

// The kinds of objects. Policies come last: they match the others by name.
const (
	KindExchange Kind = "exchange"
	KindQueue    Kind = "queue"
	KindBinding  Kind = "binding"
	KindPolicy   Kind = "policy"
)

// Identity gives the text that tells the binding from every other. It leaves
// out nothing: two bindings that differ in the mark alone are two bindings.
func (b Binding) Identity() string {
	out := make([]byte, 0, 128) // most fit
	out = append(appendQuoted(out, b.Source), ' ')
	out = append(append(out, b.DestinationType...), ' ')
	out = append(appendQuoted(out, b.Destination), ' ')
	out = append(appendQuoted(out, b.Key), ' ')
	return string(b.Arguments.appendText(out))
}

// Policy is a policy (not an operator policy). Its identity is Name.
type Policy struct {
	Name    string
	Pattern string
	// ApplyTo is queues, exchanges, all, quorum_queues, classic_queues or streams.
	ApplyTo    string
	Priority   int64
	Definition Arguments
	Label      Label
}

// Pending gives a policy of ours as it is stored first. RabbitMQ stores a policy
// and applies it afterwards, and when the connection of its client ends between
// the two, it never applies it (192 of 328 policies on 4.3.6, 199 of 310 on
// 3.10.8, whose client was cut off within 6 ms). So it is stored with an odd
// priority first, and with its own, which is even, once the broker has answered: one that is
// found with an odd priority may not be in force.
func (p Policy) Pending() Policy {
	p.Priority++
	return p
}

// IsPending reports whether a policy of ours may be stored and not in force.
func (p Policy) IsPending() bool { return p.Priority%2 != 0 }

// PriorityAbove gives the lowest priority of a policy of ours that is above
// another.
func PriorityAbove(priority int64) int64 {
	if priority%2 != 0 {
		return priority + 1
	}
	return priority + 2
}

// Role says what an object is for. The zero Role is an object that dlxctl did
// not generate and that is not declared in the file.
type Role string

// The roles of declared and generated objects, in the order in which they are
// created: the safety net first, the business bindings last.
const (
	RoleUnroutable Role = "unroutable" // catches what fits nowhere
	RoleDead       Role = "dead"       // what a person must look at, and the exchange that picks it
	RoleReturn     Role = "return"     // the exchange that brings a message back to its queue
	RoleFailed     Role = "failed"     // where work queues dead-letter to, what the processor reads
	RoleRetry      Role = "retry"      // the TTL queues, and the headers exchange that picks one
	RoleBusiness   Role = "business"   // exchanges of the file and the bindings from them
	RoleWork       Role = "work"       // work queues
	RoleLegacy     Role = "legacy"     // queues whose place a work queue takes
)

// Label says what an object is for. It is not part of the object: it is not
// compared, and the broker never sees it.
type Label struct {
	Role Role
	// Backoff is the backoff that a failed or retry object belongs to.
	Backoff string
	// Queue is the work queue that the object was made for. Empty for objects
	// shared by several.
	Queue string
}

// Loop is the retry loop of one backoff.
type Loop struct {
	// Backoff is the name of the backoff.
	Backoff string
	// Failed is the name of the queue that the processor reads, and of the
	// fanout exchange before it.
	Failed string
	// Exchange is the headers exchange that picks the tier by the count header.
	Exchange string
	// Steps are where the attempts wait: the message whose n-th attempt failed
	// waits in Steps[n-1]. After the last step it is a dead letter.
	Steps []Step
	// RetryOn are the reasons for dead-lettering that are retried. Nil is all.
	RetryOn []Reason
}

// Retries reports whether a death for reason r is retried. A reason that is not
// known is: the processor may have read a message that somebody put into the
// failed queue by hand.
func (l Loop) Retries(r Reason) bool {
	return r == ReasonUnknown || l.RetryOn == nil || slices.Contains(l.RetryOn, r)
}

// Step is one wait.
type Step struct {
	Delay time.Duration
	// Queue is the name of the retry queue.
	Queue string
}

// Reason is why a message was dead-lettered, as x-death spells it.
type Reason string

// The reasons for dead-lettering. The broker never says unknown.
const (
	Rejected      Reason = "rejected"
	DeliveryLimit Reason = "delivery_limit"
	Expired       Reason = "expired"
	Maxlen        Reason = "maxlen"
	ReasonUnknown Reason = "unknown"
)

// Reasons gives the reasons that a broker knows.
func Reasons() []Reason { return []Reason{Rejected, DeliveryLimit, Expired, Maxlen} }

// Work is a declared work queue, as the processor, status and generate see it.
type Work struct {
	Queue string
	// Backoff is the name of the queue's backoff, or "none".
	Backoff string
	// Dead is the name of its dead-letter queue.
	Dead string
	// Owner is who to call. Empty if the file does not say.
	Owner string
	// Severity is page, ticket or info.
	Severity string
	// Replaces is the legacy queue that this one takes the place of. Empty: none.
	Replaces string
}

// Loop gives the loop of the backoff of that name.
func (t Topology) Loop(backoff string) (Loop, bool) {
	i := slices.IndexFunc(t.Loops, func(l Loop) bool { return l.Backoff == backoff })
	if i < 0 {
		return Loop{}, false
	}
	return t.Loops[i], true
}

// Work gives the work queue of that name.
func (t Topology) Work(queue string) (Work, bool) {
	i := slices.IndexFunc(t.Works, func(w Work) bool { return w.Queue == queue })
	if i < 0 {
		return Work{}, false
	}
	return t.Works[i], true
}

// sortBindings sorts by identity, which is worked out once for each binding.
func sortBindings(list []Binding) {
	type entry struct {
		id      string
		binding Binding
	}
	entries := make([]entry, len(list))
	for i, b := range list {
		entries[i] = entry{b.Identity(), b}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	for i, e := range entries {
		list[i] = e.binding
	}
}

// Sort puts the objects of t into one fixed order, so that equal topologies are
// equal values: by name, bindings by identity. Works keep the order of the file.
func (t *Topology) Sort() {
	slices.SortFunc(t.Exchanges, func(a, b Exchange) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Queues, func(a, b Queue) int { return cmp.Compare(a.Name, b.Name) })
	sortBindings(t.Bindings)
	slices.SortFunc(t.Policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Loops, func(a, b Loop) int { return cmp.Compare(a.Backoff, b.Backoff) })
}
