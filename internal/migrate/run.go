package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The reasons why a migration does not continue.
var (
	// ErrRefused is wrapped by the error of Run when a move cannot be made.
	ErrRefused = errors.New("the migration is refused")
	// ErrWaiting is wrapped when consumers, publishers or messages must go first: run
	// migrate again.
	ErrWaiting = errors.New("the migration is waiting")
)

// Runner moves queues.
type Runner struct {
	Topology   topology.Compiled
	Management *management.Client
	Endpoint   broker.Endpoint
	// Legacy names the queues to move. Empty: all that the file replaces.
	Legacy []string
	// Until is the last stage to do. Empty: all.
	Until Stage
	// Settle is the pause after each step: in a cluster, other nodes see a change a
	// little later.
	Settle time.Duration
	// DrainNow drains while consumers still read the legacy queue. Otherwise the run
	// waits for them to stop, for Wait at most.
	DrainNow bool
	Wait     time.Duration
	// Idle is how long nothing may have arrived before a legacy queue is deleted.
	Idle time.Duration
	// Forward leaves a forwarder in place of a legacy queue to which publishers still
	// send by its name.
	Forward bool
	// Allow holds the consents of the user: DropsRouting to delete a queue although publishers may
	// send to it by its name, ReplacesQueue to replace a queue under its name, and StopsConsumers to
	// end a replacement although consumers have not subscribed again.
	Allow []plan.Consent
	// Unlocked says that the run does not hold the lock of the topology. Then no queue is replaced
	// under its name: the deletion of one run could meet the new queue of another.
	Unlocked bool
	// CheckRights fails if the user lacks one of the rights, before the first write.
	// Nil: rights are not checked.
	CheckRights func(rights []plan.Right) error
	// Parallel is how many queues are moved at a time, each by itself: one that is refused, waits or
	// fails stops no other, and Results says what became of each. Zero: a refusal refuses the run, the
	// moves are cut over together, and queues are replaced one after the other.
	Parallel int
	// QueueProgress shows how many of so many queues are at their end, if Parallel is set. Nil: it is
	// not shown.
	QueueProgress func(queues int) (step, finish func())
	// Relock takes the lock of the topology again once the broker has closed the connection that holds
	// it, as a busy node does that fails to delete a quorum queue. Nil: a run ends with its lock.
	Relock func(context.Context) error
	// Progress shows how far a drain of that many messages is: step is called for
	// each message, and finish at the end. Nil: progress is not shown.
	Progress func(messages int64) (step, finish func())
	// Report prints what is done, one line per call. It must be set.
	Report func(format string, args ...any)

	looks     looks
	mu        sync.Mutex // guards the fields below, and Report
	wrote     bool
	switches  map[string]switchSeen // each switch exchange as it was last seen, by legacy queue
	overrides map[string]int        // how often the policy of each switch exchange was renewed, by legacy queue
	began     time.Time
	finished  bool // Run has moved all queues to their end, and at least one
	// seen are the legacy queues as they were last seen, by name.
	seen map[string]lastSeen
	// routes are the bindings of the queues that are replaced under their names, and of their switch
	// exchanges, as this run has seen them, by queue.
	routes map[string][]topology.Binding
	// rebound are the queues that were bound again since new messages left them, until a drain has
	// counted the messages that came to both queues.
	rebound map[string]bool
	// rebinds are the queues that messages leave, as they were bound last, by name.
	rebinds map[string]rebinding
	// movers are the movers of this run, by the queues from which and to which they move.
	movers map[[2]string]*mover
	// tallies are what this run has done with the queues that it replaces under their names, by name.
	tallies map[string]*tally
	results []Result
	// declaring has a value for each quorum queue that is declared just now.
	declaring chan struct{}
	preparing sync.Mutex // see prepare
	// trouble is since when the broker fails at each queue. Zero: it does not.
	trouble time.Time
	leftOut []string // queues of runEach whose node was down when it began
	// fed are the feeders of the legacy queues that this run has deleted, by name, each with the move
	// of one of these queues.
	fed map[string]Move
}

// Wrote reports whether anything was written, or a message moved.
func (r *Runner) Wrote() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.movers {
		if h.moved.Load() > 0 {
			return true
		}
	}
	return r.wrote
}

// prepareRun forgets what an earlier run of the same Runner has seen.
func (r *Runner) prepareRun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switches, r.overrides, r.seen = map[string]switchSeen{}, map[string]int{}, map[string]lastSeen{}
	r.routes = map[string][]topology.Binding{}
	r.rebound, r.rebinds, r.movers = map[string]bool{}, map[string]rebinding{}, map[[2]string]*mover{}
	r.fed, r.tallies, r.results = map[string]Move{}, map[string]*tally{}, nil
	r.began, r.trouble = time.Now(), time.Time{}
}

// startMover returns the mover of a move, which Interrupted then knows.
func (r *Runner) startMover(m Move) *mover {
	h := &mover{to: m.successorEnd(), step: func() {}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.movers[[2]string{m.Legacy, m.New}] = h
	return h
}

// resumeMover returns the mover of a move as an earlier attempt of this run has left it, so that
// its counts go on, and starts one if there is none.
func (r *Runner) resumeMover(m Move) *mover {
	if h := r.moverOf(m.Legacy, m.New); h != nil {
		return h
	}
	return r.startMover(m)
}

// moverOf returns the mover of this run from a queue to another. Nil: there is none.
func (r *Runner) moverOf(from, to string) *mover {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.movers[[2]string{from, to}]
}

// Finished reports whether Run has moved all queues to their end, and at least one.
func (r *Runner) Finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finished
}

