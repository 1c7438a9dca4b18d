// Package spec reads topology files and compiles them.
//
// It is pure: the caller reads the files and says what the environment holds.
// [Decode] gives a [Spec] or every problem of the files at once, each with its
// place and remedy; [Compile] turns a Spec into a topology.Topology.
package spec

import (
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// Source is one file.
type Source struct {
	// Name is how messages call it: a path, or "stdin".
	Name string
	Data []byte
	// Overlay reports that the file changes the others.
	Overlay bool
	// Others are the files of other topologies, which an overlay is for as well: it may name what
	// they have.
	Others []Source
}

// Pos is a place in a file. Line and Col count from 1; Col counts characters.
type Pos struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"column"`
}

// String returns the place in the form that editors understand: file, line and column.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

// Spec is what one or several files say, with defaults filled in, delays and
// shapes worked out, and nothing contradictory left.
type Spec struct {
	Name        string
	VHost       string // empty: the vhost of the AMQP URL
	Cluster     string // empty: any
	CountHeader string
	// Type is the type of the failed, retry, dead and unroutable queues:
	// topology.Quorum or topology.Classic.
	Type      string
	Backoffs  []Backoff // in the order of the files
	Exchanges []Exchange
	Delays    []Delay
	Queues    []Queue
	// Matches are the entries of queues that cover them by a pattern.
	Matches []Match
	Removed []Removed
	// Accept are the warnings that the files settle.
	Accept []topology.Acceptance
	// Messages is what applies to the messages of all queues.
	Messages topology.Messages
	// Notify is where notices go.
	Notify []topology.NotifyTarget
	// Schemas are the files that Messages names.
	Schemas []SchemaFile
	// NamePos is where the name stands: what is generated beyond 255 bytes
	// because of the topology's name is reported there.
	NamePos Pos
}

// Without returns s without some of its queues, which it has removed on purpose.
func (s Spec) Without(drop func(Queue) bool) *Spec {
	s.Removed = slices.Clone(s.Removed)
	for _, q := range s.Queues {
		if drop(q) {
			s.Removed = append(s.Removed, Removed{Name: q.Name, Pos: q.Pos})
		}
	}
	s.Queues = slices.DeleteFunc(slices.Clone(s.Queues), drop)
	return &s
}

// Removed is the name of a queue or exchange that was taken out on purpose.
type Removed struct {
	Name string
	Pos  Pos
}

// SchemaFile is a file that declares types of messages.
type SchemaFile struct {
	// Key is protoset or proto.
	Key string
	// Name is what stands under the key.
	Name string
	// Paths are where it is looked for, relative to the working directory.
	Paths []string
	Pos   Pos
}

// Backoff is a named retry schedule.
type Backoff struct {
	Name string
	// Tiers are the delays in order, with exponential already expanded.
	Tiers []Tier
	// RetryOn are the reasons that are retried. Nil is all.
	RetryOn []topology.Reason
	// AfterExpiry is what becomes of what expires.
	AfterExpiry topology.AfterExpiry
	// RetryUntil limits the waits that do not count, see [topology.Backoff].
	RetryUntil time.Duration
	// Outage says what is an outage, without its tier. Nil: nothing is.
	Outage *topology.Outage
	// Native says that RabbitMQ delays and counts the retries. The tiers are then linear.
	Native  bool
	Pos     Pos
	Overlay Pos // see [Queue]
}

// Tier is one delay of a backoff. Attempts is how many consecutive attempts use it, at least 1.
type Tier struct {
	Delay    time.Duration
	Attempts int
	Pos      Pos
}

// Exchange is an exchange of the file.
type Exchange struct {
	Name string
	// Type is never empty, but for an external exchange whose file does not say.
	Type      string
	External  bool
	Internal  bool
	Arguments topology.Arguments
	Bindings  []Binding // from other exchanges to this one
	TypeBy    Pos       // where an overlay sets the type; zero: no overlay does
	Pos       Pos
	Overlay   Pos // see [Queue]
}

// Delay is an exchange whose messages come to another exchange later.
type Delay struct {
	Name string
	// To is an exchange of the file to which clients may publish.
	To    string
	ToPos Pos
	// Max is how far ahead a message may be due.
	Max     time.Duration
	Native  bool // RabbitMQ holds its messages until they are due
	Pos     Pos
	Overlay Pos // see [Queue]
}

// Queue is a work queue of the file.
type Queue struct {
	Name string
	// Type is topology.Quorum or topology.Classic; empty for an external queue
	// whose file does not say.
	Type string
	// External reports that a service declares the queue.
	External bool
	// ByPolicy reports that a policy sets the dead-lettering, in place of arguments.
	ByPolicy bool
	// Unmanaged reports that dlxctl sets no dead-lettering on the queue, and makes nothing for
	// it. Backoff and Dead are then empty, and Arguments may have a dead-letter exchange.
	Unmanaged bool
	// Replaces is the legacy queue that this queue replaces. Empty: none.
	Replaces    string
	ReplacesPos Pos
	// Replace reports that the queue may be replaced under its name.
	Replace bool
	// Backoff is a name among Spec.Backoffs, or topology.NoBackoff. Empty if Unmanaged.
	Backoff string
	// RetryTo is the queue of the file to which failed messages come after a tier. Empty: they come
	// back.
	RetryTo    string
	RetryToPos Pos
	Dead       Dead
	// DeliveryLimit is nil where the broker's default holds.
	DeliveryLimit *int64
	Arguments     topology.Arguments
	Bindings      []Binding
	Owner         string
	Severity      string // page, ticket or info, of messages that no rule fits
	SeverityRules []topology.SeverityRule
	// Messages is what applies to the messages of this queue in addition.
	Messages topology.QueueMessages
	Pos      Pos
	// Overlay is the first place at which an overlay changes the queue, also by defaults. Zero: no
	// overlay does.
	Overlay Pos
}

// Match is an entry that covers queues by a pattern.
type Match struct {
	// Pattern is a regular expression of RabbitMQ's policies.
	Pattern string
	// Type is the type of queues that it is for. Empty: quorum and classic.
	Type          string
	Backoff       string
	Dead          Dead
	DeliveryLimit *int64 // of quorum queues
	Owner         string
	Severity      string
	SeverityRules []topology.SeverityRule
	Pos           Pos
	Overlay       Pos // see [Queue]
}

// Dead says where a queue's dead letters go.
type Dead struct {
	// Queue is the dead-letter queue's name, worked out for own and shared too.
	Queue     string
	Arguments topology.Arguments
	// External reports that the queue exists, and that dlxctl only binds it.
	External bool
	// Keep is the age from which the desk parks a dead letter when it is asked to. Zero: none is old.
	Keep time.Duration
	Pos  Pos
}

// Binding is one entry of a list of bindings: it stands for as many bindings as
// it has keys.
type Binding struct {
	Exchange string
	// Keys are the routing keys: one empty key for fanout and headers exchanges.
	Keys []string
	// Arguments are the headers and x-match of a binding to a headers exchange, or what the
	// file has under arguments.
	Arguments topology.Arguments
	// Raw reports that the file has the arguments as they are, with no check of what they mean.
	Raw bool
	Pos Pos
	// KeyPos is where each of Keys stands. Empty if the binding has no key.
	KeyPos []Pos
}

// Problem is something wrong or doubtful in a file.
type Problem struct {
	Pos
	// Name is the fixed name of a warning, such as unused-backoff. Empty for an
	// error.
	Name string `json:"warning,omitempty"`
	// About names the object that a warning is about. Empty: none.
	About string `json:"-"`
	// Msg quotes the value and says what is wrong with it.
	Msg string `json:"message"`
	// Fix says what to do about it. It may be empty where Msg says so.
	Fix string `json:"remedy,omitempty"`
}
