package migrate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	// Say tells what is done, a line each. It must be set.
	Say func(format string, args ...any)

	wrote      bool
	remembered map[string][]topology.Binding // the bindings of each switch, by legacy queue
}

// Wrote reports whether anything was written.
func (r *Runner) Wrote() bool { return r.wrote }

// Run moves the queues as far as Until says. It may be stopped at any moment and
// run again. Its errors wrap ErrRefused or ErrWaiting where they apply.
func (r *Runner) Run(ctx context.Context) error {
	r.remembered = map[string][]topology.Binding{}
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	moves, err := r.moves(state)
	if r.Allowed != nil && err == nil {
		err = r.Allowed(Rights(r.Topology, state, moves))
	}
	if err != nil || len(moves) == 0 || r.Until == Check {
		return err
	}
	if p := Preparation(r.Topology, state, moves); len(p.Changes) > 0 {
		r.Say("prepare: %s", plan.Summary(p))
		if err := r.execute(ctx, p.Changes); err != nil {
			return err
		}
	}
	if r.Until == Prepare {
		return nil
	}
	if err := r.cutover(ctx, moves); err != nil || r.Until == Cutover {
		return err
	}
	return r.finish(ctx, moves)
}

// moves gives the moves to make, or why they cannot be made.
func (r *Runner) moves(state plan.State) ([]Move, error) {
	all := Moves(r.Topology, state)
	var moves []Move
	var reasons []string
	for _, m := range all {
		if len(r.Legacy) == 0 || slices.Contains(r.Legacy, m.Legacy) {
			if m.find(state).forwarder != nil && m.find(state).legacy {
				r.Say("%s forwards to %s", m.Legacy, m.New)
				continue
			}
			moves = append(moves, m)
			reasons = append(reasons, m.Reasons(r.Topology, state)...)
		}
	}
	if len(reasons) > 0 {
		return nil, fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(reasons, "\n  "))
	}
	return moves, nil
}

// cutover does step after step of all moves, each read back from the broker, until
// none is left.
func (r *Runner) cutover(ctx context.Context, moves []Move) error {
	for {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		var changes []plan.Change
		for _, m := range moves {
			step, err := r.step(m, state)
			if err != nil {
				return err
			}
			if step.Doing != "" {
				r.Say("cutover: %s", step.Doing)
			}
			changes = append(changes, step.Changes...)
		}
		if len(changes) == 0 {
			return nil
		}
		if err := r.execute(ctx, changes); err != nil {
			return err
		}
	}
}

// step gives the next step of a move, and notes what the switch is bound to.
func (r *Runner) step(m Move, state plan.State) (Step, error) {
	f := m.find(state)
	if f.exchanges[m.gate()] && f.policy != nil && state.InForceOn[m.gate()] != m.policy() {
		return Step{}, fmt.Errorf("%w: the policy %q is in force on the switch %s in place of ours, which leads nowhere then; take that away, and run migrate again", ErrRefused, state.InForceOn[m.gate()], m.gate())
	}
	before := r.remembered[m.Legacy]
	if len(before) > 0 && !f.exchanges[m.gate()] && len(lacking(before, f.onNew)) > 0 {
		r.Say("cutover: somebody has deleted the switch %s; until the next step the broker dropped the messages of %s", m.gate(), m.Legacy)
	}
	r.remembered[m.Legacy] = union(before, f.onGate)
	return m.Next(state, r.remembered[m.Legacy]), nil
}

// execute carries out changes and lets the broker come to rest: other nodes see
// a change a little later.
func (r *Runner) execute(ctx context.Context, changes []plan.Change) error {
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return a.Rank - b.Rank })
	err := plan.Execute(ctx, r.Management, plan.Plan{Changes: changes}, func(plan.Change) { r.wrote = true })
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

// finish drains and retires the legacy queues, one after the other.
func (r *Runner) finish(ctx context.Context, moves []Move) error {
	var waiting []error
	for _, m := range moves {
		err := r.end(ctx, m)
		if errors.Is(err, ErrWaiting) {
			waiting = append(waiting, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Legacy, err)
		}
	}
	return errors.Join(waiting...)
}

