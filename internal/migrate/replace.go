package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue is replaced under its own name by a migration to a hold that is rolled back once the queue
// has been deleted and declared again. Its steps, each of which follows from the state of the broker:
//
//  1. The hold is declared, and the switch exchange leads to it: what is routed to the queue waits
//     there ([Move.next] has these steps).
//  2. The consumers of the queue, or the mover, empty it. It is proved empty.
//  3. It is deleted and declared as the file has it.
//  4. The mover empties the hold, in order, and meanwhile the switch exchange leads to the queue again.
//  5. The queue is bound again, and the switch exchange and the hold are deleted ([Move.nextBack]).
//
// Whether the queue is missing, differs from the file or not decides which of them is next. The hold
// is the first that is made and the last that goes, so it tells that a replacement is not finished.
// Until step 3 the same rollback ends it without a change.

// young is how long a queue exists before messages are routed or moved to it: a quorum queue that is
// younger than a second loses its messages if its node is killed.
const young = 2 * time.Second

// holdPrefetch is how many messages are in flight between a queue and its hold. So many are doubled
// at most if a run is killed.
const holdPrefetch = 200

// few is how many messages are on the way to the queue at most when the switch leads there again.
// They arrive behind younger ones.
const few = 3

// mostPatience is how long a switch waits for such a moment. With many messages a second there is
// none, and all that are on the way, holdPrefetch at most, arrive behind younger ones.
const mostPatience = 2 * time.Second

// The beginnings of the keys of the bindings that note how many consumers the queue had, and which
// connections they had, of which mostNoted are noted.
const (
	consumersKey = "consumers="
	consumerKey  = "consumer="
	mostNoted    = 50
)

// replacementOf returns the replacement of a queue under its name: a move to its hold.
func replacementOf(topologyName, queue string) Move {
	return Move{Topology: topologyName, Legacy: queue, New: topology.ReplacementHoldName(topologyName, queue)}
}

// Unfinished returns the queues of the file whose replacement under their names has begun and not
// ended, in the order of the file.
func Unfinished(want topology.Compiled, state topology.State) []string {
	var out []string
	for _, q := range want.Queues {
		if q.Label.Role == topology.RoleWork && replacementOf(want.Name, q.Name).find(state).successor {
			out = append(out, q.Name)
		}
	}
	return out
}

// replacements returns the replacements of a run: those that are not finished, and those that the
// user or the file consents to.
func (r *Runner) replacements(state topology.State) []Move {
	if !r.retires() {
		return nil // a replacement has no stages
	}
	begun := Unfinished(r.Topology, state)
	var out []Move
	for _, q := range r.Topology.Queues {
		named := len(r.Legacy) == 0 || slices.Contains(r.Legacy, q.Name)
		m := replacementOf(r.Topology.Name, q.Name)
		due := func() bool {
			return q.Label.Role == topology.RoleWork && !q.External && r.mayReplace(q.Name) && r.differs(m, state)
		}
		if named && (slices.Contains(begun, q.Name) || due()) {
			out = append(out, m)
		}
	}
	return out
}

// differs reports whether the queue exists and is not yet as the file has it.
func (r *Runner) differs(m Move, state topology.State) bool {
	return plan.Differs(r.Topology, state, m.Legacy)
}

// mayReplace reports whether the user or the file consents to the replacement of a queue.
func (r *Runner) mayReplace(queue string) bool {
	return slices.Contains(r.Topology.Replace, queue) || r.consents(topology.ReplacesQueue, queue)
}

