package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// park returns the next step that lets the switch exchange lead to the hold and leaves it there.
func (m Move) park(state topology.State) cutoverStep {
	f := m.find(state)
	parked := f.policy != nil && f.policy.Definition[topology.ArgAlternateExchange] == m.successorEnd()
	if parked && !f.exchanges[m.switchName()] && len(f.onLegacy) > 0 {
		// A run that has lost its lock wrote it late, see pointSwitch. While the queue is bound too, all
		// that the switch gets would come to both.
		c := m.pointSwitch(state, f, m.legacyEnd())
		return cutoverStep{Doing: "let the policy of the switch exchange lead to " + m.Legacy, Changes: []plan.Change{c}}
	}
	if made := m.makeSwitch(state, f, m.legacyEnd()); len(made) > 0 {
		return cutoverStep{Doing: "create the switch exchange of " + m.Legacy, Changes: made}
	}
	if !parked {
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

// steps takes the steps that next returns, until there is none.
func (r *Runner) steps(ctx context.Context, m Move, next func(topology.State) cutoverStep) error {
	return r.converge(ctx, func(state topology.State) ([]plan.Change, error) {
		r.noteRoutes(m, state)
		step, err := r.ensureSwitch(m, state)
		if err == nil && step.Doing == "" {
			step = next(state)
		}
		if step.Doing != "" {
			r.say("replace: %s", step.Doing)
		}
		if step.Turns {
			r.note(m, func(t *tally) { t.parked = firstOf(t.parked, time.Now()) })
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
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	if err := r.deletable(ctx, m, state); err != nil {
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
	}
	if consumers > 0 || errors.Is(err, broker.ErrInUse) { // an exclusive one has come just now
		err = park(ctx)
	}
	if err != nil {
		return err
	}
	exclusive := false // one of its consumers is
	for began, said := time.Now(), false; ; {
		if err := park(ctx); err != nil { // a service may have bound the queue since
			return err
		}
		state, err := r.inspect(ctx)
		if err != nil {
			return err
		}
		f, held := m.find(state), state.Usage[m.Legacy].Ready+state.Usage[m.Legacy].Unacknowledged
		if !f.legacy || !f.successor || !r.differs(m, state) {
			return nil // another client has changed it: the caller looks again
		}
		if consumers, err = r.consumers(ctx, state, m.Legacy); err != nil {
			return err
		}
		if held > 0 && !said {
			said = true
			r.say("replace: %s in %s; waiting up to %s until its consumers have worked through them",
				messages(held)+text.Choose(held, " is", " are"), m.Legacy, text.Duration(r.Wait))
		}
		if state.Usage[m.Legacy].Ready > 0 && (consumers == 0 || r.DrainNow && !exclusive) {
			moved, err := r.moveRest(ctx, m, state, park)
			exclusive = errors.Is(err, broker.ErrInUse) // it may work through the rest, or go
			if err != nil && !exclusive {
				return err
			}
			if moved > 0 {
				continue
			}
		}
		err = broker.ErrRefused
		sends, late := plan.DeskSends(m.Legacy, state.Have.Bindings), time.Since(began) >= r.Wait
		if state.Usage[m.Legacy].Ready == 0 && sends == "" {
			err = r.deleteAndDeclare(ctx, m, consumers)
		}
		switch {
		case !errors.Is(err, broker.ErrRefused):
			return err
		case late && sends != "":
			return fmt.Errorf("%w: the queue %s cannot be deleted: %s", ErrWaiting, m.Legacy, sends)
		case late && held == 0:
			return fmt.Errorf("%w: the queue %s is empty and cannot be deleted: messages come to it by its name, or a service binds it again and again",
				ErrWaiting, m.Legacy)
		case late:
			return fmt.Errorf("%w: the queue %s is not empty: it has %s ready, %s, and %s; run the command again when its consumers have worked through it%s",
				ErrWaiting, m.Legacy, messages(state.Usage[m.Legacy].Ready), state.Usage[m.Legacy].NotReady(),
				r.consumersText(ctx, m.Legacy, consumers, exclusive), r.drainAdvice(m, state))
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// consumersText counts the consumers of a queue, and names the connections that the user may see.
func (r *Runner) consumersText(ctx context.Context, queue string, n int64, exclusive bool) string {
	out := text.Count(n, "consumer")
	if exclusive {
		out = text.Count(n, "exclusive consumer")
	}
	names, err := r.Management.Subscribers(ctx, queue)
	if err != nil || len(names) == 0 {
		return out // the count is what matters
	}
	return out + " (" + text.Some(names) + ")"
}

// drainAdvice says what moves the ready messages of a queue that has consumers. Empty: nothing
// does.
func (r *Runner) drainAdvice(m Move, state topology.State) string {
	if r.DrainNow || singleActive(state, m.Legacy) || state.Usage[m.Legacy].Ready == 0 {
		return ""
	}
	return fmt.Sprintf(", or 'dlxctl migrate %s --drain now', if none of them is exclusive", text.ShellQuote(m.Legacy))
}

// prepareHold creates what the queue of the file needs for its failures, the hold, and its ends. It
// returns when the hold answers and is old enough for messages.
func (r *Runner) prepareHold(ctx context.Context, m Move, state topology.State) error {
	// These depend on the file, and an earlier run may have had another one.
	if err := r.prepare(ctx, []Move{m.work()}, m.ahead); err != nil {
		return err
	}
	if err := r.tryDeclaration(ctx, m); err != nil {
		return err
	}
	if f := m.find(state); f.successor && m.switched(f) {
		return nil // an earlier run has done the rest, and to ask a queue that has messages changes their order
	}
	if !m.find(state).successor {
		hold := r.hold(m, state)
		r.say("replace: create the hold %s", hold.Name)
		err := r.execute(ctx, []plan.Change{create(hold)})
		if errors.Is(err, broker.ErrInternal) && hold.Arguments[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce {
			r.note(m, func(t *tally) { t.failed = time.Now() })
		}
		if err != nil {
			return err
		}
	}
	r.note(m, func(t *tally) { t.held = true })
	waiting, err := r.readyIn(ctx, m.New)
	if err != nil {
		return err
	}
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return err
	}
	if waiting > 0 { // it answers, and to ask it for a message changes their order
		err = conn.Close()
	} else {
		err = answers(ctx, conn, m.New)
	}
	if err != nil {
		err = fmt.Errorf("the queue %s must answer before messages are routed to it: %w", m.New, err)
	}
	if errors.Is(err, errSilent) {
		return fmt.Errorf("%w: %w; run the command again", ErrWaiting, err)
	}
	if err != nil {
		return err
	}
	if err := wait.For(ctx, amqp.SafeAge); err != nil {
		return err
	}
	if state, err = r.inspect(ctx); err != nil {
		return err
	}
	return r.execute(ctx, m.makeEnd(m.find(state), m.successorEnd()))
}

// lacksReturn returns the bindings by which retries come back to the queue of the file, and that
// neither the queue nor the switch exchange has: another file began the replacement, and plans
// leave the bindings of such a queue alone.
func (r *Runner) lacksReturn(m Move, f found) []topology.Binding {
	wanted := slices.DeleteFunc(slices.Clone(r.Topology.Bindings), func(b topology.Binding) bool {
		return b.Destination != m.Legacy || !m.returns(b)
	})
	return lacking(wanted, union(f.onLegacy, f.onSwitch))
}

// work returns the move whose preparation is that of the queue.
func (m Move) work() Move { return Move{Topology: m.Topology, New: m.Legacy} }

// ahead leaves of a preparation what is made before the queue is deleted. Its policy is for the new
// queue: on the one that exists, its limits could drop messages.
func (m Move) ahead(p *plan.Plan) {
	p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool {
		return c.Kind == topology.KindPolicy && c.Label.Queue == m.Legacy ||
			c.Kind == topology.KindQueue && c.Name == m.Legacy
	})
}

// slowDeclaration is how long a node may take to declare a quorum queue before one is declared that
// dead-letters at least once. It gives up after 5 seconds (541), and the worker of such a queue may
// be left. That tries 5 minutes later, again and again, to find the queue. If there is none by
// then, the node dead-letters nothing at least once any more, and fails to declare such queues,
// until it is restarted (rabbit_fifo_dlx_sup; 4.3.6, measured with 24 queues at a time).
const slowDeclaration = 2 * time.Second

// workerLife is how long such a worker lasts, with a margin: five calls of a minute.
const workerLife = 5*time.Minute + 30*time.Second

// tryDeclaration declares a queue as the file has it, under another name, and deletes it: what the
// broker refuses must be known before the queue itself is deleted. It returns once the broker is
// quick to do so.
func (r *Runner) tryDeclaration(ctx context.Context, m Move) error {
	q := r.trial(m)
	gone := []plan.Change{removeTrial(q)}
	for began := time.Now(); ; {
		took, err := r.declareTrial(ctx, q)
		if errors.Is(err, broker.ErrInequivalent) { // of a run that was killed, with another file
			if err = r.execute(ctx, gone); err == nil {
				took, err = r.declareTrial(ctx, q)
			}
		}
		switch {
		case errors.Is(err, broker.ErrRefused):
			return fmt.Errorf("%w: the broker does not accept the queue %s as the file has it: %w", ErrRefused, m.Legacy, err)
		case errors.Is(err, broker.ErrForbidden):
			return fmt.Errorf("%w: the queue %s cannot be declared as the file has it: %w", ErrRefused, m.Legacy, err)
		case err != nil:
			return err // it says nothing about the queue
		}
		if err = r.execute(ctx, gone); err != nil || took <= slowDeclaration {
			return err
		}
		if time.Since(began) >= mostTrouble {
			return fmt.Errorf("%w: the broker is too busy to replace %s: it took %s to declare a queue",
				ErrWaiting, m.Legacy, text.Took(took))
		}
		r.say("%s: the broker took %s to declare a queue; waiting until it is less busy", m.Legacy, text.Took(took))
		if err := wait.For(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// declareTrial declares the queue of tryDeclaration, and returns how long the broker took.
func (r *Runner) declareTrial(ctx context.Context, q topology.Queue) (took time.Duration, err error) {
	c := create(q)
	defer r.gate(c)()
	began := time.Now()
	err = r.Management.Apply(ctx, c)
	if err == nil {
		r.noteWrite(c)
	}
	return time.Since(began), err
}

// trialExpires is after how many milliseconds the broker deletes the trial of a run that was
// killed.
const trialExpires = 60_000

// trial returns the queue of tryDeclaration. It has no worker that dead-letters at least once, see
// slowDeclaration.
func (r *Runner) trial(m Move) topology.Queue {
	q := r.wanted(m)
	q.Name = m.trialName()
	q.Arguments = q.Arguments.Without(topology.ArgDeadLetterStrategy).With(topology.ArgExpires, int64(trialExpires)).
		With(topology.ArgManagedBy, topology.DeskMark(m.Topology))
	return q
}

// trialName names the queue of tryDeclaration.
func (m Move) trialName() string { return m.switchName() + ".trial" }

// removeTrial deletes the queue of tryDeclaration. Nothing can be lost: nothing leads to it.
func removeTrial(q topology.Queue) plan.Change {
	c := remove(q)
	c.Hazards = []topology.Hazard{topology.LosesMessages, topology.StopsConsumers}
	return c
}

// moveRest moves what is in the queue to the hold, and switches as move does. It returns how many
// messages it has moved. It fails with ErrInUse if the queue has an exclusive consumer.
func (r *Runner) moveRest(ctx context.Context, m Move, state topology.State, park func(context.Context) error) (
	int64, error,
) {
	h := r.startMover(m)
	err := r.moveAndSwitch(ctx, m, h, drainLimits{byName: m.watchLegacy(state)}, park)
	moved := h.moved.Load()
	if moved > 0 {
		r.say("replace: moved %s from %s to its hold", messages(moved), m.Legacy)
	}
	r.reportChanged("replace", h)
	if errors.Is(err, errComing) {
		err = fmt.Errorf("%w: messages still come to the queue %s by its name; %s", ErrWaiting, m.Legacy, m.WaysOut())
	}
	return moved, err
}

// moveAndSwitch moves what is in the queue m.Legacy until nothing has come for a second. When no
// more than a few messages are on their way, it calls turn, which switches, and the mover goes on
// meanwhile: what came before the switch stays in front of what comes after it, but for those few.
func (r *Runner) moveAndSwitch(
	ctx context.Context, m Move, h *mover, limits drainLimits, turn func(context.Context) error,
) error {
	ready, err := r.readyIn(ctx, m.Legacy)
	if err != nil {
		return err
	}
	limits.idle, limits.wait, limits.stuck = time.Second+max(0, time.Until(h.safe)), r.Wait, max(r.Wait, leastStuck)
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
			if moved >= ready && caughtUp.IsZero() && time.Now().After(h.safe) {
				caughtUp = time.Now()
			}
			if full := time.UnixMilli(h.crowded.Load()); full.After(caughtUp) && !caughtUp.IsZero() {
				caughtUp = full // many are behind those on the way, and the switch would come before them
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

// deletable fails with ErrWaiting while the queue must not be deleted because a node is down. The
// node may have stopped since the run began, and messages would wait in the hold until it is up.
func (r *Runner) deletable(ctx context.Context, m Move, state topology.State) error {
	why, err := r.undeletable(ctx, m, state)
	if why != "" {
		err = fmt.Errorf("%w: the queue %s cannot be deleted: %s", ErrWaiting, m.Legacy, why)
	}
	return err
}

// undeletable says why the queue must not be deleted now. Empty: it may be, or does not exist.
func (r *Runner) undeletable(ctx context.Context, m Move, state topology.State) (why string, err error) {
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	if i >= 0 {
		why, _, err = r.Management.Undeletable(ctx, state.Have.Queues[i])
	}
	return why, err
}

// deleteAndDeclare proves the queue empty, deletes it and declares it anew. It fails with
// ErrRefused if the queue is not empty. The caller has looked that no run of a desk sends to it.
//
// Nothing can be lost: no exchange leads to the queue, before the proof and after it, so that
// what it has only becomes less; and the proof shows no message in it, neither ready nor with a
// consumer. Where the broker can, it checks in the moment of the deletion that none is ready. A
// publisher that uses the name of the queue is the exception, which needs consent. No run of a desk
// begins to send to it meanwhile: it looks for the hold before its first message.
func (r *Runner) deleteAndDeclare(ctx context.Context, m Move, consumers int64) error {
	if err := r.publishersGone(ctx, m); err != nil {
		if errors.Is(err, errByName) {
			return fmt.Errorf("%w: %w; %s", ErrWaiting, err, m.WaysOut())
		}
		return err
	}
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	if err := r.noteConsumers(ctx, m, state, consumers); err != nil {
		return err
	}
	isIt := func(q topology.Queue) bool { return q.Name == m.Legacy }
	i := slices.IndexFunc(state.Have.Queues, isIt)
	if i < 0 {
		return nil
	}
	if err := r.deletable(ctx, m, state); err != nil {
		return err
	}
	r.say("replace: proving that %s is empty, which takes some seconds", m.Legacy)
	if err := r.Management.ProveEmpty(ctx, state.Have.Queues[i:i+1]); err != nil {
		return err
	}
	if !isMarked(m.consumerMarks(state), deletionKey) { // for the next run, if this one is killed
		if err := r.carryOut(ctx, []plan.Change{create(m.consumerMark(deletionKey))}); err != nil {
			return err
		}
	}
	// During the proof, a service may have bound the queue, or a policy may have taken effect.
	if state, err = r.inspect(ctx); err != nil {
		return err
	}
	if i = slices.IndexFunc(state.Have.Queues, isIt); i < 0 {
		return nil
	}
	if !r.differs(m, state) {
		return nil // another run has replaced it
	}
	f, list := m.find(state), survey.New(state).Feeders(m.Legacy)
	leads := f.successor && f.policy != nil && m.switched(f) && state.ExchangePolicies[m.switchName()] == m.policy()
	ready, err := r.readyIn(ctx, m.Legacy)
	switch {
	case err != nil:
		return err
	case !leads || len(f.onLegacy) > 0 || ready > 0 || plan.DeskSends(m.Legacy, state.Have.Bindings) != "":
		return broker.ErrRefused
	case len(list) > 0:
		return fmt.Errorf("%w: the queue %s %s", ErrWaiting, list[0].Name, describeFeeder(m, list[0]))
	}
	gone := remove(state.Have.Queues[i])
	gone.Hazards = []topology.Hazard{topology.StopsConsumers} // they get basic.cancel
	// Without it, the deletion would prove once more what is proved, for seconds in which nothing
	// looks at the bindings.
	gone.ProvedEmpty = true
	return r.declareAnew(ctx, m, state, &gone)
}

// declareAnew declares the queue as the file has it, with its policy, and lets the end of the
// switch lead to it. gone is its deletion just before. Nil: it is deleted already.
func (r *Runner) declareAnew(ctx context.Context, m Move, state topology.State, gone *plan.Change) error {
	var changes []plan.Change
	add := func(c plan.Change) {
		c.Phase = plan.Phase(len(changes)) // one after the other
		changes = append(changes, c)
	}
	written := func(c plan.Change) {
		r.noteWrite(c)
		switch {
		case c.Kind != topology.KindQueue:
		case c.Action == plan.Delete:
			r.note(m, func(t *tally) { t.deleted = true })
			r.say("replace: deleted %s", m.Legacy)
		default:
			r.say("replace: declared %s anew (%s)", m.Legacy, r.wanted(m).Type())
		}
	}
	if gone != nil {
		r.note(m, func(t *tally) { t.gone = time.Now() })
		add(*gone)
		if old, _ := gone.Before.(topology.Queue); amqp.Lingers(old, r.wanted(m)) && !state.AtLeast(4, 0) {
			if err := apply.Execute(ctx, r.Management, plan.Plan{Changes: changes}, written); err != nil {
				return err
			}
			changes = nil
			if err := wait.For(ctx, amqp.CancelTime); err != nil {
				return err
			}
		}
	}
	for _, c := range r.policyChanges(m, state) {
		if c.Action == plan.Create || c.Action == plan.Update {
			add(c)
		}
	}
	add(create(r.wanted(m)))
	f := m.find(state)
	f.legacy, f.legacyBound = true, false
	for _, c := range m.makeEnd(f, m.legacyEnd()) {
		add(c)
	}
	if f.exchanges[m.switchName()] {
		for _, c := range m.bindSwitch(r.lacksReturn(m, f)) {
			add(c)
		}
	}
	// The counts that prove a quorum queue empty must be newer than this moment.
	err := apply.Execute(ctx, gated{r.Management.Fresh(), r}, plan.Plan{Changes: changes}, written)
	if part, is := errors.AsType[*apply.PartialError](err); is && errors.Is(err, broker.ErrInequivalent) &&
		slices.ContainsFunc(part.Failed, func(c plan.Change) bool { return c.Kind == topology.KindQueue }) {
		return fmt.Errorf("%w: %w", errRedeclared, err)
	}
	if err != nil {
		return err
	}
	r.note(m, func(t *tally) { t.declared = true })
	return wait.For(ctx, r.Settle)
}

// readyIn returns how many messages are ready in a queue. Zero is also that of a leader that has
// been silent for seconds, but not of one that was silent for a moment: a hold that seemed empty
// would be left before its messages.
func (r *Runner) readyIn(ctx context.Context, queue string) (int64, error) {
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	n, err := conn.ReadyForSure(queue)
	if errors.Is(err, broker.ErrRefused) {
		return 0, nil
	}
	return int64(n), err
}
