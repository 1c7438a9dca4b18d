package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Back gives the next step on the way back, from what the broker shows: the
// cutover in the other direction. After the switch it needs the switch again,
// which then is turned to the legacy queue. What waits in a tier goes this way too:
// it comes back through a binding of the new queue.
func (m Move) Back(state plan.State) Step {
	f := m.find(state)
	gate := f.exchanges[m.gate()]
	switch {
	case !gate && f.policy == nil && len(lacking(f.onNew, f.onLegacy)) > 0:
		return Step{Doing: "make the switch of " + m.Legacy, Changes: m.make(state, f, m.toNew())}
	case !gate && len(f.onNew) > 0 && f.policy == nil:
		return Step{Doing: "unbind " + m.New, Changes: m.deletions(f.onNew)} // the legacy queue has them all
	case f.policy != nil && (!gate || !f.fromOld || !f.fromNew):
		if made := m.make(state, f, m.toNew()); len(made) > 0 && (gate || len(f.onNew) > 0) {
			return Step{Doing: "make the switch of " + m.Legacy, Changes: made}
		}
		return m.remove(f)
	case gate && (f.policy == nil || f.policy.Definition[keyAlternate] == m.toNew()):
		return m.turnBack(state, f)
	case gate:
		return m.backOnLegacy(f)
	default:
		return m.remove(f)
	}
}

// turnBack leads everything through the switch and then turns it.
func (m Move) turnBack(state plan.State, f found) Step {
	if f.policy == nil { // nothing may be lost meanwhile: lead to where the messages go now
		return Step{Doing: "make the policy of the switch again", Changes: []plan.Change{m.turn(state, f, m.toNew())}}
	}
	bind := m.bindGate(lacking(f.onNew, f.onGate))
	switch {
	case len(bind) > 0:
		return Step{Doing: "bind the switch of " + m.Legacy, Changes: bind}
	case len(f.onNew) > 0:
		return Step{Doing: "unbind " + m.New, Changes: m.deletions(f.onNew)}
	default:
		return Step{Doing: "switch from " + m.New + " to " + m.Legacy, Changes: []plan.Change{m.turn(state, f, m.toOld())}}
	}
}

// backOnLegacy gives the legacy queue its bindings again and takes the switch away.
func (m Move) backOnLegacy(f found) Step {
	var bind []plan.Change
	for _, b := range lacking(f.onGate, f.onLegacy) {
		b = m.onto(m.Legacy, b)
		bind = append(bind, create(topology.KindBinding, b.String(), b))
	}
	switch {
	case len(bind) > 0:
		return Step{Doing: "bind " + m.Legacy, Changes: bind}
	case len(f.onGate) > 0:
		return Step{Doing: "unbind the switch of " + m.Legacy, Changes: m.deletions(f.onGate)}
	default:
		return m.remove(f)
	}
}

// Abort rolls back the migrations whose legacy queue still exists. without gives the
// topology without the successors of the legacy queues it is given: Abort asks for those
// that are rolled back, and for no others. Abort may be stopped at any moment and run again.
//
// Messages that wait in a successor are moved back to its legacy queue on relay; messages
// that wait in a tier come back there too. What migrate made is deleted when it is
// proved empty; a queue that holds dead letters stays, and the error names it.
func (r *Runner) Abort(ctx context.Context, without func(legacy []string) (topology.Topology, error)) error {
	r.tries = map[string]int{}
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	moves, done, err := Undoable(r.Topology, state, r.Legacy)
	if err != nil {
		return err
	}
	for _, line := range done {
		r.tell("abort: %s", line)
	}
	if len(moves) == 0 {
		return nil
	}
	if r.Allowed != nil {
		if err := r.Allowed(Rights(r.Topology, state, moves)); err != nil {
			return err
		}
	}
	var legacy []string
	for _, m := range moves {
		legacy = append(legacy, m.Legacy)
	}
	rest, err := without(legacy)
	if err != nil {
		return err
	}
	if err := r.unforward(ctx, moves); err != nil {
		return err
	}
	err = r.converge(ctx, func(state plan.State) (changes []plan.Change, err error) {
		for _, m := range moves {
			step, err := r.ensure(m, state)
			if err == nil && step.Doing == "" {
				step = m.Back(state)
			}
			if err != nil {
				return nil, err
			}
			if step.Doing != "" {
				r.tell("abort: %s", step.Doing)
			}
			changes = append(changes, step.Changes...)
		}
		return changes, nil
	})
	if err != nil {
		return err
	}
	for _, m := range moves {
		if err := r.returned(ctx, m); err != nil {
			return err
		}
	}
	for _, m := range moves {
		if err := r.unfedSuccessor(ctx, m); err != nil {
			return err
		}
	}
	return r.unmake(ctx, rest, moves)
}

