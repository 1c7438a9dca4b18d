package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// What keeps a migration from going on.
var (
	// ErrRefused is wrapped by the error of Run when a move cannot be made.
	ErrRefused = errors.New("the migration is refused")
	// ErrWaiting is wrapped when it waits for others: run it again.
	ErrWaiting = errors.New("the migration waits for others")
)

// Runner moves queues.
type Runner struct {
	Topology   topology.Topology
	Management *broker.Management
	Endpoint   broker.Endpoint
	// Legacy names the queues to move. Empty: all that the file replaces.
	Legacy []string
	// Until is the last stage to do. Empty: all.
	Until Stage
	// Settle is how long the broker gets to come to rest between two steps.
	Settle time.Duration
	// Now drains while consumers still read the legacy queue; otherwise Wait is
	// how long they are waited for.
	Now  bool
	Wait time.Duration
	// Idle is how long nothing may have arrived before a legacy queue is deleted.
	Idle time.Duration
	// Forward leaves a forwarder in place of a legacy queue to which somebody
	// still publishes by name.
	Forward bool
	// Allowed refuses rights that the user lacks, before the first write. Nil:
	// nobody looks.
	Allowed func(rights []plan.Right) error
	// Progress tells how far a drain of so many messages is: step is called for
	// each, and finish at the end. Nil: nobody is told.
	Progress func(messages int64) (step, finish func())
	// Say tells what is done, a line each. It must be set.
	Say func(format string, args ...any)

	mu       sync.Mutex // of what follows, and of Say
	wrote    bool
	looks    map[string]look // the last at each switch, by legacy queue
	tries    map[string]int  // to put the policy of each switch in force, by legacy queue
	began    time.Time
	finished bool // Run has moved all queues to their end, and at least one
	// sights are the last looks at the legacy queues, by name.
	sights map[string]sight
}

// Wrote reports whether anything was written.
func (r *Runner) Wrote() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrote
}

// Finished reports whether Run has moved all queues to their end, and at least one.
func (r *Runner) Finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finished
}

// written notes what was written.
func (r *Runner) written(plan.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = true
}

func (r *Runner) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Say(format, args...)
}