// wanted returns the queue as the file has it.
func (r *Runner) wanted(m Move) topology.Queue {
	i := slices.IndexFunc(r.Topology.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	return r.Topology.Queues[i]
}

// hold returns the hold of a queue. No message leaves it by itself, but for one that expires: that is
// dead-lettered as in the queue.
func (r *Runner) hold(m Move) topology.Queue {
	args := topology.Arguments{
		topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: topology.Unlimited,
		topology.ArgManagedBy: topology.DeskMark(m.Topology),
	}
	dead := r.wanted(m).Arguments
	for _, p := range r.Topology.Policies {
		if p.Label.Queue == m.Legacy && !dead.HasAny(topology.ArgDeadLetterExchange) {
			dead = policy.Arguments(p.Definition)
		}
	}
	for _, name := range []string{topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey} {
		if v, given := dead[name]; given {
			args[name] = v
		}
	}
	if dead[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce {
		args[topology.ArgDeadLetterStrategy], args[topology.ArgOverflow] = topology.AtLeastOnce, topology.RejectPublish
	}
	return topology.Queue{Name: m.New, Durable: true, Arguments: args}
}

// unreplaceable returns why a queue that is not yet replaced cannot be, all reasons at once. None: it
// can.
func (r *Runner) unreplaceable(ctx context.Context, m Move, state topology.State) ([]string, error) {
	out := m.reasons(r.Topology, state)
	add := func(format string, args ...any) { out = append(out, m.Legacy+": "+fmt.Sprintf(format, args...)) }
	for _, q := range state.Have.Queues {
		if q.Name != m.Legacy {
			continue
		}
		effective, _ := policy.All(state).For(q)
		if _, expires := effective.Definition[topology.KeyExpires]; expires || q.Arguments.HasAny(topology.ArgExpires) {
			add("the broker deletes it, with its messages, while it has no consumer (expires)")
		}
	}
	for _, f := range survey.New(state).Feeders(m.Legacy) {
		add("the queue %s %s: such messages would be lost while there is no queue; let them come through an exchange",
			f.Name, describeFeeder(m, f))
	}
	if harm := plan.DeskHarm(m.Topology, state, r.hold(m)); harm != "" {
		add("%s, where messages wait during the replacement", harm)
	}
	work := Move{Topology: m.Topology, New: m.Legacy}
	for _, c := range plan.Make(r.Topology, state, plan.Options{}).Changes {
		if c.Action == plan.Blocked && !c.IsEndured() && c.Name != m.Legacy && work.needs(r.Topology, c) {
			add("%s %s is blocked: %s", c.Kind, c.Name, c.Reason)
		}
	}
	if !r.mayReplace(m.Legacy) {
		add("its replacement under its name needs consent: %s",
			plan.Consent{Hazard: topology.ReplacesQueue, Object: m.Legacy}.Flag())
	}
	if !r.allows(m.Legacy) {
		why, err := r.byName(ctx, m, state, state.Usage[m.Legacy].Ready)
		if err != nil {
			return nil, err
		}
		if why != "" {
			add("%s: %s; what they send while there is no queue would be lost: change the publishers, or consent with %s",
				errByName, why, consentTo(m.Legacy))
		}
	}
	return out, nil
}

// checkReplacements returns the replacements of a run, or why they cannot be made.
func (r *Runner) checkReplacements(ctx context.Context, state topology.State) ([]Move, error) {
	var moves []Move
	var reasons []string
	for _, m := range r.replacements(state) {
		if !r.mayReplace(m.Legacy) && len(r.Legacy) == 0 && r.differs(m, state) {
			r.say("%s", replacementLines(r.Topology, state, []string{m.Legacy})[0])
			continue
		}
		moves = append(moves, m)
		if !r.differs(m, state) && m.find(state).successor {
			continue // it only goes on
		}
		why, err := r.unreplaceable(ctx, m, state)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, why...)
	}
	if len(reasons) > 0 {
		return nil, fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(reasons, "\n  "))
	}
	if len(moves) > 0 && r.CheckRights != nil {
		return moves, r.CheckRights(r.replacementRights(state, moves))
	}
	return moves, nil
}

// replacementRights returns the rights that replacements need.
func (r *Runner) replacementRights(state topology.State, moves []Move) []plan.Right {
	var p plan.Plan
	var rights []plan.Right
	for _, m := range moves {
		f := m.find(state)
		p.Changes = append(p.Changes, m.makeSwitch(state, found{exchanges: map[string]bool{}}, m.legacyEnd())...)
		for _, b := range union(f.onLegacy, f.onSwitch) {
			for _, destination := range []string{m.Legacy, m.switchName()} {
				b.Destination, b.DestinationType = destination, topology.ToQueue
				p.Changes = append(p.Changes, create(b))
			}
		}
		for _, q := range []topology.Queue{r.hold(m), r.wanted(m)} {
			p.Changes = append(p.Changes, create(q), remove(q))
		}
		for _, name := range []string{m.legacyEnd(), m.successorEnd()} { // the mover
			rights = append(rights, plan.Right{Permission: plan.Write, Kind: topology.KindExchange, Name: name})
		}
		for _, queue := range []string{m.Legacy, m.New} {
			rights = append(rights, plan.Right{Permission: plan.Read, Kind: topology.KindQueue, Name: queue})
		}
	}
	return sorted(append(plan.Rights(p), rights...))
}