// end drains one legacy queue and deletes it.
func (r *Runner) end(ctx context.Context, m Move) error {
	var doubled []string
	h := m.newMover(func(id string) { doubled = append(doubled, id) })
	state, err := r.unused(ctx, m)
	if err != nil {
		return err
	}
	p := patience{idle: r.Idle, wait: r.Wait}
	if r.Until == Drain {
		p.idle, p.wait = time.Second, 0
	}
	for giveUp := time.Now().Add(r.Wait + time.Minute); m.find(state).legacy; {
		if err := r.makeWay(ctx, m, state); err != nil {
			return err
		}
		before := h.moved.Load()
		p.backlog = state.Usage[m.Legacy].Ready + state.Usage[m.Legacy].Unacknowledged
		err := r.drain(ctx, m, h, p)
		moved := h.moved.Load() - before
		if n := min(moved, p.backlog); n > 0 {
			r.Say("drain: moved %s from %s to %s", number(n, "message"), m.Legacy, m.New)
		}
		if n := moved - p.backlog; n > 0 {
			r.Say("drain: %s came to %s since, by its name through the default exchange, and went on to %s", number(n, "message"), m.Legacy, m.New)
		}
		if len(doubled) > 0 {
			r.Say("drain: %s had been delivered before and may be doubled, if a run was killed: %s", number(int64(len(doubled)), "message"), some(doubled))
			doubled = nil
		}
		switch {
		case errors.Is(err, errComing) && r.Until == Drain:
			return nil
		case errors.Is(err, errComing) && r.Forward:
			return r.forward(ctx, m)
		case errors.Is(err, errComing):
			return fmt.Errorf("%w: somebody still publishes to the queue %s by its name; it is kept, and what comes goes on to %s while migrate runs: run it again, or with --forward", ErrWaiting, m.Legacy, m.New)
		case err != nil:
			return err
		case r.Until == Drain:
			return nil
		}
		if state, err = r.retire(ctx, m); err != nil {
			return err
		}
		if p.backlog == 0 && moved == 0 && m.find(state).legacy && time.Now().After(giveUp) {
			return fmt.Errorf("%w: the broker does not delete the queue %s, as somebody uses it: it has %s", ErrWaiting, m.Legacy, number(state.Usage[m.Legacy].Consumers, "consumer"))
		}
	}
	return r.execute(ctx, m.rest(state))
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

// unused waits until nobody consumes from the legacy queue.
func (r *Runner) unused(ctx context.Context, m Move) (plan.State, error) {
	for deadline := time.Now().Add(r.Wait); ; {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return state, err
		}
		consumers := state.Usage[m.Legacy].Consumers
		if r.Now || consumers == 0 {
			return state, nil
		}
		if !time.Now().Before(deadline) {
			return state, fmt.Errorf("%w: the queue %s has %s, which keep what is there; stop them and run migrate again, or drain now with --drain now", ErrWaiting, m.Legacy, number(consumers, "consumer"))
		}
		if err := pause(ctx, time.Second); err != nil {
			return state, err
		}
	}
}

// makeWay undoes a binding that somebody has made on the legacy queue since, and
// makes the exchange again by which the drain reaches the new queue.
func (r *Runner) makeWay(ctx context.Context, m Move, state plan.State) error {
	if m.Next(state, nil).Doing != "" {
		r.Say("drain: somebody has bound %s again; since then its messages came to both queues", m.Legacy)
		if err := r.cutover(ctx, []Move{m}); err != nil {
			return err
		}
		var err error
		if state, err = r.Management.Inspect(ctx); err != nil {
			return err
		}
	}
	f := m.find(state)
	if f.exchanges[m.toNew()] && f.fromNew {
		return nil
	}
	made := slices.DeleteFunc(m.make(state, f, m.toNew()), func(c plan.Change) bool {
		b, isBinding := c.After.(topology.Binding)
		return c.Name != m.toNew() && (!isBinding || b.Source != m.toNew())
	})
	return r.execute(ctx, made)
}

// retire deletes the legacy queue, if it is empty and unused: the broker looks
// at that in the moment in which it deletes a classic queue, and proves it a
// moment before for a quorum queue. If not, the queue stays and is drained again.
// That nobody publishes to it by name, the idle time has shown.
func (r *Runner) retire(ctx context.Context, m Move) (plan.State, error) {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return state, err
	}
	if len(m.find(state).onLegacy) > 0 {
		return state, nil // bound again meanwhile
	}
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	if i < 0 {
		return state, nil
	}
	// The counts that prove a quorum queue empty must be newer than this moment.
	fresh, err := broker.NewManagement(r.Endpoint)
	if err != nil {
		return state, err
	}
	defer fresh.Close()
	err = plan.Execute(ctx, fresh, plan.Plan{Changes: []plan.Change{remove(topology.KindQueue, m.Legacy, state.Have.Queues[i])}}, func(plan.Change) { r.wrote = true })
	if errors.Is(err, broker.ErrRefused) {
		return state, pause(ctx, time.Second) // a message came, or our consumer is still in the statistics
	}
	if err != nil {
		return state, err
	}
	r.Say("retire: deleted %s", m.Legacy)
	return r.Management.Inspect(ctx)
}

// rest gives what is left when the legacy queue is gone: the exchange of the drain.
func (m Move) rest(state plan.State) []plan.Change {
	var out []plan.Change
	if m.find(state).exchanges[m.toNew()] {
		c := remove(topology.KindExchange, m.toNew(), topology.Exchange{Name: m.toNew()})
		c.Hazards = []plan.Hazard{plan.DropsRouting} // nobody but the drain publishes to it
		out = append(out, c)
	}
	if p := m.find(state).forwarder; p != nil {
		out = append(out, remove(topology.KindPolicy, p.Name, *p))
	}
	return out
}

// forward leaves a policy by which the broker itself hands on what still comes
// to the legacy queue by its name.
func (r *Runner) forward(ctx context.Context, m Move) error {
	p := topology.Policy{
		Name: m.forwarding(), Pattern: "^" + regexp.QuoteMeta(m.Legacy) + "$", ApplyTo: "queues", Priority: topology.PolicyPriority,
		Definition: topology.Arguments{"max-length": int64(0), "overflow": "drop-head", "dead-letter-exchange": "", "dead-letter-routing-key": m.New},
	}
	r.Say("retire: %s stays and forwards to %s, at most once, until nobody publishes to it any more", m.Legacy, m.New)
	return r.execute(ctx, []plan.Change{create(topology.KindPolicy, p.Name, p)})
}

// some gives the first names of a list and counts the rest.
func some(names []string) string {
	const shown = 10
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