// unfedSuccessor fails if messages can still come to the new queue by its name, from a queue that
// dead-letters to it: a home-made retry queue was pointed there, and unmake would delete the new
// queue under its messages.
func (r *Runner) unfedSuccessor(ctx context.Context, m Move) error {
	err := r.fed(ctx, Move{Topology: m.Topology, Legacy: m.New, New: m.Legacy}, func(error) {})
	if fed, ok := errors.AsType[*fedError](err); ok {
		return fmt.Errorf("%w: messages go to the legacy queue, and nothing is lost; %s is kept: %w; run abort again then", ErrWaiting, m.New, fed)
	}
	return err
}

// returned moves what waits in the new queue to the legacy queue, and waits for
// what comes back there from a tier.
func (r *Runner) returned(ctx context.Context, m Move) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == name })
	}
	if !has(m.New) {
		return nil
	}
	err = r.converge(ctx, func(state plan.State) ([]plan.Change, error) { return m.makeEnd(m.find(state), m.toOld()), nil })
	if err != nil {
		return err
	}
	// The same as a drain, in the other direction: from the new queue.
	reverse := Move{Topology: m.Topology, Legacy: m.New}
	h := m.newMover()
	h.to = m.toOld()
	if waiting := state.Usage[m.New].Ready; r.Progress != nil && waiting > 0 {
		step, finish := r.Progress(waiting)
		h.tell = step
		defer finish()
	}
	_, err = r.drain(ctx, reverse, h, patience{idle: time.Second, wait: r.Wait, stuck: max(r.Wait, leastStuck)})
	if n := h.moved.Load(); n > 0 {
		r.tell("abort: moved %s from %s back to %s", number(n, "message"), m.New, m.Legacy)
	}
	switch {
	case errors.Is(err, errStuck):
		return h.stuck(Move{Legacy: m.New, New: m.Legacy})
	case errors.Is(err, errComing):
		return fmt.Errorf("%w: somebody still publishes to the queue %s by its name: stop that and run abort again", ErrWaiting, m.New)
	case err != nil:
		return err
	}
	return r.tiersEmpty(ctx, m)
}