// replaceAll replaces queues one after the other. One that has to wait does not stop the others.
func (r *Runner) replaceAll(ctx context.Context, moves []Move) error {
	var waiting []error
	for _, m := range moves {
		err := r.replace(ctx, m)
		if errors.Is(err, ErrWaiting) || errors.Is(err, ErrRefused) {
			waiting = append(waiting, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Legacy, err)
		}
	}
	return errors.Join(waiting...)
}

// replace replaces a queue under its name, from whatever state an earlier run has left.
func (r *Runner) replace(ctx context.Context, m Move) error {
	began, mine := time.Now(), false
	for {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		f, differs := m.find(state), r.differs(m, state)
		switch {
		case !f.legacy && !f.successor:
			return fmt.Errorf("%w: the queue %s is gone, deleted by another client; run apply", ErrRefused, m.Legacy)
		case f.legacy && !f.successor && !differs && mine:
			return nil
		case !f.legacy:
			// It was deleted by a run that was stopped. Nothing can be lost: what is routed to it waits in
			// the hold.
			err = r.declareAnew(ctx, m, state, nil)
		case differs:
			err = r.vacate(ctx, m)
			if errors.Is(err, ErrWaiting) {
				// While it waits, consumers would get nothing new.
				r.say("replace: rolling back, and nothing has changed")
				return errors.Join(err, r.giveBack(ctx, m, func(context.Context, Move) error { return nil }))
			}
		default:
			if err = r.giveBack(ctx, m, r.consumersBack); err == nil {
				r.say("done: %s is replaced under its name; %s, %s", m.Legacy, r.replacedAccount(m), text.Took(time.Since(began)))
				return nil
			}
		}
		mine = true
		if errors.Is(err, broker.ErrInequivalent) {
			r.say("replace: a service has declared %s again with the old arguments; replacing it once more", m.Legacy)
			err = wait.For(ctx, r.Settle)
		}
		if err != nil {
			return err
		}
	}
}

// park returns the next step that lets the switch exchange lead to the hold and leaves it there.
func (m Move) park(state topology.State) cutoverStep {
	f := m.find(state)
	if made := m.makeSwitch(state, f, m.legacyEnd()); len(made) > 0 {
		return cutoverStep{Doing: "create the switch exchange of " + m.Legacy, Changes: made}
	}
	if f.policy.Definition[topology.ArgAlternateExchange] != m.successorEnd() {
		return m.turnSwitch(state, f, m.Legacy, f.onLegacy, "its hold", m.successorEnd())
	}
	return m.keepParked(f)
}

// keepParked returns the step that unbinds a queue which a service has bound while the switch
// exchange leads to the hold. Messages of a binding that only the queue has get a route to the hold
// first: none is lost, and until then some come to both.
func (m Move) keepParked(f found) cutoverStep {
	switch own := lacking(f.onLegacy, f.onSwitch); {
	case len(own) > 0:
		return cutoverStep{Doing: "bind the switch exchange of " + m.Legacy, Changes: m.bindSwitch(own)}
	case len(f.onLegacy) > 0:
		return m.unbindLegacy(f.onLegacy)
	default:
		return cutoverStep{}
	}
}

// unpark returns the next step that lets the switch exchange lead to the queue again. What comes
// through the switch exchange has a route all the time.
func (m Move) unpark(state topology.State) cutoverStep {
	f := m.find(state)
	if !f.exchanges[m.switchName()] {
		return cutoverStep{} // nothing leads to the hold
	}
	if made := m.makeSwitch(state, f, m.successorEnd()); len(made) > 0 {
		return cutoverStep{Doing: "create the switch exchange of " + m.Legacy, Changes: made}
	}
	if f.policy.Definition[topology.ArgAlternateExchange] == m.legacyEnd() {
		return cutoverStep{}
	}
	if step := m.keepParked(f); step.Doing != "" {
		return step
	}
	return cutoverStep{
		Doing:   "switch from its hold to " + m.Legacy,
		Changes: []plan.Change{m.pointSwitch(state, f, m.legacyEnd())},
	}
}

