package page

import (
	"context"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// Picker looks at a queue, and passes on the messages that a request chooses, with redacted views.
type Picker interface {
	Pick(ctx context.Context, r desk.Request, visit func(deadletter.Message, deadletter.View) error) (desk.Picked, error)
}

// Mover says what a run would do, and does it.
type Mover interface {
	Propose(ctx context.Context, r desk.Request) (desk.Proposal, error)
	Execute(ctx context.Context, p desk.Proposal, progress func(desk.Progress)) (desk.Result, error)
}

// Runner knows the runs that have not ended, ends them, and knows those that have ended.
type Runner interface {
	Runs(ctx context.Context) ([]desk.Run, error)
	EndedRuns(ctx context.Context) (desk.Ended, error)
	Resume(ctx context.Context, id string, o *desk.SendOptions, progress func(desk.Progress)) (desk.Result, error)
	Return(ctx context.Context, id string, progress func(desk.Progress)) (desk.Result, error)
}

// Canceler asks the process that works on a run to stop.
type Canceler interface {
	Cancel(ctx context.Context, id string) error
}

// Commenter keeps what people say about groups of dead letters.
type Commenter interface {
	Comment(ctx context.Context, c desk.Comment) (desk.Comment, error)
	Comments(ctx context.Context, queue string) (desk.Comments, error)
}

// Engine is the desk behind the page. *desk.Desk implements it.
type Engine interface {
	Picker
	Mover
	Runner
	Canceler
	Commenter
}

var _ Engine = (*desk.Desk)(nil)

// engine returns the engine that acts in the name of a person.
func (p *Page) engine(who person) Engine {
	s := p.sources.now()
	if s.As == nil || who.name == p.By {
		return s.Engine
	}
	return s.As(who.name)
}

// Viewer makes the view of a message. *deadletter.Reader implements it.
type Viewer interface {
	View(m deadletter.Message) deadletter.View
}

// Editor also makes the body of a message a text to edit, and an edited text a body.
// *deadletter.Reader implements it.
type Editor interface {
	Viewer
	Draft(m deadletter.Message) ([]byte, error)
	FromDraft(m deadletter.Message, draft []byte) (deadletter.Edited, error)
}

// Queue is a queue of the overview.
type Queue struct {
	Name string
	// Role is what the queue is for: dead-letter, parked or unroutable.
	Role string
	// Type is quorum, classic or stream. Empty: the queue does not exist, or its node is down.
	Type string
	// Owner is the owner of the work queues that dead-letter into the queue. Empty is unknown.
	Owner string
	// Messages is how many the queue holds, Unacknowledged how many of them a consumer holds.
	// Both are up to 5 seconds old.
	Messages, Unacknowledged int
	// Unknown reports that it is not known how many: both are zero.
	Unknown   bool
	Consumers int
}

// Delay is a delay of the topology file, with what waits there.
type Delay struct {
	Name string `json:"name"`
	// To is the exchange to which messages come that are due.
	To string `json:"to"`
	// Messages is how many wait, in all queues of the delay.
	Messages int64 `json:"messages"`
	// WaitingIn says in which levels, and when the next is due, as far as the broker tells. Empty:
	// none waits in a level.
	WaitingIn string `json:"waitingIn"`
}

// Queues lists the queues that the page may show, and the delays. Their counts are up to 5 seconds
// older than at, and those of a timer up to 12.
type Queues func(ctx context.Context, at time.Time) ([]Queue, []Delay, error)

// Clock tells the time.
type Clock func() time.Time
