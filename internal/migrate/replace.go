package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue is replaced under its own name by a migration to a hold that is rolled back once the
// queue has been deleted and declared again. Its steps, each of which follows from the state of the
// broker:
//
//  1. The hold is declared, and the switch exchange leads to it: what is routed to the queue waits
//     there ([Move.next] has these steps).
//  2. The consumers of the queue, or the mover, empty it. It is proved empty.
//  3. It is deleted and declared as the file has it.
//  4. The mover empties the hold, in order, and meanwhile the switch exchange leads to the queue
//     again.
//  5. The queue is bound again, and the switch exchange and the hold are deleted ([Move.nextBack]).
//
// Whether the queue is missing, differs from the file or not decides which of them is next. The
// hold is the first that is made and the last that goes, so it tells that a replacement is not
// finished. Until step 3 the same rollback ends it without a change.

// holdPrefetch is how many messages are in flight between a queue and its hold. So many are doubled
// at most if a run is killed.
const holdPrefetch = 200

// few is how many messages are on the way to the queue at most when the switch leads there again.
// They arrive behind younger ones.
const few = 3

// mostPatience is how long a switch waits for such a moment. With many messages a second there is
// none, and all that are on the way, holdPrefetch at most, arrive behind younger ones.
const mostPatience = 2 * time.Second

// replacementOf returns the replacement of a queue under its name: a move to its hold.
func replacementOf(topologyName, queue string) Move {
	return Move{Topology: topologyName, Legacy: queue, New: topology.ReplacementHoldName(topologyName, queue)}
}

// replaces reports whether the move replaces a queue under its name.
func (m Move) replaces() bool {
	return m.New == topology.ReplacementHoldName(m.Topology, m.Legacy)
}

