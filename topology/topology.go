// Package topology holds what a broker's virtual host can contain, as plain values: exchanges,
// queues, bindings and policies, and what dlxctl knows about the objects that it generated.
//
// The package is pure: it does no I/O, reads no clock and imports of this module only
// package text. [Topology] is a set of objects, wanted or found. [Compiled] is
// what a topology file compiles to, and [State] is what a broker holds.
package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Topology is a set of objects of one virtual host, wanted or found.
type Topology struct {
	Exchanges []Exchange `json:"exchanges"`
	Queues    []Queue    `json:"queues"`
	Bindings  []Binding  `json:"bindings"`
	Policies  []Policy   `json:"policies"`
}

// QueueNames returns the names of the queues.
func (t Topology) QueueNames() []string {
	return text.Each(t.Queues, func(q Queue) string { return q.Name })
}

// ExchangeNames returns the names of the exchanges.
func (t Topology) ExchangeNames() []string {
	return text.Each(t.Exchanges, func(e Exchange) string { return e.Name })
}

// Compiled is what a topology file compiles to: the objects that it wants, and what the
// processor, status and generate need to know about them. A saved plan has it as JSON.
type Compiled struct {
	Topology

	// Name is the topology's name. Every generated object has it as a prefix.
	Name string `json:"topology"`
	// VHost is the virtual host. Empty means the one of the AMQP URL.
	VHost string `json:"vhost"`
	// Cluster is the only cluster name that the topology may be applied to. Empty means
	// any.
	Cluster string `json:"cluster"`
	// CountHeader is the name of the header that counts the attempts.
	CountHeader string `json:"countHeader"`
	// Backoffs are the backoffs that a work queue uses and whose attempts the processor counts, by
	// name.
	Backoffs []Backoff `json:"backoffs"`
	// Native are the backoffs that a work queue uses and whose retries are left to RabbitMQ, by name.
	// They have no failed queue and no retry exchange, and their tiers have no queue.
	Native []Backoff `json:"native,omitempty"`
	// Delays are the exchanges whose messages come to another exchange later, by name.
	Delays []Delay `json:"delays,omitempty"`
	// WorkQueues are the declared work queues in the order of the file.
	WorkQueues []WorkQueue `json:"workQueues"`
	// Matches are the entries of the file that cover queues by a pattern, in its order.
	Matches []Match `json:"matches,omitempty"`
	// Keeps are the dead-letter queues whose messages have an age from which they are to be parked,
	// by name.
	Keeps []Keep `json:"keeps,omitempty"`
	// Removed are the names of queues and exchanges that the file lists as removed on
	// purpose.
	Removed []string `json:"removed"`
	// Replace are the names of queues that may be replaced under their names: the file consents to
	// [ReplacesQueue].
	Replace []string `json:"replace,omitempty"`
	// Messages says how bodies are read and what is masked in them. A saved plan does not have it.
	Messages Messages `json:"-"`
	// Notify is where the processor sends notices. No JSON has it: it may hold secrets.
	Notify []NotifyTarget `json:"-"`
	// Places tells where the files declare exchanges, work queues, and the bindings of both. An
	// object that dlxctl generates has no place. A place is not part of an object, and is never
	// compared.
	Places map[Key]Place `json:"places,omitempty"`
	// Accepted are the warnings that the file settles.
	Accepted []Acceptance `json:"accept,omitempty"`
}

// Keep is how long dead letters stay in a dead-letter queue, at least. RabbitMQ knows nothing of
// it: a TTL that a policy sets would hold only for messages that come after it was set, and would
// go on to delete those when it has been removed.
type Keep struct {
	Queue string        `json:"queue"`
	Age   time.Duration `json:"age"`
}

// KeepOf returns how long dead letters stay in a queue. Zero: until a person moves them.
func (c Compiled) KeepOf(queue string) time.Duration {
	for _, k := range c.Keeps {
		if k.Queue == queue {
			return k.Age
		}
	}
	return 0
}

// Place is a line of a file. Line counts from 1.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Overlay is the file and line at which an overlay changes what stands at the place. Empty: no
	// overlay does.
	Overlay string `json:"overlay,omitempty"`
}

