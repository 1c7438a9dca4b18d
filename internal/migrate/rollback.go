package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// rollBack deletes what was created for the moves: the objects that the file wants with the
// successors and not without them. What holds a message stays.
func (r *Runner) rollBack(ctx context.Context, without topology.Compiled, moves []Move) error {
	state, err := r.settledState(ctx, moves)
	if err != nil {
		return err
	}
	created := createdFor(r.Topology.Topology, without.Topology)
	for _, m := range moves { // a legacy queue that dlxctl generated keeps its retry queues
		for key := range plan.Plane(r.Topology.Name, state, m.Legacy) {
			delete(created, key)
		}
	}
	p := plan.Make(without, ended(state, moves), plan.Options{})
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		key := topology.Key{Kind: c.Kind, Name: c.Name}
		b, isBinding := c.Before.(topology.Binding)
		if isBinding {
			key.Name = b.Identity()
		}
		back := isBinding && slices.ContainsFunc(moves, func(m Move) bool { return b.Key == topology.AddressKey(m.New) })
		return c.Action != plan.Delete || !created[key] && !back && !plan.Exposes(c)
	})
	p.Changes = withoutExposing(p.Changes, state)
	dropProvedHazards(p.Changes, moves)
	todo, tiers := plan.Allowed(p, plan.Allow(topology.DropsRouting, topology.CopiesMessages)), 0
	for _, q := range p.Retiring {
		_, failed := topology.FailedBackoff(r.Topology.Name, q)
		if u := state.Usage[q]; failed && (u.Ready+u.Unacknowledged+u.Consumers > 0 || u.ConsumersUnknown) {
			// It stays, and keptQueues names it.
			p.Changes = append(p.Changes, plan.Change{Kind: topology.KindQueue, Name: q, Stake: &u})
			continue
		}
		for _, have := range state.Have.Queues {
			if have.Name == q && created[topology.Key{Kind: topology.KindQueue, Name: q}] {
				c := remove(have)
				c.Phase = plan.PhaseDeleteTiers
				tiers++
				todo.Changes = append(todo.Changes, c)
			}
		}
	}
	for _, m := range moves {
		for _, name := range []string{m.legacyEnd(), m.successorEnd()} {
			if m.find(state).exchanges[name] {
				c := remove(topology.Exchange{Name: name})
				// No message is published to it any more.
				c.Hazards, c.Phase = []topology.Hazard{topology.DropsRouting}, plan.PhaseDeleteSwitch
				todo.Changes = append(todo.Changes, c)
			}
		}
	}
	if err := r.execute(ctx, todo.Changes); err != nil {
		return err
	}
	if tiers > 0 {
		return r.rollBack(ctx, without, moves) // the return bindings of the tiers stayed as long as these
	}
	if err := keptQueues(p); err != nil {
		return err
	}
	for _, m := range moves {
		if m.addressStays(state, todo.Changes) {
			r.say("abort: failed messages of %s may still be waiting in a tier: they return to %s; the address of %s stays until an apply finds all tiers of the topology empty",
				m.New, m.Legacy, m.New)
		}
	}
	return nil
}

// ended returns a state without what shows to a plan that the migrations have begun: rollBack
// deletes it with the successors, which a plan would block otherwise.
func ended(state topology.State, moves []Move) topology.State {
	state.Have.Bindings = slices.DeleteFunc(slices.Clone(state.Have.Bindings), func(b topology.Binding) bool {
		return slices.ContainsFunc(moves, func(m Move) bool { return b.Source == m.successorEnd() })
	})
	return state
}

// addressStays reports whether changes leave a binding by which retries of the successor come to
// the legacy queue: tiersEmpty knows the tiers of the file, and plans keep the binding as long as
// any tier holds a message, as the successor may have had another backoff before.
func (m Move) addressStays(state topology.State, changes []plan.Change) bool {
	return slices.ContainsFunc(state.Have.Bindings, func(b topology.Binding) bool {
		back := m.returns(b) && b.Destination == m.Legacy && b.Key == topology.AddressKey(m.New)
		return back && !slices.ContainsFunc(changes, func(c plan.Change) bool {
			gone, is := c.Before.(topology.Binding)
			return is && gone.Identity() == b.Identity()
		})
	})
}

// dropProvedHazards removes the hazard loses-messages from the deletion of an empty successor
// to which another queue dead-letters by its name: that queue was proved empty before (see
// checkFeeders). The broker proves the successor empty again before it deletes it.
func dropProvedHazards(changes []plan.Change, moves []Move) {
	for i, c := range changes {
		isSuccessor := c.Kind == topology.KindQueue &&
			slices.ContainsFunc(moves, func(m Move) bool { return c.Name == m.New })
		if isSuccessor && c.Stake != nil && c.Stake.Ready+c.Stake.Unacknowledged == 0 {
			changes[i].Hazards = slices.DeleteFunc(slices.Clone(c.Hazards), func(h topology.Hazard) bool {
				return h == topology.LosesMessages
			})
		}
	}
}

// keptQueues fails if queues of a plan of deletions stay, and says why.
func keptQueues(p plan.Plan) error {
	var names []string
	for _, c := range p.Changes {
		u := c.Stake
		if c.Kind != topology.KindQueue || u == nil || u.Ready+u.Unacknowledged+u.Consumers == 0 && !u.ConsumersUnknown {
			continue
		}
		held := messages(u.Ready + u.Unacknowledged)
		names = append(names, fmt.Sprintf("%s (%s, %s)", c.Name, held, u.ConsumersText()))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: messages go to the legacy queue, and nothing is lost; queues that hold messages or are in use stay, with what routes to them: %s; stop the processor, empty the dead-letter queues, and run abort again", ErrWaiting, strings.Join(names, ", "))
}

// createdFor returns the keys of the objects that the topology has and without has not.
func createdFor(t, without topology.Topology) map[topology.Key]bool {
	created := map[topology.Key]bool{}
	mark := func(t topology.Topology, is bool) {
		for _, e := range t.Exchanges {
			created[topology.Key{Kind: topology.KindExchange, Name: e.Name}] = is
		}
		for _, q := range t.Queues {
			created[topology.Key{Kind: topology.KindQueue, Name: q.Name}] = is
		}
		for _, b := range t.Bindings {
			created[topology.Key{Kind: topology.KindBinding, Name: b.Identity()}] = is
		}
		for _, p := range t.Policies {
			created[topology.Key{Kind: topology.KindPolicy, Name: p.Name}] = is
		}
	}
	mark(t, true)
	mark(without, false)
	return created
}
