package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Abortable returns the migrations that can be rolled back: those of legacy, or, if it is
// empty, all that are not finished. It also returns a line for each other migration, which says
// why that one is not rolled back.
//
// A migration whose legacy queue is deleted is finished. To roll it back would delete the retry
// queues that the successor uses, and leave its publishers without a queue. So it is skipped,
// and refused if it is named. So is one whose legacy queue or successor is being replaced under its
// name.
func Abortable(
	want topology.Compiled, state topology.State, legacy []string,
) (moves []Move, stays []string, err error) {
	var refused []string
	for _, m := range allMoves(want) {
		named := slices.Contains(legacy, m.Legacy)
		if len(legacy) > 0 && !named {
			continue
		}
		f, other := m.find(state), m.otherMove(state)
		if f.legacy && other == "" {
			other = m.successorReplaced(state)
		}
		switch {
		case other != "" && named:
			refused = append(refused, m.Legacy+": "+other)
		case other != "":
			stays = append(stays, m.Legacy+": "+other)
		case f.legacy && (named || !m.reappeared(f)):
			moves = append(moves, m)
		case f.legacy:
			stays = append(stays,
				fmt.Sprintf("%s was declared again after its migration, and messages go to %s; to roll it back anyway, name it: dlxctl migrate abort %s", m.Legacy, m.New, text.ShellQuote(m.Legacy)))
		case named:
			refused = append(refused, m.finished(f))
		case f.successor:
			stays = append(stays, m.finished(f))
		}
	}
	if len(legacy) == 0 && len(moves) > 0 { // otherwise they are NotInFile
		stays = append(stays, strayLines(want, state)...)
	}
	if len(refused) > 0 {
		return nil, nil, fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(refused, "\n  "))
	}
	return moves, stays, nil
}

// NotInFile returns an error that wraps ErrRefused and names the migrations that the file does not
// have, where a command has nothing else to roll back: after a git revert, all messages go on to
// their successors. Nil: there are none, or the command names queues.
func NotInFile(want topology.Compiled, state topology.State, legacy []string) error {
	lines := strayLines(want, state)
	if len(legacy) > 0 || len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%w:\n  %s", ErrRefused, strings.Join(lines, "\n  "))
}

// strayLines says what to do about each migration that the file does not have.
func strayLines(want topology.Compiled, state topology.State) []string {
	return text.Each(plan.StrayMoves(want, state), plan.StrayMove.String)
}

// successorReplaced says that the successor is being replaced under its name. All that is routed to
// it waits in its hold then: a rollback would not bind the legacy queue again, as the successor has
// no bindings, and would delete what the failures of the successor need. Empty: it is not.
func (m Move) successorReplaced(state topology.State) string {
	replaced := replacementOf(m.Topology, m.New)
	if !replaced.find(state).successor {
		return ""
	}
	return fmt.Sprintf("%s is being replaced under its name, and messages wait in %s; finish that first, with dlxctl migrate %s",
		text.Name(m.New), replaced.New, text.ShellQuote(m.New))
}

// finished says why a migration without a legacy queue is not rolled back.
func (m Move) finished(f found) string {
	switch {
	case !f.successor:
		return fmt.Sprintf("%s does not exist, and neither does %s: there is nothing to roll back", m.Legacy, m.New)
	case len(f.exchanges) > 0 || f.policy != nil || f.forwarder != nil:
		return fmt.Sprintf("%s is deleted, so there is nothing to roll back to; run migrate to finish", m.Legacy)
	default:
		return fmt.Sprintf("%s is done: its legacy queue is deleted, and there is nothing to roll back", m.Legacy)
	}
}

// reappeared reports whether a service has declared the legacy queue again after the
// migration was finished: the successor has the bindings, the legacy queue has none, and nothing
// of the cutover and the drain is left.
func (m Move) reappeared(f found) bool {
	return len(f.exchanges) == 0 && f.policy == nil && f.forwarder == nil && f.successor &&
		len(f.onLegacy) == 0 && len(m.Wanted) > 0 && len(lacking(m.Wanted, f.onSuccessor)) == 0
}