// String returns the place in the form that editors understand, file and line, and after a comma
// that in the overlay.
func (p Place) String() string {
	at := fmt.Sprintf("%s:%d", p.File, p.Line)
	if p.Overlay != "" {
		at += ", " + p.Overlay
	}
	return at
}

// IsZero reports whether p is nowhere.
func (p Place) IsZero() bool { return p == Place{} }

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

// DelayedMessage is the exchange type of the plugin for delayed messages, which is not for RabbitMQ
// 4.3 and later.
const DelayedMessage = "x-delayed-message"

// ExchangeTypes returns the exchange types that every broker has.
func ExchangeTypes() []string { return []string{Direct, Fanout, Topic, Headers} }

// Exchange is an exchange. Its identity is Name.
type Exchange struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"autoDelete"`
	Internal   bool   `json:"internal"`
	// External says that another team owns the exchange: it must exist, and dlxctl
	// never creates, changes or deletes it. An empty Type is then any type.
	External  bool      `json:"external"`
	Arguments Arguments `json:"arguments"`
	Label
}

// BuiltInExchanges returns the exchanges that every virtual host has, by name, without the default
// exchange and [TraceExchange].
func BuiltInExchanges() []Exchange {
	return []Exchange{
		{Name: "amq.direct", Type: Direct, Durable: true},
		{Name: "amq.fanout", Type: Fanout, Durable: true},
		{Name: "amq.headers", Type: Headers, Durable: true},
		{Name: "amq.match", Type: Headers, Durable: true},
		{Name: "amq.topic", Type: Topic, Durable: true},
	}
}

// TraceExchange returns the exchange of every virtual host that only RabbitMQ publishes to.
func TraceExchange() Exchange {
	return Exchange{Name: "amq.rabbitmq.trace", Type: Topic, Durable: true, Internal: true}
}

// Queue is a queue. Its identity is Name. Its type is always in
// Arguments["x-queue-type"]: a queue that was read from a broker gets the argument from
// the type that the broker reports.
type Queue struct {
	Name       string `json:"name"`
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"autoDelete"`
	Exclusive  bool   `json:"exclusive,omitempty"`
	// External says that a service declares the queue: it must exist, and dlxctl never
	// creates, changes or deletes it.
	External  bool      `json:"external"`
	Arguments Arguments `json:"arguments"`
	Label
}

// Type returns the queue's type: [Quorum], [Classic], [Stream], or what a plugin
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
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// DestinationType is queue or exchange.
	DestinationType string `json:"destinationType"`
	// Key is the routing key. Empty for most fanout and headers bindings.
	Key       string    `json:"key"`
	Arguments Arguments `json:"arguments"`
	Label
}

// String returns the binding as plan prints it: "source -> destination (key)",
// with the headers in place of the key where there are any, and "exchange:"
// before a destination that is one.
func (b Binding) String() string {
	dst := b.Destination
	if b.DestinationType == ToExchange {
		dst = "exchange:" + dst
	}
	detail := b.Key
	if headers := b.Arguments.WithoutX(); len(headers) > 0 {
		parts := text.Each(headers.Names(), func(name string) string { return name + "=" + FormatValue(headers[name]) })
		detail = strings.Join(parts, ", ")
	}
	if detail == "" {
		return b.Source + " -> " + dst
	}
	return b.Source + " -> " + dst + " (" + detail + ")"
}

// HasUnlistableKey reports whether the management API cannot list a binding with b's key and any
// arguments: ~ stands before other characters. The API then answers 500 for the list of all
// bindings of the virtual host, and for that of its exchange and its queue, until the binding is
// deleted over AMQP (measured on 3.10.8, 4.0.5 and 4.3.6). Every binding of dlxctl has an argument,
// the owner mark.
func (b Binding) HasUnlistableKey() bool {
	i := strings.IndexByte(b.Key, '~')
	return i >= 0 && i < len(b.Key)-1
}

// Key identifies an object within a topology. It is comparable.
type Key struct {
	Kind Kind
	// Name is the object's name; for a binding a text that is equal for equal
	// bindings only.
	Name string
}

