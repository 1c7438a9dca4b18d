package migrate

import (
	"fmt"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Status is how far a move is.
type Status struct {
	Move
	// Stage is the next stage.
	Stage Stage
	// Ready, Unacknowledged and Consumers are those of the legacy queue.
	topology.Usage
	// Bindings counts the bindings of the legacy queue.
	Bindings int64
	// Forwards says that the broker hands on what comes to the legacy queue: migrate --forward
	// was run. Paused is set where a run was killed that looked whether it is still used.
	Forwards, Paused bool
	// Quiet is how long nothing has come to a legacy queue that forwards, an hour at most. Nil: not
	// known.
	Quiet *time.Duration
	// Waits says for which queue or publishers, if any, the end of the migration waits.
	Waits string
}

// Statuses returns how far each move is.
func Statuses(want topology.Compiled, state topology.State) []Status {
	var out []Status
	judged := survey.New(state)
	for _, m := range unfinishedMoves(want, state) {
		s := Status{Move: m, Usage: state.Usage[m.Legacy], Bindings: int64(len(m.find(state).onLegacy))}
		f := m.find(state)
		s.Forwards = f.legacy && f.forwarder != nil && state.QueuePolicies[m.Legacy] == f.forwarder.Name
		s.Paused = s.Forwards && m.isPaused(*f.forwarder)
		if err := holdingError(m, judged.Feeders(m.Legacy)); err != nil && f.legacy {
			s.Waits = err.Error()
		}
		if f.legacy && f.byName && !s.Forwards {
			s.Waits = fmt.Sprintf("it is kept: %s; %s", errByName, m.WaysOut())
		}
		switch {
		case len(preparation(want, state, []Move{m}).Changes) > 0:
			s.Stage = Prepare
		case m.next(state, nil).Doing != "":
			s.Stage = Cutover
		case f.legacy && (s.Ready+s.Unacknowledged > 0 || s.Consumers > 0 || s.ConsumersUnknown):
			s.Stage = Drain
		default:
			s.Stage = Retire
		}
		out = append(out, s)
	}
	return out
}

// String returns the status in one line.
func (s Status) String() string {
	where := map[Stage]string{
		Prepare: "to be prepared", Cutover: "to be cut over", Drain: "to be drained", Retire: "to be retired",
	}[s.Stage]
	out := fmt.Sprintf("%s -> %s: %s; the legacy queue has %s", s.Legacy, s.New, where, strings.Join([]string{
		text.Count(s.Bindings, "binding"), messages(s.Ready) + " ready",
		s.NotReady(), s.ConsumersText(),
	}, ", "))
	switch {
	case s.Paused:
		out += "; its forwarder is paused, because a run was killed: run migrate again"
	case s.Forwards && s.Quiet == nil:
		out += "; it forwards, and it is not known when the last message came"
	case s.Forwards && *s.Quiet >= ForwarderAge:
		out += fmt.Sprintf("; it forwards, and no message has arrived for %s or more: if no publisher sends to its name any more, run migrate with %s to delete it",
			text.Took(*s.Quiet), consentTo(s.Legacy))
	case s.Forwards:
		out += fmt.Sprintf("; it forwards, and the last message came %s ago", text.Took(*s.Quiet))
	}
	if s.Waits != "" {
		out += "; " + s.Waits
	}
	return out
}

// ForwarderAge is how far back the broker's statistics are asked for what came to a legacy queue
// that forwards.
const ForwarderAge = time.Hour