// tiersEmpty waits for what is in the loop of the new queue's backoff: it comes
// back to the legacy queue, so the way there must stay until then. Other queues may
// share the loop and fail all the time. So it is enough that the failed queue was
// empty once: what the new queue had in it waits in a tier by then, or is dead, and
// is back when the longest of them is over.
func (r *Runner) tiersEmpty(ctx context.Context, m Move) error {
	work, _ := r.Topology.Work(m.New)
	loop, ok := r.Topology.Loop(work.Backoff)
	if !ok {
		return nil
	}
	longest := slices.MaxFunc(loop.Steps, func(a, b topology.Step) int { return cmp.Compare(a.Delay, b.Delay) }).Delay
	const lag = 7 * time.Second // how old the counts can be, and a little more
	begun, deadline := time.Now(), time.Now().Add(r.Wait)
	var empty, failedEmpty time.Time // since when all is, and when the failed queue was
	for {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		holds := func(queue string) int64 { return state.Usage[queue].Ready + state.Usage[queue].Unacknowledged }
		failed, now := holds(m.New)+holds(loop.Failed), time.Now()
		held := failed
		for _, q := range tiers(loop) {
			held += holds(q)
		}
		switch {
		case held > 0:
			empty = time.Time{}
		case empty.IsZero():
			empty = now
		}
		switch {
		case holds(m.New) > 0: // a consumer still has it, and may reject it
			failedEmpty = time.Time{}
		case failed == 0 && failedEmpty.IsZero() && now.Sub(begun) > lag:
			failedEmpty = now
		}
		switch {
		case !empty.IsZero() && now.Sub(empty) > lag, !failedEmpty.IsZero() && now.Sub(failedEmpty) > longest+lag:
			return nil
		case held > 0 && now.After(deadline):
			return fmt.Errorf("%w: %s in the tiers and the failed queue of the backoff %s; those of %s come back to %s: run abort again when they have", ErrWaiting, number(held, "message"), loop.Backoff, m.New, m.Legacy)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// tiers gives the retry queues of a loop.
func tiers(l topology.Loop) []string {
	var out []string
	for _, s := range l.Steps {
		if !slices.Contains(out, s.Queue) {
			out = append(out, s.Queue)
		}
	}
	return out
}

// unmake deletes what was made for the moves: what the file wants with the new
// queues and not without them. What holds a message stays.
func (r *Runner) unmake(ctx context.Context, without topology.Topology, moves []Move) error {
	state, err := r.rested(ctx, moves)
	if err != nil {
		return err
	}
	mine := map[topology.Key]bool{}
	note := func(t topology.Topology, is bool) {
		for _, e := range t.Exchanges {
			mine[topology.Key{Kind: topology.KindExchange, Name: e.Name}] = is
		}
		for _, q := range t.Queues {
			mine[topology.Key{Kind: topology.KindQueue, Name: q.Name}] = is
		}
		for _, b := range t.Bindings {
			mine[topology.Key{Kind: topology.KindBinding, Name: b.Identity()}] = is
		}
		for _, p := range t.Policies {
			mine[topology.Key{Kind: topology.KindPolicy, Name: p.Name}] = is
		}
	}
	note(r.Topology, true)
	note(without, false)
	for _, e := range without.Exchanges {
		delete(mine, topology.Key{Kind: topology.KindExchange, Name: e.Name})
	}
	for _, m := range moves { // a legacy queue that dlxctl made goes on using its own retry queues
		for key := range plan.Plane(r.Topology.Name, state, m.Legacy) {
			delete(mine, key)
		}
	}
	p := plan.Make(without, state, plan.Options{})
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		key := topology.Key{Kind: c.Kind, Name: c.Name}
		b, isBinding := c.Before.(topology.Binding)
		if isBinding {
			key.Name = b.Identity()
		}
		back := isBinding && slices.ContainsFunc(moves, func(m Move) bool { return b.Key == topology.AddressKey(m.New) })
		return c.Action != plan.Delete || !mine[key] && !back && !plan.Exposes(c)
	})
	p.Changes = exposingNothing(p.Changes, state)
	provedUnfed(p.Changes, moves)
	todo, tiers := plan.Allowed(p, plan.Allow(plan.DropsRouting)), 0
	for _, q := range p.Retiring {
		_, failed := topology.FailedBackoff(r.Topology.Name, q)
		if u := state.Usage[q]; failed && (u.Ready+u.Unacknowledged+u.Consumers > 0 || u.ConsumersUnknown) {
			p.Changes = append(p.Changes, plan.Change{Kind: topology.KindQueue, Name: q, Stake: &u}) // it stays, and kept says so
			continue
		}
		for _, have := range state.Have.Queues {
			if have.Name == q && mine[topology.Key{Kind: topology.KindQueue, Name: q}] {
				c := remove(topology.KindQueue, q, have)
				c.Rank = 30
				tiers++
				todo.Changes = append(todo.Changes, c)
			}
		}
	}
	for _, m := range moves {
		for _, name := range []string{m.toOld(), m.toNew()} {
			if m.find(state).exchanges[name] {
				c := remove(topology.KindExchange, name, topology.Exchange{Name: name})
				c.Hazards, c.Rank = []plan.Hazard{plan.DropsRouting}, 40 // nobody publishes to it any more
				todo.Changes = append(todo.Changes, c)
			}
		}
	}
	if err := r.execute(ctx, todo.Changes); err != nil {
		return err
	}
	if tiers > 0 {
		return r.unmake(ctx, without, moves) // what led the messages of the tiers back stayed as long as these
	}
	return kept(p)
}

// provedUnfed takes the hazard loses-messages from the deletion of an empty successor to which another
// queue dead-letters by its name: that one was proved empty before (see fed). The broker proves
// the successor empty again before it deletes it.
func provedUnfed(changes []plan.Change, moves []Move) {
	for i, c := range changes {
		isSuccessor := slices.ContainsFunc(moves, func(m Move) bool { return c.Kind == topology.KindQueue && c.Name == m.New })
		if isSuccessor && c.Stake != nil && c.Stake.Ready+c.Stake.Unacknowledged == 0 {
			changes[i].Hazards = slices.DeleteFunc(slices.Clone(c.Hazards), func(h plan.Hazard) bool { return h == plan.LosesMessages })
		}
	}
}

// kept says which queues of a plan of deletions stay, and why.
func kept(p plan.Plan) error {
	var names []string
	for _, c := range p.Changes {
		u := c.Stake
		if c.Kind != topology.KindQueue || u == nil || u.Ready+u.Unacknowledged+u.Consumers == 0 && !u.ConsumersUnknown {
			continue
		}
		names = append(names, fmt.Sprintf("%s (%s, %s)", c.Name, number(u.Ready+u.Unacknowledged, "message"), u.ConsumersText()))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: messages go to the legacy queue, and nothing is lost; what holds messages or is in use stays, and what leads there: %s; stop the processor, look at what is dead, and run abort again", ErrWaiting, strings.Join(names, ", "))
}