// steps takes the steps that next returns, until there is none.
func (r *Runner) steps(ctx context.Context, m Move, next func(topology.State) cutoverStep) error {
	return r.converge(ctx, func(state topology.State) ([]plan.Change, error) {
		step, err := r.ensureSwitch(m, state)
		if err == nil && step.Doing == "" {
			step = next(state)
		}
		if step.Doing != "" {
			r.say("replace: %s", step.Doing)
		}
		if step.Doubled {
			r.say("replace: a service has bound %s, and until now messages of this binding came to it and to its hold: these are doubled",
				m.Legacy)
			r.mu.Lock()
			r.rebound[m.Legacy] = true
			r.mu.Unlock()
		}
		return step.Changes, err
	})
}

// vacate routes everything to the hold, waits until the queue is empty, deletes it and declares it
// anew. With ErrWaiting the queue is as it was.
func (r *Runner) vacate(ctx context.Context, m Move) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	if err := r.prepareHold(ctx, m, state); err != nil {
		return err
	}
	consumers, err := r.consumers(ctx, state, m.Legacy)
	if err != nil {
		return err
	}
	park := func(ctx context.Context) error { return r.steps(ctx, m, m.park) }
	if consumers == 0 {
		// What waits goes to the hold first: so it stays in front of what comes there later.
		_, err = r.moveRest(ctx, m, state, park)
	} else {
		err = park(ctx)
	}
	if err != nil {
		return err
	}
	for began, said := time.Now(), false; ; {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		f, held := m.find(state), state.Usage[m.Legacy].Ready+state.Usage[m.Legacy].Unacknowledged
		if !f.legacy {
			return nil
		}
		if len(f.onLegacy) > 0 {
			if err := r.steps(ctx, m, m.park); err != nil {
				return err
			}
			continue
		}
		if consumers, err = r.consumers(ctx, state, m.Legacy); err != nil {
			return err
		}
		if held > 0 && !said {
			said = true
			r.say("replace: %s in %s; waiting up to %s until its consumers have worked through them",
				messages(held)+text.Choose(held, " is", " are"), m.Legacy, text.Duration(r.Wait))
		}
		if state.Usage[m.Legacy].Ready > 0 && (consumers == 0 || r.DrainNow) {
			moved, err := r.moveRest(ctx, m, state, park)
			if err != nil {
				return err
			}
			if moved > 0 {
				continue
			}
		}
		err = broker.ErrRefused
		if state.Usage[m.Legacy].Ready == 0 {
			err = r.deleteAndDeclare(ctx, m, consumers)
		}
		switch {
		case !errors.Is(err, broker.ErrRefused):
			return err
		case time.Since(began) >= r.Wait && held == 0:
			return fmt.Errorf("%w: the queue %s is empty and cannot be deleted: messages come to it by its name, or a service binds it again and again",
				ErrWaiting, m.Legacy)
		case time.Since(began) >= r.Wait:
			return fmt.Errorf("%w: the queue %s is not empty: it has %s ready, %s, and %s; run migrate again when its consumers have worked through it, or with --drain now",
				ErrWaiting, m.Legacy, messages(state.Usage[m.Legacy].Ready), state.Usage[m.Legacy].NotReady(),
				text.Count(consumers, "consumer"))
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// prepareHold creates what the queue of the file needs for its failures, the hold, and its ends. It
// returns when the hold answers and is old enough for messages.
func (r *Runner) prepareHold(ctx context.Context, m Move, state topology.State) error {
	if m.switched(m.find(state)) {
		return nil // an earlier run has done it, and to ask a queue that has messages changes their order
	}
	work := Move{Topology: m.Topology, New: m.Legacy}
	p := preparation(r.Topology, state, []Move{work})
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		// The policy is for the new queue: on the one that exists, its limits could drop messages.
		return c.Kind == topology.KindPolicy && c.Label.Queue == m.Legacy || c.Kind == topology.KindQueue && c.Name == m.Legacy
	})
	if err := r.execute(ctx, p.Changes); err != nil {
		return err
	}
	if !m.find(state).successor {
		hold := r.hold(m)
		r.say("replace: create the hold %s", hold.Name)
		if err := r.execute(ctx, []plan.Change{create(hold)}); err != nil {
			return err
		}
	}
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return err
	}
	if err := answers(ctx, conn, m.New); err != nil {
		return fmt.Errorf("%w: the queue %s must answer before messages are routed to it: %w", ErrRefused, m.New, err)
	}
	if err := wait.For(ctx, young); err != nil {
		return err
	}
	if state, err = r.Management.Inspect(ctx); err != nil {
		return err
	}
	return r.execute(ctx, m.makeEnd(m.find(state), m.successorEnd()))
}