// Run moves the queues as far as Until says. It may be stopped at any moment and
// run again. Its errors wrap ErrRefused or ErrWaiting where they apply.
func (r *Runner) Run(ctx context.Context) error {
	r.looks, r.tries, r.sights, r.began = map[string]look{}, map[string]int{}, map[string]sight{}, time.Now()
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	state = r.Management.AskConsumers(ctx, state, broker.UnknownConsumers(state)) // what is unknown blocks
	moves, forwarders, err := r.moves(state)
	if r.Allowed != nil && err == nil {
		all := slices.Concat(moves, forwarders)
		err = r.Allowed(sorted(append(Rights(r.Topology, state, all), proofRights(state, all)...)))
	}
	if err != nil || r.Until == Check {
		return err
	}
	for _, m := range moves {
		r.note(state, m, nil)
	}
	for _, m := range forwarders {
		if err := r.retireForwarder(ctx, m); err != nil {
			return err
		}
	}
	if len(moves) == 0 {
		return nil
	}
	if p := Preparation(r.Topology, state, moves); len(p.Changes) > 0 {
		r.tell("prepare: %s", plan.Summary(p))
		if err := r.execute(ctx, p.Changes); err != nil {
			return err
		}
	}
	if r.Until == Prepare {
		return nil
	}
	if err := r.answering(ctx, moves); err != nil {
		return err
	}
	if err := r.cutover(ctx, moves); err != nil || r.Until == Cutover {
		return err
	}
	if err := r.finish(ctx, moves); err != nil || !r.retires() {
		return err
	}
	state, err = r.Management.Inspect(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = err == nil && len(Moves(r.Topology, state)) == 0
	return err
}

// answering makes sure that the new queues answer, before messages are turned to
// them. A quorum queue whose making was cut off, by the end of its client over
// HTTP or of the node, can be left without a leader: it is listed like any other, and what
// is routed to it is never confirmed.
func (r *Runner) answering(ctx context.Context, moves []Move) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	for _, m := range moves {
		if m.Next(state, nil).Doing == "" {
			continue // its messages are turned already
		}
		conn, err := broker.Dial(ctx, r.Endpoint)
		if err != nil {
			return err
		}
		answer := make(chan error, 1)
		go func() {
			_, err := conn.Empty(m.New)
			answer <- err
		}()
		timer := time.NewTimer(answerTime)
		select {
		case err = <-answer:
		case <-timer.C:
			err = fmt.Errorf("it does not within %s", answerTime)
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		_ = conn.Close() // ends a question that hangs
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: the queue %s must answer before messages are turned to it: %w; if its nodes are up, whoever made it was cut off and it has no leader: delete it, no message has been routed to it yet, and run migrate again", ErrRefused, m.New, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// answerTime is how long a queue has to say whether it is empty.
const answerTime = 15 * time.Second

// moves gives the moves to make, or why they cannot be made, and those whose legacy
// queue forwards: they are done once nobody publishes to that queue any more.
func (r *Runner) moves(state plan.State) (moves, forwarders []Move, err error) {
	var reasons []string
	for _, m := range Moves(r.Topology, state) {
		f := m.find(state)
		switch {
		case len(r.Legacy) > 0 && !slices.Contains(r.Legacy, m.Legacy):
		case f.legacy && f.forwarder != nil && r.retires():
			forwarders = append(forwarders, m)
		case f.legacy && f.forwarder != nil:
			r.tell("%s forwards to %s", m.Legacy, m.New)
		default:
			moves = append(moves, m)
			reasons = append(reasons, m.Reasons(r.Topology, state)...)
		}
	}
	if len(reasons) > 0 {
		return nil, nil, fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(reasons, "\n  "))
	}
	return moves, forwarders, nil
}

// retires reports whether the run goes on to the last stage.
func (r *Runner) retires() bool { return r.Until == "" || r.Until == Retire || r.Until == Check }

// cutover does step after step of all moves, each read back from the broker, until
// none is left.
func (r *Runner) cutover(ctx context.Context, moves []Move) error {
	return r.converge(ctx, func(state plan.State) (changes []plan.Change, err error) {
		for _, m := range moves {
			r.note(state, m, nil)
			step, err := r.step(m, state)
			if err != nil {
				return nil, err
			}
			if step.Doing != "" {
				r.tell("cutover: %s", step.Doing)
			}
			changes = append(changes, step.Changes...)
		}
		return changes, nil
	})
}

// converge looks at the broker and writes what next gives, until that is nothing.
// What has gone between the two is looked at again, a few times: the requests of
// a run that was killed may still be carried out.
func (r *Runner) converge(ctx context.Context, next func(plan.State) ([]plan.Change, error)) error {
	const tries = 3
	missed := 0
	again := func(err error) error {
		if missed++; errors.Is(err, broker.ErrNotFound) && missed <= tries {
			return nil
		}
		return err
	}
	return plan.Converge(ctx, r.Management, r.Settle, next, again, r.written)
}

// step gives the next step of a move. It notes what the switch is bound to, should
// somebody delete it, and says what somebody has done meanwhile.
func (r *Runner) step(m Move, state plan.State) (Step, error) {
	if why := m.inexact(state); len(why) > 0 { // somebody has made such a binding since
		return Step{}, fmt.Errorf("%w:\n  %s", ErrRefused, strings.Join(why, "\n  "))
	}
	if step, err := r.ensure(m, state); step.Doing != "" || err != nil {
		return step, err
	}
	f := m.find(state)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, looked := r.looks[m.Legacy], time.Now()
	now := look{bound: union(before.bound, f.onGate), used: len(f.onGate) > 0, at: looked}
	r.looks[m.Legacy] = now
	if before.used && !f.exchanges[m.gate()] {
		r.Say("cutover: somebody has deleted the switch %s after %s: what came to it alone since, the broker dropped, or gave back to its publisher", m.gate(), clock(before.at))
	}
	if f.exchanges[m.gate()] && !f.legacy && !m.switched(f) {
		r.Say("cutover: the queue %s is gone: what came for it since, the broker dropped, or gave back to its publisher", m.Legacy)
	}
	step := m.Next(state, now.bound)
	if step.Doubled {
		since := "some time ago"
		if !before.at.IsZero() {
			since = "after " + clock(before.at)
		}
		r.Say("cutover: somebody has bound %s again %s: until %s, what that binding matches comes to both queues", m.Legacy, since, clock(looked))
	}
	return step, nil
}

// look is what one look at the broker showed of a switch.
type look struct {
	bound []topology.Binding // what it was bound to, now or before
	used  bool               // it was bound to something
	at    time.Time
}

// clock gives a time of day for messages.
func clock(t time.Time) string { return t.Format("15:04:05.000") }

// ensure gives a step that makes sure that the switch leads where its policy says,
// and none where that is sure: see topology.Policy.Pending. If somebody's policy is
// in force in place of ours, the step outranks it.
func (r *Runner) ensure(m Move, state plan.State) (Step, error) {
	const most = 5
	f, inForce := m.find(state), state.InForceOn[m.gate()]
	if !f.exchanges[m.gate()] || f.policy == nil || !f.policy.IsPending() && inForce == m.policy() {
		return Step{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tries[m.Legacy]++; r.tries[m.Legacy] > most {
		return Step{}, fmt.Errorf("%w: the policy %q does not get in force on the exchange %s, though it has the highest priority (in force is %q): see whether somebody else writes policies there, and run it again", ErrRefused, m.policy(), m.gate(), inForce)
	}
	leadsTo, _ := f.policy.Definition[keyAlternate].(string)
	doing := "make sure of the switch of " + m.Legacy
	if inForce != m.policy() && inForce != "" {
		doing = fmt.Sprintf("outrank the policy %q, which is in force on the switch of %s", inForce, m.Legacy)
	}
	return Step{Doing: doing, Changes: []plan.Change{m.turn(state, f, leadsTo)}}, nil
}

// execute carries out changes and lets the broker come to rest: other nodes see
// a change a little later.
func (r *Runner) execute(ctx context.Context, changes []plan.Change) error {
	if len(changes) == 0 {
		return nil
	}
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return a.Rank - b.Rank })
	err := plan.Execute(ctx, r.Management, plan.Plan{Changes: changes}, r.written)
	if err != nil {
		return err
	}
	return pause(ctx, r.Settle)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ByName says what the broker knows of messages that come to the legacy queue by
// its name. Empty: none came, or nothing is known.
func (r *Runner) ByName(ctx context.Context, m Move) (string, error) {
	b, err := r.Management.PublishedByName(ctx, m.Legacy)
	switch {
	case err != nil || b.Messages == 0:
		return "", err
	case b.Certain:
		return fmt.Sprintf("%s came to %s by its name, through the default exchange: somebody publishes so, and must change", number(b.Messages, "message"), m.Legacy), nil
	default:
		return fmt.Sprintf("%s at most came to %s by its name, through the default exchange: the broker counts no closer (management.rates_mode = detailed does); after the cutover, migrate tells exactly", number(b.Messages, "message"), m.Legacy), nil
	}
}