// noteWrite notes that a change was written.
func (r *Runner) noteWrite(plan.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = true
}

func (r *Runner) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Report(format, args...)
}

// Check reports why the moves cannot be made, or which rights the user lacks. It writes
// nothing.
func (r *Runner) Check(ctx context.Context) error {
	if r.Parallel > 0 {
		_, err := r.units(ctx)
		return err
	}
	state, _, _, err := r.check(ctx, true)
	if err == nil {
		_, err = r.checkReplacements(ctx, state)
	}
	return err
}

// check reads the broker. It returns the moves to make and those whose legacy queue
// forwards (see moves), or why they cannot be made.
func (r *Runner) check(ctx context.Context, retires bool) (state topology.State, moves, forwarders []Move, err error) {
	if state, err = r.inspect(ctx); err != nil {
		return state, nil, nil, err
	}
	state = r.Management.AskConsumers(ctx, state, management.UnknownConsumers(state)) // an unknown number blocks
	moves, forwarders, err = r.moves(state, retires)
	if r.CheckRights != nil && err == nil {
		all := slices.Concat(moves, forwarders)
		err = r.CheckRights(sorted(append(rightsOf(r.Topology, state, all), proofRights(state, all)...)))
	}
	return state, moves, forwarders, err
}

// Run moves the queues through the stages, up to Until. It may be stopped at any moment
// and run again. Its errors wrap ErrRefused or ErrWaiting where they apply. No goroutine
// outlives it.
func (r *Runner) Run(ctx context.Context) error {
	r.prepareRun()
	if r.Parallel > 0 {
		return r.runEach(ctx)
	}
	state, moves, forwarders, err := r.check(ctx, r.retires())
	if err != nil {
		return err
	}
	replaced, err := r.checkReplacements(ctx, state)
	if err != nil || r.Until == Check {
		return err
	}
	err = r.move(ctx, state, moves, forwarders)
	if err != nil && !errors.Is(err, ErrWaiting) || !r.retires() || len(replaced) == 0 {
		return err
	}
	if again := r.replaceAll(ctx, replaced); again != nil || err != nil {
		return joinErrors(err, again)
	}
	return r.noteFinished(ctx)
}

// move moves legacy queues to their successors.
func (r *Runner) move(ctx context.Context, state topology.State, moves, forwarders []Move) error {
	for _, m := range moves {
		r.remember(state, m)
	}
	for _, m := range forwarders {
		if err := r.retireForwarder(ctx, m); err != nil {
			return err
		}
	}
	if len(moves) == 0 {
		return nil
	}
	err := r.prepare(ctx, moves, func(p *plan.Plan) {
		if len(p.Changes) > 0 {
			r.say("prepare: %s", planview.Summary(*p))
		}
	})
	if err != nil {
		return err
	}
	if r.Until == Prepare {
		return nil
	}
	if err := r.waitForLeaders(ctx, moves); err != nil {
		return err
	}
	if err := r.cutover(ctx, moves); err != nil || r.Until == Cutover {
		return err
	}
	err = r.finish(ctx, moves)
	if r.Parallel > 0 {
		return err // runEach does the rest once, for all
	}
	if err == nil || errors.Is(err, ErrWaiting) {
		err = errors.Join(err, r.adviseOnFeeders(ctx))
	}
	if err != nil || !r.retires() {
		return err
	}
	return r.noteFinished(ctx)
}

// noteFinished notes whether all moves and replacements are at their end.
func (r *Runner) noteFinished(ctx context.Context) error {
	state, err := r.inspect(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = err == nil && len(unfinishedMoves(r.Topology, state)) == 0 &&
		len(Unfinished(r.Topology, state)) == 0 && len(plan.StrayMoves(r.Topology, state)) == 0
	return err
}

// moves returns the moves to make, or why they cannot be made. If the run retires queues
// it also returns the moves whose legacy queue forwards: they are done once no publisher
// sends to that queue any more.
func (r *Runner) moves(state topology.State, retires bool) (moves, forwarders []Move, err error) {
	var reasons []string
	for _, m := range unfinishedMoves(r.Topology, state) {
		f := m.find(state)
		switch {
		case len(r.Legacy) > 0 && !slices.Contains(r.Legacy, m.Legacy):
		case f.legacy && f.forwarder != nil && retires:
			forwarders = append(forwarders, m)
			reasons = append(reasons, m.elsewhere(state)...)
		case f.legacy && f.forwarder != nil:
			r.say("%s forwards to %s", m.Legacy, m.New)
		default:
			moves = append(moves, m)
			reasons = append(reasons, m.reasons(r.Topology, state)...)
		}
	}
	if len(reasons) > 0 {
		return nil, nil, fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(reasons, "\n  "))
	}
	return moves, forwarders, nil
}

// retires reports whether the run includes the last stage.
func (r *Runner) retires() bool { return r.Until == "" || r.Until == Retire || r.Until == Check }