// MarshalText implements [encoding.TextMarshaler]: JSON has a key as the key of an object.
func (k Key) MarshalText() ([]byte, error) { return []byte(string(k.Kind) + " " + k.Name), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Key) UnmarshalText(text []byte) error {
	kind, name, _ := strings.Cut(string(text), " ")
	*k = Key{Kind(kind), name}
	return nil
}

// Kind is a kind of object.
type Kind string

// The kinds of objects. Policies come last: they match the others by name.
const (
	KindExchange Kind = "exchange"
	KindQueue    Kind = "queue"
	KindBinding  Kind = "binding"
	KindPolicy   Kind = "policy"
	// KindTopology is not an object of a broker. Changes of it are blocked, and speak of
	// the topology as a whole.
	KindTopology Kind = "topology"
)

// Identity returns the text that tells the binding from every other. It leaves
// out nothing: two bindings that differ in the mark alone are two bindings.
func (b Binding) Identity() string {
	var room [160]byte // enough for most
	return string(b.appendIdentity(room[:0]))
}

func (b Binding) appendIdentity(out []byte) []byte {
	out = append(appendQuoted(out, b.Source), ' ')
	out = append(append(out, b.DestinationType...), ' ')
	out = append(appendQuoted(out, b.Destination), ' ')
	out = append(appendQuoted(out, b.Key), ' ')
	return b.Arguments.appendText(out)
}

// Identities returns the identities of bindings, in their order. They share the memory of one
// text: thousands of them are quicker that way.
func Identities(list []Binding) []string {
	var all strings.Builder
	all.Grow(128 * len(list)) // most are shorter
	var most [160]byte        // have room in it
	ends := make([]int, len(list))
	for i, b := range list {
		_, _ = all.Write(b.appendIdentity(most[:0])) // it cannot fail
		ends[i] = all.Len()
	}
	shared, begin := all.String(), 0
	ids := make([]string, len(list))
	for i, end := range ends {
		ids[i], begin = shared[begin:end], end
	}
	return ids
}

// Policy is a policy (not an operator policy). Its identity is Name.
type Policy struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
	// ApplyTo is queues, exchanges, all, quorum_queues, classic_queues or streams.
	ApplyTo    string    `json:"applyTo"`
	Priority   int64     `json:"priority"`
	Definition Arguments `json:"definition"`
	Label
}

// Pending returns a policy of dlxctl as it is stored first. RabbitMQ stores a policy and
// applies it afterwards. When the connection of the client ends between the two, the
// broker never applies it (192 of 328 policies on 4.3.6, 199 of 310 on 3.10.8, whose
// client lost the connection within 6 ms). So dlxctl stores a policy with an odd priority
// first, and with its own priority, which is even, once the broker has answered. A policy
// that is found with an odd priority may not be in effect.
func (p Policy) Pending() Policy {
	p.Priority++
	return p
}

// IsPending reports whether a policy of dlxctl may be stored and not in effect.
func (p Policy) IsPending() bool { return p.Priority%2 != 0 }

// PriorityAbove returns the lowest priority of a policy of dlxctl that is above another.
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
	RoleUnroutable Role = "unroutable" // catches what the processor cannot route
	RoleDeadLetter Role = "dead"       // dead-letter queues, and the exchange that picks one
	RoleReturn     Role = "return"     // the exchange that brings a message back to its queue
	RoleFailed     Role = "failed"     // where work queues dead-letter to, what the processor reads
	RoleRetry      Role = "retry"      // the TTL queues, and the headers exchange that picks one
	RoleBusiness   Role = "business"   // exchanges of the file and the bindings from them
	RoleWork       Role = "work"       // work queues
	RoleLegacy     Role = "legacy"     // queues that a work queue replaces
	RoleHold       Role = "hold"       // where a run of the desk has the messages that it took
	RoleParked     Role = "parked"     // where the desk puts messages that are set aside
	RoleLog        Role = "log"        // where the desk keeps the records of the runs that have ended
)

