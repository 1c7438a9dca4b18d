package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// StrayMove is a migration that has begun and not ended, and that the file does not have: a commit
// was reverted, say, or replaces was removed too early.
type StrayMove struct {
	// Legacy is the queue that is replaced, and New its successor.
	Legacy, New string
}

// String says what to do about it.
func (m StrayMove) String() string {
	return fmt.Sprintf("the migration of %s to %s has begun and not ended; run 'dlxctl migrate abort', or 'dlxctl migrate', with the file in which %[2]s has replaces: %[1]s",
		text.Name(m.Legacy), text.Name(m.New))
}

// StrayMoves returns these migrations, by legacy queue. One whose legacy queue is gone cannot be
// rolled back, and is none.
func StrayMoves(want topology.Compiled, state topology.State) []StrayMove {
	leadsTo := map[string]string{} // by the names of the ends of switch exchanges
	for _, b := range state.Have.Bindings {
		owner, _ := topology.Owner(b.Arguments)
		if b.DestinationType == topology.ToQueue && owner == want.Name && topology.IsSwitchName(want.Name, b.Source) {
			leadsTo[b.Source] = b.Destination
		}
	}
	if len(leadsTo) == 0 {
		return nil // as a rule
	}
	names := slices.Clone(state.Down)
	for _, q := range state.Have.Queues {
		names = append(names, q.Name)
	}
	var out []StrayMove
	for _, legacy := range names {
		successor, begun := leadsTo[topology.SuccessorEndName(want.Name, legacy)]
		inFile := slices.ContainsFunc(want.WorkQueues, func(w topology.WorkQueue) bool { return w.Replaces == legacy })
		if begun && !inFile && successor != topology.ReplacementHoldName(want.Name, legacy) {
			out = append(out, StrayMove{legacy, successor})
		}
	}
	slices.SortFunc(out, func(a, b StrayMove) int { return strings.Compare(a.Legacy, b.Legacy) })
	return out
}

// strays blocks the deletions of their successors, and warns of the others. A successor that is
// deleted takes the bindings with it that its legacy queue had: nothing would route there.
func (r resolved) strays(p *Plan) {
	for _, m := range StrayMoves(r.want, r.orphans.state) {
		i := slices.IndexFunc(p.Changes, func(c Change) bool {
			return c.Kind == topology.KindQueue && c.Action == Delete && c.Name == m.New
		})
		if i >= 0 {
			c := p.Changes[i]
			p.Changes[i] = Change{
				Action: Blocked, Kind: c.Kind, Name: c.Name, Before: c.Before, Label: c.Label, Stake: c.Stake,
				Reason: m.String(),
			}
		} else if !r.orphans.forwards(m.Legacy) {
			p.Warnings = append(p.Warnings, Warning{Name: topology.WarnMigrationPending, Text: m.String()})
		}
	}
}
