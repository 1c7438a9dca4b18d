package desk

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
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

// named reports whether the target is one place for all messages.
func (t Target) named() bool { return t.Queue != "" || t.Exchange != "" || t.Key != "" }

// Request is what a person asks for.
type Request struct {
	Action Action
	// Queue is where the messages lie.
	Queue string
	// Work is the work queue whose messages Filter chooses. Empty: those of all.
	Work string
	// Filter chooses; nil chooses all. Handles chooses by name, as "0a1b2c3d4e5f" or
	// "0a1b2c3d4e5f#2". Both together choose what both choose.
	Filter  *deadletter.Filter
	Handles []string
	// Since leaves out what failed earlier; zero leaves out nothing.
	Since time.Time
	// Until leaves out what failed then or later, and what does not tell when it failed; zero leaves
	// out nothing.
	Until time.Time
	// Keep is the age that Until stands for, if the topology file has it, see [topology.Keep]. Zero:
	// Until is for another reason.
	Keep time.Duration
	// Limit is how many to choose at most, from the head; zero is all.
	Limit int
	// Again includes messages that were replayed before.
	Again  bool
	Target Target
	// Forever makes Discard delete in place of parking.
	Forever bool
	// Edited is the new body, properties and headers of Edit. EditedFrom is the whole digest of the
	// message that the person has edited; nil is any message.
	Edited     *deadletter.Edited
	EditedFrom *deadletter.Digest
	// Key is the routing key of an edited message, in place of the publisher's. Empty keeps that.
	Key string
	// KeepHistory keeps the headers that describe the failure on a replay, and KeepTTL the
	// publisher's expiration.
	KeepHistory, KeepTTL bool
	Reason               string
	Send                 SendOptions
	Look                 LookOptions
}

// SendOptions limits how fast a run sends, and when it stops. The zero value sends without a
// limit and never stops by itself.
type SendOptions struct {
	// Rate is messages a second; zero means no limit.
	Rate float64
	// Ramp is the sizes of the first batches. Each must succeed before the next is sent.
	Ramp []int
	// MaxWaiting pauses while the target queue holds more messages; zero means no limit.
	MaxWaiting int
	// StopFailures and StopShare stop after that many repeated failures, or after that share
	// of the sent messages, from 0 to 1, of at least 10. Zero is never, but in the batches of Ramp.
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
	Request Request `json:"-"`
	Looked  Looked  `json:"looked"`
	// Chosen is how many messages it chose.
	Chosen int `json:"chosen"`
	// Copies is how many of the chosen messages have an equal one before them.
	Copies int `json:"copies"`
	// ReplayedBefore is how many messages it left out because they were replayed before.
	ReplayedBefore int `json:"leftOutReplayedBefore"`
	// First and Last are when the first and the last of the chosen messages failed.
	First time.Time `json:"firstFailed,omitzero"`
	Last  time.Time `json:"lastFailed,omitzero"`
	// Groups is what the chosen messages have in common: by cause, key and work queue.
	Groups []deadletter.Group `json:"groups"`
	// Reaches is where they would go.
	Reaches []Reach `json:"reaches"`
	// Refusals says why the run cannot be done, a line for each cause, with the fix; an origin in
	// doubt is one. Empty: it can.
	Refusals []string `json:"refusals"`
	// Drops are the queues that would drop messages, of which Refusals says so too.
	Drops []string `json:"-"`
	// Notes says what a person should know before, such as that nothing hears failures.
	Notes []string `json:"-"`

	manifest manifest
}

// Reach is a queue to which messages would go. A number that is not known is -1.
type Reach struct {
	Queue    string `json:"queue"`
	Exchange string `json:"exchange,omitempty"`
	Key      string `json:"key,omitempty"`
	// Messages is how many messages would go there.
	Messages int `json:"messages"`
	// Consumers and Waiting are those that the queue has now: consumers, and waiting messages.
	Consumers int `json:"consumers,omitempty" jsondoc:"known"`
	Waiting   int `json:"waiting,omitempty" jsondoc:"known"`
}

