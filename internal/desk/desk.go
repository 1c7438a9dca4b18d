// Package desk looks at dead letters without harm, and moves chosen ones exactly.
//
// A look consumes and closes the channel, which is the only way to give messages back that keeps
// their order on all lines of RabbitMQ and on all types of queues. A run moves the chosen
// messages into a hold, a queue of its own with the list of what was chosen as its first
// message, and sends them from there.
package desk

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

// Desk is the access to the dead letters of one virtual host.
type Desk struct {
	Endpoint   broker.Endpoint
	Management *management.Client
	// Topology names the runs and the return path. The zero value allows only Look.
	Topology topology.Compiled
	// Found is what the broker tells in the place of a topology file, see [Desk.Discover]. Nil: there
	// is a file, or nothing is known. With it, Topology has only names, and the count header.
	Found *Found
	// Reader decodes and redacts what is chosen, grouped and shown.
	Reader *deadletter.Reader
	// By is the person or program that acts, for the record of a run.
	By string
	// Allow are queues that may drop the messages that a run sends to them, see [DroppingError].
	Allow []string
	// ChangeWait is how long a run waits for the end of a command that changes the topology. Zero is
	// a minute.
	ChangeWait time.Duration
	// Unrecorded gets each run that has no record, and why. A desk calls it for one run after the
	// other, on a goroutine of its own. Nil: it is not called.
	Unrecorded func(run string, err error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	pause time.Duration // how long a look waits for the next message; zero is holdPause
	holds bool          // each run has a hold; for tests
	// copies and guards take the place of copiedMost and guardPause, for tests. Zero does not.
	copies int
	guards time.Duration
	// routes returns the routing of the virtual host as it was inspected last; nil before.
	routes atomic.Pointer[func() routing]
	// last is the virtual host as it was inspected last; nil before.
	last atomic.Pointer[topology.State]
	// records are the records that are being written, and recorded guards Unrecorded.
	records  sync.WaitGroup
	recorded sync.Mutex
	// of is the desk whose routing and records are this one's, too; nil: it has its own.
	of *Desk
}

// As returns the same desk for another person who acts.
func (d *Desk) As(by string) *Desk {
	return &Desk{
		Endpoint: d.Endpoint, Management: d.Management, Topology: d.Topology, Found: d.Found, Reader: d.Reader, By: by,
		Allow: d.Allow, ChangeWait: d.ChangeWait, Now: d.Now, pause: d.pause, holds: d.holds,
		copies: d.copies, guards: d.guards, of: d.root(),
	}
}

// root is the desk that has the routing that Route tells from, and the records.
func (d *Desk) root() *Desk { return cmp.Or(d.of, d) }

// ErrRefused is wrapped by the error of a command that would do harm. The error says which
// harm, and how to go on.
var ErrRefused = errors.New("refused")

// LookOptions limits a look.
type LookOptions struct {
	// Messages is how many to look at, from the head of the queue or behind those of Skip. Zero is
	// all, up to the limits below.
	Messages int
	// Skip is how many messages at the head of the queue are passed over. They are held meanwhile,
	// as what is behind them cannot be reached otherwise.
	Skip int
	// HoldMessages and HoldBytes limit what is held. Zero is the default: 1,000,000 messages
	// of a quorum queue; 100,000 messages or 128 MiB of bodies of a classic queue.
	HoldMessages int
	HoldBytes    int64
	// Hold is after how long everything is given back. Zero is as long as messages come, and 10
	// minutes at most; with BesideConsumers 10 s for each 100,000 messages.
	Hold time.Duration
	// BesideConsumers allows a queue with consumers. They take some of its messages meanwhile, and
	// wait for those that are held.
	BesideConsumers bool
	// Live: the queue is a work queue, whose consumers must get the messages in order.
	Live bool
	// TellCost: what the look changed is said to a person also where it limits nothing.
	TellCost bool
}

// Looked is what a look found out about a queue.
type Looked struct {
	Queue string `json:"queue"`
	Type  string `json:"type,omitempty"` // quorum, classic or stream
	// Messages is how many the queue held when the look began: ready ones.
	Messages int `json:"messages"`
	// consumers is how many consumers the queue had.
	consumers int
	// Unacknowledged is how many other consumers held at that moment, as far as is known.
	Unacknowledged int `json:"unacknowledged,omitempty"`
	// Looked is how many were looked at, from the head.
	Looked int `json:"lookedAt"`
	// skipped is how many of them were passed over.
	skipped int
	// Missed says why fewer were looked at than the queue held. Empty if all were.
	Missed string `json:"notLookedAt,omitempty"`
	// enough: more was not asked for.
	enough bool
	// Took is how long the messages were held.
	Took jsondoc.Seconds `json:"seconds"`
	// spent says why a run would lose messages of the queue. Empty if it does not.
	spent string
	// Cost says what the look changed in the queue: redelivered flags, delivery counts.
	Cost string `json:"cost,omitempty"`
	// costs: more changed than marks that limit nothing.
	costs bool
}

// Costs reports that the look changed more than marks that limit nothing.
func (l Looked) Costs() bool { return l.costs }