// Stray returns the holds of replacements that are not finished and whose queues are not in the
// file, by name.
func Stray(want topology.Compiled, state topology.State) []string {
	own := map[string]bool{}
	for _, name := range Unfinished(want, state) {
		own[replacementOf(want.Name, name).New] = true
	}
	var out []string
	for _, q := range state.Have.Queues {
		if topology.IsReplacementHold(want.Name, q) && !own[q.Name] {
			out = append(out, q.Name)
		}
	}
	slices.Sort(out)
	return out
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
		due := func() bool { // one that is named without consent is refused
			asked := r.mayReplace(q.Name) || slices.Contains(r.Legacy, q.Name)
			return q.Label.Role == topology.RoleWork && !q.External && asked && r.differs(m, state)
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

// hold returns the hold of a queue. No message leaves it by itself, but for one that expires: that
// is dead-lettered as in the queue, by its arguments or a policy.
func (r *Runner) hold(m Move, state topology.State) topology.Queue {
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
	if !dead.HasAny(topology.ArgDeadLetterExchange) {
		dead = policy.Effective(state, r.wanted(m)) // a policy of another team
	}
	for _, name := range []string{topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey} {
		if v, given := dead[name]; given {
			args[name] = v
		}
	}
	if dead[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce {
		args[topology.ArgDeadLetterStrategy], args[topology.ArgOverflow] = topology.AtLeastOnce, topology.RejectPublish
	}
	if failed := r.tallyOf(m).failed; !failed.IsZero() {
		args[argFailed] = failed.Unix()
	}
	return topology.Queue{Name: m.New, Durable: true, Arguments: args}
}

// argFailed is the argument of a hold that says when the broker last failed to declare it, in
// seconds since 1970: a later run must know it too, see slowDeclaration. The broker ignores it.
const argFailed = "x-declaration-failed-at"

// holdFailed returns when the broker last failed to declare the hold, in this run or a previous
// one. Zero: it did not, or a run was killed before it had declared the hold again.
func (r *Runner) holdFailed(m Move, state topology.State) time.Time {
	at := r.tallyOf(m).failed
	for _, q := range state.Have.Queues {
		seconds, noted := q.Arguments[argFailed].(int64)
		if before := time.Unix(seconds, 0); noted && q.Name == m.New && before.After(at) {
			at = before
		}
	}
	return at
}

// The ends of a step of a replacement that another client has disturbed.
var (
	// errRedeclared says that a service has declared the queue between its deletion and its
	// declaration.
	errRedeclared = errors.New("a service has declared the queue again with other arguments")
	// errGone says that the queue or the hold is not there.
	errGone = errors.New("the queue or its hold was deleted by another client, or is on a node that is down; run the command again")
)

// mostRedeclared is how often a service may declare the queue again before the replacement is
// rolled back, and mostGone how often the queue or the hold may be gone.
const mostRedeclared, mostGone = 3, 3

// ErrDisturbed is wrapped when another client has deleted the hold of a replacement, or bindings of
// the queue: messages may be lost.
var ErrDisturbed = errors.New("another client has disturbed a replacement")

// replaceAll replaces queues one after the other. One that fails does not stop the others.
func (r *Runner) replaceAll(ctx context.Context, moves []Move) error {
	var failed []error
	for _, m := range moves {
		err := r.patiently(ctx, m, func() error { return r.replace(ctx, m) })
		if err != nil && !errors.Is(err, ErrWaiting) && !errors.Is(err, ErrRefused) {
			err = fmt.Errorf("%s: %w", m.Legacy, err)
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return joinErrors(failed...)
}

// replace replaces a queue under its name, from whatever state an earlier run has left.
func (r *Runner) replace(ctx context.Context, m Move) error {
	began, redeclared, gone := time.Now(), 0, 0
	r.note(m, func(t *tally) { t.held = false })
	var disturbed error
	for first := true; ; first = false {
		state, err := r.inspect(ctx)
		if err != nil {
			return err
		}
		if first && isMarked(m.consumerMarks(state), deletionKey) {
			r.note(m, func(t *tally) { t.deleted = true })
		}
		f, differs := m.find(state), r.differs(m, state)
		if f.successor {
			r.note(m, func(t *tally) { t.held = true })
		}
		switch {
		case first && !f.successor && !f.legacy:
			return fmt.Errorf("%w: the queue %s is gone, deleted by another client; run apply", ErrRefused, m.Legacy)
		case !f.successor && f.legacy && !differs && (first || !r.tallyOf(m).held):
			return disturbed // another run has replaced it
		case !first && !f.successor && (!f.legacy || r.tallyOf(m).held):
			disturbed = fmt.Errorf("%w: the hold %s of the queue %s was deleted, and with it what waited there, if anything",
				ErrDisturbed, m.New, m.Legacy)
			err = r.execute(ctx, append(m.makeEnd(f, m.successorEnd()), create(r.hold(m, state))))
		case !f.legacy && r.wanted(m).External:
			return fmt.Errorf("%w: the queue %s is deleted and waits to be declared, and the file has it as external; take that back, and run the command again",
				ErrRefused, m.Legacy)
		case !f.legacy:
			// It was deleted by a run that was stopped. Nothing can be lost: what is routed to it waits in
			// the hold. That run may have had another file, which needed nothing for failures.
			if err = r.prepare(ctx, []Move{m.work()}, m.ahead); err == nil {
				err = r.declareAnew(ctx, m, state, nil)
			}
		case differs:
			err = r.vacate(ctx, m)
			if errors.Is(err, errRedeclared) && redeclared >= mostRedeclared {
				err = fmt.Errorf("%w: a service declares the queue %s with the old arguments, again and again; stop it, or let it declare the queue passively, then run the command again",
					ErrWaiting, m.Legacy)
			}
			if errors.Is(err, ErrWaiting) || errors.Is(err, ErrRefused) {
				// While it waits, consumers would get nothing new.
				r.say("replace: rolling back: %s stays as it is", m.Legacy)
				return errors.Join(disturbed, err, r.restore(ctx, m))
			}
		default:
			if err = r.giveBack(ctx, m, state, r.consumersBack); err == nil {
				r.say("done: %s is as the file has it; %s, %s", m.Legacy, r.replacedAccount(m), text.Took(time.Since(began)))
				return disturbed
			}
		}
		switch {
		case (errors.Is(err, errGone) || errors.Is(err, broker.ErrNotFound)) && gone < mostGone:
			gone++
			err = wait.For(ctx, r.Settle)
		case errors.Is(err, errRedeclared) && redeclared < mostRedeclared:
			redeclared++
			r.say("replace: a service has declared %s again with the old arguments; replacing it once more", m.Legacy)
			err = wait.For(ctx, r.Settle)
		}
		if err != nil {
			return errors.Join(disturbed, err)
		}
	}
}

// noteRoutes notes which messages come to the queue, for checkBound.
func (r *Runner) noteRoutes(m Move, state topology.State) {
	f := m.find(state)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.routes[m.Legacy] = union(r.routes[m.Legacy], union(f.onLegacy, f.onSwitch))
}

// checkBound fails if the queue lacks a binding that it or the switch exchange had in this run:
// then another client has deleted it.
func (r *Runner) checkBound(ctx context.Context, m Move) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	lost := lacking(r.routes[m.Legacy], m.find(state).onLegacy)
	r.mu.Unlock()
	if len(lost) == 0 {
		return nil
	}
	var names []string
	for _, b := range lost {
		names = append(names, b.DisplayName())
	}
	return fmt.Errorf("%w: %s is deleted, and messages do not come to %s by it; run apply, which creates the bindings of the file",
		ErrDisturbed, text.Some(names), m.Legacy)
}

// replacedAccount says how many messages waited in the hold, and how many may be doubled.
func (r *Runner) replacedAccount(m Move) string {
	out := "no message waited in its hold"
	if r.moverOf(m.New, m.Legacy) != nil {
		t := r.tallyOf(m)
		out = "this run moved " + countsText(t.moved, t.doubled)
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
