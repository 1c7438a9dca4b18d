package migrate

import (
	"context"
	"fmt"
	"strings"

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

// ClientRows returns the rows of the page about clients.
func ClientRows() string {
	var out strings.Builder
	for _, c := range clients() {
		does := c.does
		if c.idle {
			does = "**" + does + "**"
		}
		fmt.Fprintf(&out, "| %s, %s | %s |\n", c.name, c.code, does)
	}
	return out.String()
}

// Declarations says what a service gets that declares a queue as it was.
func Declarations(version string, was, is topology.Queue) string {
	return declarations(version, was, is)
}

// JoinErrors joins the errors of several queues.
func JoinErrors(errs ...error) error { return joinErrors(errs...) }
