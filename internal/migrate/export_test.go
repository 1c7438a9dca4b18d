package migrate

import (
	"context"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Moves returns the moves that are not done, for tests.
func Moves(want topology.Compiled, state topology.State) []Move { return unfinishedMoves(want, state) }

// Preparation returns the changes of the stage prepare, for tests.
func Preparation(want topology.Compiled, state topology.State, moves []Move) plan.Plan {
	return preparation(want, state, moves)
}

// Prepare creates what a queue needs, as a run does that replaces it.
func (r *Runner) Prepare(ctx context.Context, queue string) error {
	return r.prepare(ctx, []Move{{Topology: r.Topology.Name, New: queue}}, func(*plan.Plan) {})
}

// NextChanges returns the changes of the next step of a cutover, for tests.
func NextChanges(m Move, state topology.State) []plan.Change { return m.next(state, nil).Changes }

// NextChangesBack returns those of the next step of an abort.
func NextChangesBack(m Move, state topology.State) []plan.Change { return m.nextBack(state).Changes }

// CanaryPath returns from which queues a canary in a feeder comes home, or why none is sent there.
func CanaryPath(m Move, state topology.State, feeder string) (last []string, why string) {
	s := survey.New(state)
	return m.canaryPath(s, s.Feeders(m.Legacy), feeder)
}
