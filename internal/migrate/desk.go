package migrate

import (
	"fmt"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// deskNotes says which runs of the desk have messages in their holds: the legacy queue may be where
// they go. The migration leaves the holds alone, and what a run cannot send stays there.
func (m Move) deskNotes(state topology.State) []Note {
	var out []Note
	for _, q := range plan.DeskQueues(m.Topology, state) {
		if q.Role == topology.RoleHold {
			out = append(out, Note{Text: fmt.Sprintf("%s keeps the messages of a run of the desk; if they go to %s, end the run before %s is deleted: 'dlxctl desk run list' lists the runs, and 'dlxctl desk run resume' or 'dlxctl desk run return' ends one",
				text.Name(q.Name), text.Name(m.Legacy), text.Name(m.Legacy))})
		}
	}
	return out
}

// tellOfDesk reports the runs of the desk whose messages may have gone to a legacy queue that is
// now deleted.
func (r *Runner) tellOfDesk(state topology.State, m Move) {
	for _, q := range plan.DeskQueues(m.Topology, state) {
		if q.Role == topology.RoleHold {
			r.say("retire: %s keeps the messages of a run of the desk; if they went to %s, return the run and replay them to %s: dlxctl desk run return %s",
				text.Name(q.Name), text.Name(m.Legacy), text.Name(m.New), q.Run)
		}
	}
}
