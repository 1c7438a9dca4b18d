package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

// Interrupted reads from the broker how far the migrations of an interrupted run are, and returns
// a line for each. cause is the error of Run or Abort.
func (r *Runner) Interrupted(ctx context.Context, cause error) ([]string, error) {
	state, err := r.inspect(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stages := map[string]Stage{}
	for _, s := range Statuses(r.Topology, state) {
		stages[s.Legacy] = s.Stage
	}
	var lines []string
	for _, m := range allMoves(r.Topology) {
		stage, unfinished := stages[m.Legacy]
		forth, back := r.moverOf(m.Legacy, m.New), r.moverOf(m.New, m.Legacy)
		if len(r.Legacy) > 0 && !slices.Contains(r.Legacy, m.Legacy) || !unfinished && forth == nil {
			continue // it is not part of this run
		}
		line := fmt.Sprintf("%s -> %s: %s", m.Legacy, m.New, m.progressText(state, stage))
		switch {
		case back != nil:
			line = fmt.Sprintf("%s <- %s: new messages go to %s", m.Legacy, m.New, m.receivers(m.find(state), m.Legacy))
			line, err = withCounts(ctx, conn, line, back, m.New, m.Legacy, cause)
		case stage == Drain || stage == Retire:
			line, err = withCounts(ctx, conn, line, forth, m.Legacy, m.New, cause)
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return append(lines, replacementLines(r.Topology, state, r.Legacy)...), nil
}

// progressText says what holds for publishers in a stage. The empty stage is that of a move that
// is done.
func (m Move) progressText(state topology.State, stage Stage) string {
	switch stage {
	case "":
		return "done, " + m.Legacy + " is deleted"
	case Drain, Retire:
		return "new messages go to " + m.receivers(m.find(state), m.New)
	case Check, Prepare, Cutover:
	}
	return "new messages go to " + m.receivers(m.find(state), m.Legacy)
}

// receivers names the queues to which published messages are routed: both where a service has bound
// one of them again. If neither has a binding, it returns otherwise.
func (m Move) receivers(f found, otherwise string) string {
	toLegacy, toSuccessor := m.published(f.onLegacy), m.published(f.onSuccessor)
	if m.published(f.onSwitch) {
		toSuccessor = toSuccessor || m.switched(f)
		toLegacy = toLegacy || !m.switched(f)
	}
	switch {
	case toLegacy && toSuccessor:
		return m.Legacy + " and to " + m.New
	case toLegacy:
		return m.Legacy
	case toSuccessor:
		return m.New
	default:
		return otherwise
	}
}

// withCounts adds to a line how many messages a mover has moved, how many are left, and how many
// may be doubled. A nil mover has moved none.
func withCounts(
	ctx context.Context, conn *amqp.Conn, line string, h *mover, from, to string, cause error,
) (string, error) {
	left, err := settledCount(ctx, conn, from)
	if err != nil {
		return "", err
	}
	var moved, inFlight int64
	if h != nil {
		moved = h.moved.Load()
		inFlight = h.taken.Load() - moved
	}
	line += fmt.Sprintf("; this run moved %s to %s, and %s %s left in %s", messages(moved), to, text.Grouped(left),
		text.Choose(left, "is", "are"), from)
	if inFlight > 0 && errors.Is(cause, relay.ErrGrace) {
		line += fmt.Sprintf("; up to %s of these may be doubled, because the broker did not confirm them in time",
			text.Grouped(inFlight))
	}
	return line, nil
}

// settledCount returns how many messages are ready in a queue, once that is the same twice: what
// a closed connection held comes back a moment later. A queue that is gone has none.
func settledCount(ctx context.Context, conn *amqp.Conn, queue string) (int64, error) {
	before := -1
	for range 20 {
		n, err := conn.MessagesReady(queue)
		if errors.Is(err, broker.ErrNotFound) {
			return 0, nil
		}
		if err != nil || n == before {
			return int64(n), err
		}
		before = n
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return int64(before), nil
}