// Label says what an object is for. It is not part of the object: it is not
// compared, and the broker never sees it.
type Label struct {
	Role Role `json:"role"`
	// Backoff is the backoff that a failed or retry object belongs to.
	Backoff string `json:"backoff"`
	// Delay is the delay that an object belongs to: failed where the processor reads, retry where
	// messages wait.
	Delay string `json:"delay,omitempty"`
	// Queue is the work queue that the object was made for. Empty for objects
	// shared by several.
	Queue string `json:"queue"`
}

// Backoff is a named retry schedule.
type Backoff struct {
	// Name is the name of the backoff in the topology file.
	Name string `json:"name"`
	// FailedQueue is the name of the queue that the processor reads.
	FailedQueue string `json:"failedQueue"`
	// RetryExchange is the headers exchange that picks the tier by the count header.
	RetryExchange string `json:"retryExchange"`
	// Tiers are where the attempts wait: the message whose n-th attempt failed
	// waits in Tiers[n-1]. After the last tier it is a dead letter.
	Tiers []Tier `json:"tiers"`
	// RetryOn are the reasons for dead-lettering that are retried. Nil is all.
	RetryOn []Reason `json:"retryOn"`
	// RetryUntil is how long after its first failure a message may wait without an attempt that
	// counts, as its consumer asks for longer waits than any tier has.
	RetryUntil time.Duration `json:"retryUntil"`
	// AfterExpiry is what becomes of a message that expired in its work queue, or whose expiration
	// ends before its next wait does. Empty: it is retried like any other.
	AfterExpiry AfterExpiry `json:"afterExpiry,omitempty"`
	// Outage says what is an outage of a work queue. Nil: nothing is, and each failure counts.
	Outage *Outage `json:"outage,omitempty"`
	// Native says that RabbitMQ delays and counts the retries. The backoff has then a name, tiers and
	// a place alone.
	Native bool `json:"native,omitempty"`
	// Place is where the file has the backoff.
	Place Place `json:"place"`
}

// Retries reports whether a failure for reason r is retried. An unknown reason is: the
// message may have been put into the failed queue by hand. A permanent one never is, and neither is
// a message that a person took out.
func (b Backoff) Retries(r Reason) bool {
	if r == ReasonPermanent || r == ReasonPulled {
		return false
	}
	return r == ReasonUnknown || b.RetryOn == nil || slices.Contains(b.RetryOn, r)
}

// AfterExpiry is what becomes of a message whose time is over.
type AfterExpiry string

// What becomes of it.
const (
	ExpiryDead    AfterExpiry = "dead" // it is a dead letter
	ExpiryDropped AfterExpiry = "drop" // it is deleted and counted
)

// Tier is one delay of a backoff.
type Tier struct {
	Delay time.Duration `json:"delay"`
	// Queue is the name of the retry queue.
	Queue string `json:"queue"`
}

// TierLate is how late messages may return from a tier. RabbitMQ moves them one after the other, so
// that some are always on their way.
const TierLate = 10 * time.Second

// Late reports whether the messages of a tier return later than TierLate, from what its retry queue
// holds. Those past the delay are neither ready nor consumed: Usage counts them as unacknowledged.
// As many as arrive in one delay are ready, so their share says how late they are, without a second
// look. A burst is judged right only once it has lasted for a delay.
func (t Tier) Late(u Usage) bool {
	return float64(u.Unacknowledged)*t.Delay.Seconds() > TierLate.Seconds()*float64(u.Ready)
}

// Reason is why a message failed, as x-death spells it.
type Reason string

// The reasons for dead-lettering. The broker never says unknown, permanent or pulled: a consumer
// that says why it failed calls the failure permanent, and any other one rejected.
const (
	ReasonRejected      Reason = "rejected"
	ReasonDeliveryLimit Reason = "delivery_limit"
	ReasonExpired       Reason = "expired"
	ReasonMaxLength     Reason = "maxlen"
	ReasonUnknown       Reason = "unknown"
	ReasonPermanent     Reason = "permanent"
	// ReasonPulled: no consumer failed, a person took the message out of its work queue (desk pull).
	ReasonPulled Reason = "pulled"
)