// moveRest moves what is in the queue to the hold, and switches as move does. It returns how many
// messages it has moved.
func (r *Runner) moveRest(ctx context.Context, m Move, state topology.State, park func(context.Context) error) (
	int64, error,
) {
	h := r.startMover(m)
	err := r.moveAndSwitch(ctx, m, h, drainLimits{byName: m.watchLegacy(state)}, park)
	moved := h.moved.Load()
	if moved > 0 {
		r.say("replace: moved %s from %s to its hold", messages(moved), m.Legacy)
	}
	r.reportChanged(h)
	switch {
	case errors.Is(err, errComing):
		err = fmt.Errorf("%w: messages still come to the queue %s by its name; %s", ErrWaiting, m.Legacy, m.WaysOut())
	case errors.Is(err, broker.ErrInUse):
		err = fmt.Errorf("%w: the queue %s has an exclusive consumer, so dlxctl cannot consume", ErrWaiting, m.Legacy)
	}
	return moved, err
}

// moveAndSwitch moves what is in the queue m.Legacy until nothing has come for a second. When no more
// than a few messages are on their way, it calls turn, which switches, and the mover goes on
// meanwhile: what came before the switch stays in front of what comes after it, but for those few.
func (r *Runner) moveAndSwitch(
	ctx context.Context, m Move, h *mover, limits drainLimits, turn func(context.Context) error,
) error {
	ready, err := r.readyIn(ctx, m.Legacy)
	if err != nil {
		return err
	}
	limits.idle, limits.wait, limits.stuck = time.Second, r.Wait, max(r.Wait, leastStuck)
	limits.prefetch = holdPrefetch
	ended := make(chan error, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		defer func() { ended <- err }()
		_, err = r.drain(ctx, m, h, limits)
		if errors.Is(err, errStuck) {
			return h.stuck(m)
		}
		return err
	})
	group.Go(func() error {
		var caughtUp time.Time
		for {
			moved := h.moved.Load()
			onTheWay := h.taken.Load() - moved
			if moved >= ready && caughtUp.IsZero() {
				caughtUp = time.Now()
			}
			if !caughtUp.IsZero() && (onTheWay <= few || time.Since(caughtUp) > mostPatience) {
				return turn(ctx)
			}
			select {
			case err := <-ended:
				if err != nil {
					return err
				}
				return turn(ctx) // nothing came for a second
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return group.Wait()
}

// deleteAndDeclare proves the queue empty, deletes it and declares it anew. It fails with ErrRefused
// if the queue is not empty.
//
// Nothing can be lost: no exchange leads to the queue, the broker's counts show no message in it,
// ready or with a consumer, that is newer than that, and the broker itself refuses to delete a classic
// queue with a message, as the proof does for a quorum queue. A publisher that uses its name is the
// exception, which needs consent.
func (r *Runner) deleteAndDeclare(ctx context.Context, m Move, consumers int64) error {
	if err := r.publishersGone(ctx, m); err != nil {
		if errors.Is(err, errByName) {
			return fmt.Errorf("%w: %w; %s", ErrWaiting, err, m.WaysOut())
		}
		return err
	}
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	if err := r.noteConsumers(ctx, m, state, consumers); err != nil {
		return err
	}
	r.say("replace: proving that %s is empty, which takes some seconds", m.Legacy)
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	if i < 0 {
		return nil
	}
	if q := state.Have.Queues[i]; q.Type() == topology.Classic { // of others, the deletion does that
		if err := r.Management.ProveEmpty(ctx, []topology.Queue{q}); err != nil {
			return err
		}
	}
	// Between the look and the proof, a service may have bound the queue.
	if state, err = r.Management.Inspect(ctx); err != nil {
		return err
	}
	f := m.find(state)
	if i = slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy }); i < 0 {
		return nil
	}
	list := survey.New(state).Feeders(m.Legacy)
	switch {
	case !m.switched(f) || f.policy == nil || len(f.onLegacy) > 0:
		return broker.ErrRefused
	case len(list) > 0:
		return fmt.Errorf("%w: the queue %s %s", ErrWaiting, list[0].Name, describeFeeder(m, list[0]))
	}
	gone := remove(state.Have.Queues[i])
	gone.Hazards = []topology.Hazard{topology.StopsConsumers} // they get basic.cancel; it must be empty all the same
	return r.declareAnew(ctx, m, state, &gone)
}

// declareAnew declares the queue as the file has it, with its policy, and lets the end of the switch
// lead to it. gone is its deletion just before. Nil: it is deleted already.
func (r *Runner) declareAnew(ctx context.Context, m Move, state topology.State, gone *plan.Change) error {
	var changes []plan.Change
	add := func(c plan.Change) {
		c.Phase = plan.Phase(len(changes)) // one after the other
		changes = append(changes, c)
	}
	if gone != nil {
		add(*gone)
	}
	for _, c := range plan.Make(r.Topology, state, plan.Options{}).Changes {
		makes := c.Action == plan.Create || c.Action == plan.Update
		if makes && c.Kind == topology.KindPolicy && c.Label.Queue == m.Legacy {
			add(c)
		}
	}
	add(create(r.wanted(m)))
	f := m.find(state)
	f.legacy, f.legacyBound = true, false
	for _, c := range m.makeEnd(f, m.legacyEnd()) {
		add(c)
	}
	// The counts that prove a quorum queue empty must be newer than this moment.
	err := apply.Execute(ctx, r.Management.Fresh(), plan.Plan{Changes: changes}, func(c plan.Change) {
		r.noteWrite(c)
		switch {
		case c.Kind != topology.KindQueue:
		case c.Action == plan.Delete:
			r.say("replace: deleted %s", m.Legacy)
		default:
			r.say("replace: declared %s anew (%s)", m.Legacy, r.wanted(m).Type())
		}
	})
	if err != nil {
		return err
	}
	return wait.For(ctx, r.Settle)
}

// noteConsumers notes on the broker how many consumers the queue has, and which connections consume
// it, for the comparison afterwards: as bindings of the hold to its end, which is a fanout, so that
// no route changes.
func (r *Runner) noteConsumers(ctx context.Context, m Move, state topology.State, n int64) error {
	connections, err := r.Management.Subscribers(ctx, m.Legacy)
	if err != nil {
		return err
	}
	keys := []string{fmt.Sprint(consumersKey, n)}
	for _, name := range connections[:min(len(connections), mostNoted)] {
		if len(consumerKey+name) <= topology.MaxNameBytes {
			keys = append(keys, consumerKey+name)
		}
	}
	var changes []plan.Change
	for _, b := range m.consumerMarks(state) {
		if !slices.Contains(keys, b.Key) {
			changes = append(changes, remove(b)) // the end has another binding to the hold
		}
	}
	for _, key := range keys {
		if !slices.ContainsFunc(m.consumerMarks(state), func(b topology.Binding) bool { return b.Key == key }) {
			changes = append(changes, create(topology.Binding{
				Source: m.successorEnd(), Destination: m.New, DestinationType: topology.ToQueue, Key: key,
				Arguments: m.ownerMark(),
			}))
		}
	}
	return r.execute(ctx, changes)
}

// consumerMarks returns the bindings that note the consumers of the queue.
func (m Move) consumerMarks(state topology.State) []topology.Binding {
	return slices.DeleteFunc(slices.Clone(state.Have.Bindings), func(b topology.Binding) bool {
		return b.Source != m.successorEnd() || b.Destination != m.New ||
			!strings.HasPrefix(b.Key, consumersKey) && !strings.HasPrefix(b.Key, consumerKey)
	})
}

// giveBack moves what is in the hold to the queue, lets the switch lead there, binds the queue again,
// and removes the hold, once check agrees. It is the second half of a replacement, and all of a
// rollback.
func (r *Runner) giveBack(ctx context.Context, m Move, check func(context.Context, Move) error) error {
	if err := wait.For(ctx, young); err != nil {
		return err
	}
	for {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		f := m.find(state)
		if !f.successor {
			return nil
		}
		if !f.legacy {
			return nil // another client has deleted it: the caller looks again
		}
		parked := m.unpark(state).Doing != ""
		ready, err := r.readyIn(ctx, m.New)
		if err != nil {
			return err
		}
		if parked || ready > 0 {
			if err := r.execute(ctx, append(m.makeEnd(f, m.legacyEnd()), m.makeEnd(f, m.successorEnd())...)); err != nil {
				return err
			}
			if err := r.emptyHold(ctx, m, state); err != nil {
				return err
			}
			continue
		}
		if err := r.steps(ctx, m, m.nextBack); err != nil {
			return err
		}
		if err := check(ctx, m); err != nil {
			return err
		}
		err = r.removeHold(ctx, m)
		if !errors.Is(err, broker.ErrRefused) {
			return err
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// readyIn returns how many messages are ready in a queue.
func (r *Runner) readyIn(ctx context.Context, queue string) (int64, error) {
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	n, err := conn.MessagesReady(queue)
	return int64(n), err
}

// emptyHold moves what is in the hold to the queue, and lets the switch lead there.
func (r *Runner) emptyHold(ctx context.Context, m Move, state topology.State) error {
	back := Move{Topology: m.Topology, Legacy: m.New, New: m.Legacy}
	h := r.startMover(back)
	h.to = m.legacyEnd()
	r.say("replace: moving what waits in the hold to %s", m.Legacy)
	err := r.moveAndSwitch(ctx, back, h, drainLimits{fullAt: policy.FullAt(state, m.Legacy)},
		func(ctx context.Context) error { return r.steps(ctx, m, m.unpark) })
	if n := h.moved.Load(); n > 0 {
		r.say("replace: moved %s from the hold to %s", messages(n), m.Legacy)
	}
	r.reportChanged(h)
	return err
}

// removeHold deletes what is left of a replacement. The broker or the proof refuses to delete a hold
// that is not empty, so nothing can be lost.
func (r *Runner) removeHold(ctx context.Context, m Move) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.New })
	if i < 0 {
		return nil
	}
	var changes []plan.Change
	for _, name := range []string{m.legacyEnd(), m.successorEnd()} {
		if m.find(state).exchanges[name] {
			c := remove(topology.Exchange{Name: name})
			c.Hazards = []topology.Hazard{topology.DropsRouting} // only the mover publishes to it
			changes = append(changes, c)
		}
	}
	hold := remove(state.Have.Queues[i])
	hold.Phase = 1
	return apply.Execute(ctx, r.Management.Fresh(), plan.Plan{Changes: append(changes, hold)}, r.noteWrite)
}

// consumersBack waits until the queue has as many consumers as before. It fails with ErrWaiting if
// that does not happen, unless the user consents.
func (r *Runner) consumersBack(ctx context.Context, m Move) error {
	said := false
	for began := time.Now(); ; {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		var before int64
		for _, b := range m.consumerMarks(state) {
			if n, isCount := strings.CutPrefix(b.Key, consumersKey); isCount {
				_, _ = fmt.Sscan(n, &before) // noteConsumers has written it
			}
		}
		now, err := r.consumers(ctx, state, m.Legacy)
		if err != nil {
			return err
		}
		if now >= before || r.consents(topology.StopsConsumers, m.Legacy) {
			return nil
		}
		if time.Since(began) >= r.Wait {
			silent, err := r.silent(ctx, m, state)
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: %s is replaced and gets its messages, but it has %s, and had %d before: restart the services that did not subscribe again, then run migrate again, or with %s%s",
				ErrWaiting, m.Legacy, text.Count(now, "consumer"), before,
				plan.Consent{Hazard: topology.StopsConsumers, Object: m.Legacy}.Flag(), silent)
		}
		if !said {
			said = true
			r.say("replace: %s has %s, and had %d before; waiting up to %s for the others", m.Legacy,
				text.Count(now, "consumer"), before, text.Duration(r.Wait))
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// silent names the connections that consumed the queue before, are still open, and no longer consume
// it, each with the command that closes it. It is empty if none is known.
func (r *Runner) silent(ctx context.Context, m Move, state topology.State) (string, error) {
	now, err := r.Management.Subscribers(ctx, m.Legacy)
	if err != nil {
		return "", err
	}
	open, err := r.Management.Connections(ctx)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, b := range m.consumerMarks(state) {
		name, noted := strings.CutPrefix(b.Key, consumerKey)
		if client, stays := open[name]; noted && stays && !slices.Contains(now, name) {
			fmt.Fprintf(&out, "\n  still connected, and does not consume it: %s (%s); to close it: curl -u USER -X DELETE %s",
				name, text.Name(client), text.ShellQuote(r.Management.ConnectionURL(name)))
		}
	}
	return out.String(), nil
}

// replacedAccount says how many messages waited in the hold, and how many may be doubled.
func (r *Runner) replacedAccount(m Move) string {
	out := "no message waited in its hold"
	if h := r.moverOf(m.New, m.Legacy); h != nil {
		out = "this run moved " + h.counts()
	}
	if r.takeRebound(m) {
		out += ", and those that a service has doubled by its binding (see above)"
	}
	return out
}

// consents reports whether the user consents to a hazard for a queue.
func (r *Runner) consents(h topology.Hazard, queue string) bool {
	return slices.ContainsFunc(r.Allow, func(c plan.Consent) bool {
		return c.Hazard == h && (c.Object == "" || c.Object == queue)
	})
}

// Rollbacks returns the replacements under their names that an abort rolls back, and a line for each
// that it cannot: the queue that was there is deleted.
func Rollbacks(want topology.Compiled, state topology.State, queues []string) (moves []Move, stays []string) {
	for _, name := range Unfinished(want, state) {
		m := replacementOf(want.Name, name)
		switch {
		case len(queues) > 0 && !slices.Contains(queues, name):
		case m.find(state).legacy && plan.Differs(want, state, name):
			moves = append(moves, m)
		default:
			stays = append(stays, fmt.Sprintf("the queue that %s replaces under its name is deleted, so there is nothing to roll back to; run migrate to finish", name))
		}
	}
	return moves, stays
}

// abortReplacements rolls back the replacements that have not deleted their queues.
func (r *Runner) abortReplacements(ctx context.Context, state topology.State) error {
	moves, stays := Rollbacks(r.Topology, state, r.Legacy)
	if len(stays) > 0 && len(r.Legacy) > 0 {
		return fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(stays, "\n  "))
	}
	for _, line := range stays {
		r.say("abort: %s", line)
	}
	if len(moves) > 0 && r.CheckRights != nil {
		if err := r.CheckRights(r.replacementRights(state, moves)); err != nil {
			return err
		}
	}
	for _, m := range moves {
		if err := r.giveBack(ctx, m, func(context.Context, Move) error { return nil }); err != nil {
			return err
		}
		r.say("abort: %s is as it was", m.Legacy)
	}
	return nil
}

// Replacements returns the queues that Run would replace under their names in a state, and writes for
// a person what that means. It writes nothing to the broker.
func (r *Runner) Replacements(ctx context.Context, state topology.State, w io.Writer) ([]string, error) {
	var names []string
	var b strings.Builder
	for _, m := range r.replacements(state) {
		names = append(names, m.Legacy)
		line := func(word, format string, args ...any) {
			b.WriteString(topology.Printable(fmt.Sprintf("  %-7s  %s", word, fmt.Sprintf(format, args...))) + "\n")
		}
		f, u := m.find(state), state.Usage[m.Legacy]
		differs := r.differs(m, state)
		fmt.Fprintf(&b, "%s: replaced under its name (%s)\n", topology.Printable(m.Legacy), r.wanted(m).Type())
		switch {
		case f.successor && !differs:
			line("resume", "a run was stopped; %s wait in the hold %s", messages(state.Usage[m.New].Ready), m.New)
		case u.MayBeConsumed():
			line("hold", "from one moment on, what is routed to it waits in %s", m.New)
			line("empty", "its consumers work through what it has: %s ready, %s; %s", messages(u.Ready), u.NotReady(),
				u.ConsumersText())
		default:
			line("hold", "what it has, %s, is moved to %s, in order; from one moment on, what is routed to it waits there too",
				messages(u.Ready), m.New)
		}
		if !f.legacy || differs {
			line("replace", "once it is proved empty, which takes some 6 seconds, it is deleted and declared as the file has it; its consumers get basic.cancel and have to subscribe again; what is published to its name meanwhile is lost")
		}
		line("back", "what waits in the hold is moved to it, in order; then it is bound again, and the hold is deleted")
		if differs {
			why, err := r.unreplaceable(ctx, m, state)
			if err != nil {
				return nil, err
			}
			for _, reason := range why {
				line("refused", "%s", reason)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return names, err
}

// replacementLines returns a line for each replacement that is not finished.
func replacementLines(want topology.Compiled, state topology.State, queues []string) []string {
	var out []string
	for _, name := range Unfinished(want, state) {
		m := replacementOf(want.Name, name)
		f := m.find(state)
		if len(queues) > 0 && !slices.Contains(queues, name) {
			continue
		}
		where := name
		if f.policy != nil && f.policy.Definition[topology.ArgAlternateExchange] == m.successorEnd() {
			where = "its hold"
		}
		out = append(out, fmt.Sprintf("%s: its replacement under its name is not finished; new messages go to %s, and %s wait in the hold %s; run dlxctl migrate %s",
			name, where, messages(state.Usage[m.New].Ready), m.New, text.ShellQuote(name)))
	}
	return out
}
