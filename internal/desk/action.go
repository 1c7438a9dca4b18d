package desk

import "time"

// Action is what a run does with the messages it chose. [Kinds] says what each one is.
type Action string

// The actions.
const (
	Replay  Action = "replay"
	Discard Action = "discard"
	Edit    Action = "edit"
	Park    Action = "park"
	Restore Action = "restore"
	Pull    Action = "pull"
)

// Kind is what makes an action different from the others.
type Kind struct {
	Action Action
	// Done is what it has done to messages: replayed, parked.
	Done string
	// AllowedBy is the action that a page must be allowed to do: park allows to restore, too. Empty:
	// no page does it.
	AllowedBy Action
	// Once: it leaves out messages that were replayed before, unless the person wants them again.
	Once bool
	// Paced: the person says how fast it sends, and when it stops.
	Paced bool
	// Edits: it sends one message with a new body, and parks the original.
	Edits bool
	// Live: it takes from a work queue, which consumers read meanwhile.
	Live bool
	// Limits are those of its runs unless the person sets others.
	Limits Limits

	// goes is where its messages go.
	goes destination
	// parkedAs is what a message that it parks says about why it is parked. Empty: it parks none.
	parkedAs string
	// mayDelete: it can delete messages in place of parking them.
	mayDelete bool
}

// destination is where the messages of a run go.
type destination int

const (
	_ destination = iota
	// toWork is the work queue in which each message failed, or the target that the person has
	// named. The run listens for messages that fail again there.
	toWork
	// toParked is the queue of parked messages.
	toParked
	// toOrigin is the queue from which each message was parked.
	toOrigin
	// toDead is the dead-letter queue of the work queue.
	toDead
)

// Kinds returns the table of the actions, in the order in which help lists them.
func Kinds() []Kind {
	unlimited := Limits{Rate: none, Ramp: none, StopOn: never}
	return []Kind{
		{
			Action: Replay, Done: "replayed", AllowedBy: Replay, Once: true, Paced: true, goes: toWork,
			Limits: Limits{Rate: "10/s", Ramp: "1,10,100", StopOn: "3", MaxWaiting: 1000, Settle: 5 * time.Second},
		},
		{
			Action: Discard, Done: "discarded", AllowedBy: Discard, goes: toParked, parkedAs: "discarded", mayDelete: true,
			Limits: unlimited,
		},
		{
			// One message, and its first failure stops the run.
			Action: Edit, Done: "edited and sent", AllowedBy: Edit, Edits: true, goes: toWork, parkedAs: "edited",
			Limits: Limits{Rate: none, Ramp: "1", StopOn: "1", Settle: 5 * time.Second},
		},
		{Action: Park, Done: "parked", AllowedBy: Park, goes: toParked, parkedAs: "parked", Limits: unlimited},
		{Action: Restore, Done: "restored", AllowedBy: Park, goes: toOrigin, Limits: unlimited},
		{Action: Pull, Done: "pulled", Live: true, goes: toDead, Limits: unlimited},
	}
}

// Kind returns the entry of an action. That of an action which this release does not know has no
// destination.
func (a Action) Kind() Kind {
	for _, k := range Kinds() {
		if k.Action == a {
			return k
		}
	}
	return Kind{Action: a, Done: "moved"}
}

// deletes reports whether the action deletes messages if forever is asked for.
func (k Kind) deletes(forever bool) bool { return k.mayDelete && forever }