// Reasons returns the reasons that a broker knows.
func Reasons() []Reason {
	return []Reason{ReasonRejected, ReasonDeliveryLimit, ReasonExpired, ReasonMaxLength}
}

// AllReasons returns the reasons that the processor gives: those of a broker and its own.
func AllReasons() []Reason { return append(Reasons(), ReasonPermanent, ReasonUnknown) }

// WorkQueue is a declared work queue, as the processor, status and generate see it.
type WorkQueue struct {
	Name string `json:"name"`
	// Backoff is the name of the queue's backoff, or "none". See [Compiled.Processed].
	Backoff string `json:"backoff"`
	// DeadLetterQueue is the name of its dead-letter queue.
	DeadLetterQueue string `json:"deadLetterQueue"`
	// Owner is who to call. Empty if the file does not say.
	Owner string `json:"owner"`
	// Severity is page, ticket or info: that of messages which no rule fits.
	Severity string `json:"severity"`
	// SeverityRules give messages another severity: the first that fits counts.
	SeverityRules []SeverityRule `json:"severityRules,omitempty"`
	// Replaces is the legacy queue that this one succeeds. Empty: none.
	Replaces string `json:"replaces"`
	// RetryTo is the work queue to which its failed messages come after a tier. Empty: they come
	// back.
	RetryTo string `json:"retryTo,omitempty"`
	// Match is the pattern of the entry that covers the queue. Empty: the file names it.
	Match string `json:"match,omitempty"`
}

// ReturnsTo returns the queue to which the failed messages of w come after a tier.
func (w WorkQueue) ReturnsTo() string { return cmp.Or(w.RetryTo, w.Name) }

// Match covers queues that services declare: those whose name its pattern matches. A queue that
// exists and is covered is a work queue; see [Compiled.WithMatched].
type Match struct {
	// Pattern is a regular expression, as RabbitMQ has it in policies.
	Pattern string `json:"pattern"`
	// Type is the type of queues that it covers, [Quorum] or [Classic]. Empty: both.
	Type string `json:"type,omitempty"`
	// The others are those of each work queue.
	Backoff         string         `json:"backoff"`
	DeadLetterQueue string         `json:"deadLetterQueue"`
	Owner           string         `json:"owner"`
	Severity        string         `json:"severity"`
	SeverityRules   []SeverityRule `json:"severityRules,omitempty"`
	// Place is where the file has the entry.
	Place Place `json:"place"`
}

// WorkQueue returns a queue that m covers as the work queue that it is.
func (m Match) WorkQueue(queue string) WorkQueue {
	return WorkQueue{
		Name: queue, Backoff: m.Backoff, DeadLetterQueue: m.DeadLetterQueue, Owner: m.Owner, Severity: m.Severity,
		SeverityRules: m.SeverityRules, Match: m.Pattern,
	}
}

// PolicyNames returns the names of the policies of m, by the type of queues that each is for. One
// policy cannot be for both: RabbitMQ passes over a policy with a key that the type does not know,
// and classic queues do not know at-least-once dead-lettering.
func (m Match) PolicyNames(topology string) map[string]string {
	out := map[string]string{}
	for _, t := range []string{Quorum, Classic} {
		if m.Type == "" || m.Type == t {
			out[t] = MatchPolicyName(topology, t, m.Pattern)
		}
	}
	return out
}

// ReturnBinding returns the binding by which messages come back to a work queue.
func ReturnBinding(topology, queue string) Binding {
	return Binding{
		Source: ReturnExchangeName(topology), Destination: queue, DestinationType: ToQueue, Key: AddressKey(queue),
		Arguments: Arguments{ArgManagedBy: OwnerMark(topology)},
		Label:     Label{Role: RoleReturn, Queue: queue},
	}
}

