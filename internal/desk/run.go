package desk

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// Action is what a run does with the messages it chose.
type Action string

// The actions.
const (
	Replay  Action = "replay"
	Edit    Action = "edit"
	Park    Action = "park"
	Restore Action = "restore"
	Discard Action = "discard"
)

// Phase is how far a run is.
type Phase string

// The phases. A run that has ended has no hold, and so no phase.
const (
	// Taking: the chosen messages move from the queue into the hold.
	Taking Phase = "taking"
	// Sending: the messages move from the hold to where they go.
	Sending Phase = "sending"
)

// Target is where a replay sends messages. The zero value is the work queue in which each
// message failed.
type Target struct {
	// Original sends to the exchange and key of the publisher, and so to all queues there.
	Original bool
	// Queue, or Exchange and Key, name one place for all messages.
	Queue         string
	Exchange, Key string
}

// Request is what a person asks for.
type Request struct {
	Action Action
	// Queue is where the messages lie.
	Queue string
	// Filter chooses; nil chooses all. Handles chooses by name, as "0a1b2c3d4e5f" or
	// "0a1b2c3d4e5f#2". Both together choose what both choose.
	Filter  *deadletter.Filter
	Handles []string
	// Since leaves out what failed earlier; zero leaves out nothing.
	Since time.Time
	// Limit is how many to choose at most, from the head; zero is all.
	Limit int
	// Again includes messages that were replayed before.
	Again  bool
	Target Target
	// Forever makes Discard delete in place of parking.
	Forever bool
	// Edited is the new body and properties of Edit. EditedFrom is the digest of the message that
	// the person has edited; nil is any message.
	Edited     *deadletter.Edited
	EditedFrom *deadletter.Digest
	// KeepHistory keeps the headers retry-* on a replay, and KeepTTL the publisher's expiration.
	KeepHistory, KeepTTL bool
	Reason               string
	Send                 SendOptions
	Look                 LookOptions
}

// SendOptions limits how fast a run sends, and when it stops. The zero value sends without a
// limit and never stops by itself.
type SendOptions struct {
	// Rate is messages a second; zero is no limit.
	Rate float64
	// Ramp is the sizes of the first batches. Each must succeed before the next is sent.
	Ramp []int
	// MaxWaiting pauses while the target queue holds more messages; zero is no limit.
	MaxWaiting int
	// StopFailures and StopShare stop after that many repeated failures, or after that share
	// of the sent messages, from 0 to 1, of at least 10. Zero is never.
	StopFailures int
	StopShare    float64
	// InFlight is how many messages may be published and not yet confirmed; zero is 1 with a
	// rate and 256 without. A kill doubles at most that many.
	InFlight int
	// Settle is how long nothing must be heard of a batch before it counts as done.
	Settle time.Duration
}

// Proposal is what a run would do: the answer to a Request, before anything moves.
type Proposal struct {
	Request Request
	Looked  Looked
	// Chosen is how many messages it chose; ReplayedBefore is how many it left out for that.
	Chosen, ReplayedBefore int
	// Copies is how many of the chosen messages have an equal one before them.
	Copies int
	// Groups is what the chosen messages have in common: by cause, key and work queue.
	Groups []deadletter.Group
	// First and Last are when they failed.
	First, Last time.Time
	// Reaches is where they would go.
	Reaches []Reach
	// Refusals says why the run cannot be done, one line for each cause, with the fix. A
	// message whose origin is in doubt is one. Empty means that it can.
	Refusals []string
	// Drops are the queues that would drop messages, of which Refusals says so too.
	Drops []string
	// Notes says what a person should know before, such as that nothing hears failures.
	Notes []string

	manifest manifest
}

// Reach is a queue to which messages would go.
type Reach struct {
	Queue, Exchange, Key string
	Messages             int
	// Consumers and Waiting describe the queue now; -1 is unknown.
	Consumers, Waiting int
}

// Run is a run that has not ended: its hold exists.
type Run struct {
	ID      string
	Action  Action
	Queue   string
	Phase   Phase
	By      string
	Reason  string
	Started time.Time
	// Chosen is how many messages the run chose, Holds how many its hold has now.
	Chosen, Holds int
	Target        Target
	Send          SendOptions
	// Active reports that a process works on the run at this moment.
	Active bool
}

// Progress is how far a run is while it works.
type Progress struct {
	Run            string
	Phase          Phase
	Done, Chosen   int
	FailedAgain    int
	Batch          int     // of the ramp, from 1; zero after it
	Rate           float64 // messages a second, of the last seconds
	Pausing        string  // why nothing is sent at the moment
	LastFailure    string
	LastFailureKey string
}

// Result is how the work of a process on a run ended. It is the only record of a run: once all its
// messages have left the hold, the broker knows nothing of it.
type Result struct {
	Run string
	// Queue is where the run chose messages, Chosen how many, and To where they go, one or several
	// queues. To is empty if they are deleted.
	Queue  string
	Chosen int
	To     []string
	// Begun is when the run was begun, By by whom, and Reason why. Continued is who has resumed or
	// returned it, if that is another.
	Begun                 time.Time
	By, Continued, Reason string
	// Ended reports that the run has no hold any more.
	Ended bool
	// Moved is how many messages reached their target, Left how many are still in the hold.
	Moved, Left int
	// Missing is how many chosen messages were no longer in the queue.
	Missing int
	// DoubledAtMost is how many messages a kill of an earlier process may have doubled.
	DoubledAtMost int
	// FailedAgain is how many failed again while the run listened.
	FailedAgain int
	// Stopped says why the run stopped with messages left. Empty if it did not.
	Stopped string
	Took    time.Duration
}