// Run is a run that has not ended: its hold exists.
type Run struct {
	// ID is the name of the run.
	ID     string `json:"run"`
	Action Action `json:"action"`
	// Forever reports that it deletes the messages, in place of parking them.
	Forever bool `json:"forever,omitempty"`
	// Queue is where the messages were.
	Queue string `json:"queue"`
	Phase Phase  `json:"phase"`
	// Active reports that a process works on the run at this moment.
	Active bool `json:"active"`
	// Chosen is how many messages the run chose, Holds how many its hold has now.
	Chosen int `json:"chosen"`
	Holds  int `json:"leftInHold"`
	// Age is how many seconds old Holds is at most: zero if the hold was asked, and no process has
	// messages of it.
	Age int `json:"leftSecondsOldAtMost"`
	// Started is when the run was begun, By by whom, and Reason why.
	Started time.Time   `json:"started,omitzero"`
	By      string      `json:"by,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Target  Target      `json:"-"`
	Send    SendOptions `json:"-"`
	// Keep is the age from which its messages were old, if they were chosen by that. Zero: they were
	// not.
	Keep time.Duration `json:"-"`
}

// Progress is how far a run is while it works.
type Progress struct {
	Run            string  `json:"run"`
	Phase          Phase   `json:"phase"`
	Done           int     `json:"done"`
	Chosen         int     `json:"chosen"`
	FailedAgain    int     `json:"failedAgain"`
	Batch          int     `json:"batch"`   // of the ramp, from 1; zero after it
	Rate           float64 `json:"rate"`    // messages a second, of the last seconds
	Pausing        string  `json:"pausing"` // why nothing is sent at the moment
	LastFailure    string  `json:"lastFailure"`
	LastFailureKey string  `json:"lastFailureKey"`
	// Unheard are the queues whose failures are not heard, each with the reason.
	Unheard []string `json:"unheard,omitempty"`
}

// Result is how the work of a process on a run ended. Once all messages of a run have left its
// hold, the broker knows nothing of it but its record, see [EndedRun].
type Result struct {
	// Run is the name of the run.
	Run    string `json:"run"`
	Action Action `json:"action"`
	// Queue is where the run chose messages, Chosen how many, and To the queues they go to. To is
	// empty if they are deleted.
	Queue  string   `json:"queue,omitempty"`
	To     []string `json:"to,omitempty"`
	Chosen int      `json:"chosen"`
	// Begun is when the run was begun, By by whom, and Reason why. Continued is who has resumed or
	// returned it, if that is another.
	Begun     time.Time `json:"begun,omitzero"`
	By        string    `json:"by,omitempty"`
	Continued string    `json:"continuedBy,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	// Direct reports that the run had no hold: there is nothing to resume or return.
	Direct bool `json:"-"`
	// Deletes reports that the run deletes messages, in place of parking them.
	Deletes bool `json:"-"`
	// Parked reports that the run chose among the parked messages.
	Parked bool `json:"-"`
	// Ended reports that the run has no hold any more.
	Ended bool `json:"ended"`
	// Moved is how many messages reached their target, Left how many are still in the hold.
	Moved int `json:"moved"`
	Left  int `json:"leftInHold"`
	// Gone is how many messages the run had taken and did not find in its hold when it had sent all
	// others.
	Gone int `json:"goneFromHold,omitempty"`
	// LeftInQueue is how many chosen messages are still in the queue: the run has stopped before it
	// took them.
	LeftInQueue int `json:"leftInQueue,omitempty"`
	// Missing is how many chosen messages were no longer in the queue.
	Missing int `json:"missing"`
	// DoubledAtMost is how many messages may be doubled: by kills, the end of a connection, or a queue
	// that refused what others have.
	DoubledAtMost int `json:"doubledAtMost"`
	// InDoubt is how many of these may be doubled although no process was killed.
	InDoubt int `json:"-"`
	// Reordered reports that consumers may have got messages that arrived during a pull before those
	// that it held.
	Reordered bool `json:"reordered,omitempty"`
	// FailedAgain is how many failed again while the run listened.
	FailedAgain int `json:"failedAgain"`
	// SoFar reports that more may fail: the run did not wait until consumers had read what it sent.
	// It waits for the batches of the ramp.
	SoFar bool `json:"soFar,omitempty"`
	// Unheard are the queues of which the run did not hear whether messages failed again there, each
	// with the reason.
	Unheard []string `json:"unheard,omitempty"`
	// Stopped says why the run stopped with messages left. Empty if it did not.
	Stopped string `json:"stopped,omitempty"`
	// Took is how long the process worked on the run.
	Took jsondoc.Seconds `json:"seconds"`
}