// WithMatched returns c with the queues among those of a virtual host that its matches cover, as
// external work queues with the binding by which their messages come back. entryOf returns the
// entry that covers a queue. c stays as it is; it may have some of them already.
func (c Compiled) WithMatched(queues []Queue, entryOf func(Queue) (Match, bool)) Compiled {
	if len(c.Matches) == 0 {
		return c
	}
	known := make(map[string]bool, len(c.Queues))
	for _, q := range c.Queues {
		known[q.Name] = true
	}
	out := c
	out.Queues, out.Bindings, out.WorkQueues = slices.Clone(c.Queues), slices.Clone(c.Bindings), slices.Clone(c.WorkQueues)
	out.Places = maps.Clone(c.Places)
	for _, q := range queues {
		m, covered := entryOf(q)
		if known[q.Name] || !covered {
			continue
		}
		out.Queues = append(out.Queues, Queue{
			Name: q.Name, Durable: q.Durable, AutoDelete: q.AutoDelete, External: true,
			Label: Label{Role: RoleWork, Queue: q.Name},
		})
		out.Bindings = append(out.Bindings, ReturnBinding(c.Name, q.Name))
		out.WorkQueues = append(out.WorkQueues, m.WorkQueue(q.Name))
		if out.Places != nil {
			out.Places[Key{KindQueue, q.Name}] = m.Place
		}
	}
	out.Sort()
	return out
}

// WorkQueueNames returns the names of the work queues.
func (c Compiled) WorkQueueNames() []string {
	return text.Each(c.WorkQueues, func(w WorkQueue) string { return w.Name })
}

// Backoff returns the backoff of that name whose attempts the processor counts.
func (c Compiled) Backoff(backoff string) (Backoff, bool) {
	i := slices.IndexFunc(c.Backoffs, func(l Backoff) bool { return l.Name == backoff })
	if i < 0 {
		return Backoff{}, false
	}
	return c.Backoffs[i], true
}

// NativeBackoff returns the backoff of that name whose retries are left to RabbitMQ.
func (c Compiled) NativeBackoff(backoff string) (Backoff, bool) {
	i := slices.IndexFunc(c.Native, func(b Backoff) bool { return b.Name == backoff })
	if i < 0 {
		return Backoff{}, false
	}
	return c.Native[i], true
}

// Processed reports whether the processor takes the failures of a work queue. Otherwise they are
// dead letters as soon as RabbitMQ dead-letters them: its backoff is none, or a native one.
func (c Compiled) Processed(w WorkQueue) bool {
	_, native := c.NativeBackoff(w.Backoff)
	return w.Backoff != NoBackoff && !native
}

// WorkQueue returns the work queue of that name.
func (c Compiled) WorkQueue(queue string) (WorkQueue, bool) {
	i := slices.IndexFunc(c.WorkQueues, func(w WorkQueue) bool { return w.Name == queue })
	if i < 0 {
		return WorkQueue{}, false
	}
	return c.WorkQueues[i], true
}

// sortBindings sorts by identity, which is worked out once for each binding, and returns the
// identities in order.
func sortBindings(list []Binding) []string {
	ids := Identities(list)
	if slices.IsSorted(ids) {
		return ids
	}
	type entry struct {
		id string
		at int // in unsorted: moving bindings would take longer than comparing identities
	}
	entries := make([]entry, len(list))
	for i, id := range ids {
		entries[i] = entry{id, i}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.id, b.id) })
	unsorted := slices.Clone(list)
	for i, e := range entries {
		ids[i], list[i] = e.id, unsorted[e.at]
	}
	return ids
}

// Sort puts the objects of t into one fixed order, so that equal topologies are equal
// values: by name, bindings by [Binding.Identity]. It returns the identities of the bindings, in
// order: working one out takes longer than most of what is done with a binding.
func (t *Topology) Sort() []string {
	slices.SortFunc(t.Exchanges, func(a, b Exchange) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Queues, func(a, b Queue) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	return sortBindings(t.Bindings)
}

// Sort sorts the objects as [Topology.Sort] does, and the backoffs and the rest by name. Work
// queues keep the order of the file.
func (c *Compiled) Sort() []string {
	slices.SortFunc(c.Backoffs, func(a, b Backoff) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Delays, func(a, b Delay) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Keeps, func(a, b Keep) int { return cmp.Compare(a.Queue, b.Queue) })
	slices.SortFunc(c.Native, func(a, b Backoff) int { return cmp.Compare(a.Name, b.Name) })
	return c.Topology.Sort()
}
