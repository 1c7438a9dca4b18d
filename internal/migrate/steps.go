package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// cutover takes the steps of all moves, and reads each back from the broker, until no
// step is left.
func (r *Runner) cutover(ctx context.Context, moves []Move) error {
	return r.converge(ctx, func(state topology.State) (changes []plan.Change, err error) {
		for _, m := range moves {
			r.remember(state, m)
			step, err := r.nextStep(m, state)
			if err != nil {
				return nil, err
			}
			if step.Doing != "" {
				r.say("cutover: %s", step.Doing)
			}
			changes = append(changes, step.Changes...)
		}
		return changes, nil
	})
}

// converge reads the broker and writes the changes that next returns, until it returns
// none. An object that disappeared between the two is not a failure, a few times: the
// requests of a run that was killed may still be carried out.
func (r *Runner) converge(ctx context.Context, next func(topology.State) ([]plan.Change, error)) error {
	const tries = 3
	missed := 0
	again := func(err error) error {
		if missed++; errors.Is(err, broker.ErrNotFound) && missed <= tries {
			return nil
		}
		return err
	}
	return apply.Converge(ctx, r.converger(), r.Settle, next, again, r.noteWrite)
}

// nextStep returns the next step of a move. It remembers what the switch exchange is
// bound to, in case it is deleted, and reports what others have changed meanwhile.
func (r *Runner) nextStep(m Move, state topology.State) (cutoverStep, error) {
	if why := m.inexact(state); len(why) > 0 { // a service made such a binding since the check
		return cutoverStep{}, fmt.Errorf("%w:\n  %s", ErrRefused, strings.Join(why, "\n  "))
	}
	if step, err := r.ensureSwitch(m, state); step.Doing != "" || err != nil {
		return step, err
	}
	f := m.find(state)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, looked := r.switches[m.Legacy], time.Now()
	now := switchSeen{bound: union(before.bound, f.onSwitch), used: len(f.onSwitch) > 0, at: looked}
	r.switches[m.Legacy] = now
	if before.used && !f.exchanges[m.switchName()] {
		r.Report("cutover: the switch exchange %s was deleted after %s: the broker dropped the messages that came only to it since, or returned them to their publishers",
			m.switchName(), clock(before.at))
	}
	if f.exchanges[m.switchName()] && !f.legacy && !m.switched(f) {
		r.Report("cutover: the queue %s is gone: the broker dropped the messages that came for it since, or returned them to their publishers",
			m.Legacy)
	}
	step := m.next(state, now.bound)
	if step.Doubled {
		r.rebound[m.Legacy] = true
		since := "some time ago"
		if !before.at.IsZero() {
			since = "after " + clock(before.at)
		}
		r.Report("cutover: the legacy queue %s was bound again %s: until %s, messages that match this binding come to both queues; those that its consumers take are not counted",
			m.Legacy, since, clock(looked))
	}
	return step, r.unbinds(state, step, m.Legacy, "migrate")
}

// rebinding is since when a service binds a queue again and again that messages leave, and when
// this was last seen.
type rebinding struct{ first, last time.Time }

// unbinds fails if a step has to unbind a queue that a service has bound again and again for longer
// than the run waits: each time before the run could have come to its end, for which it also waits
// until the feeders of the queue are empty. What came by the binding is in the queue, and the next
// run of the command moves it. The caller holds r.mu.
func (r *Runner) unbinds(state topology.State, step cutoverStep, queue, command string) error {
	if !step.Unbinds {
		return nil
	}
	quiet, now := r.Idle+leastStuck, time.Now()
	if len(feeders(state, queue)) > 0 {
		quiet += r.Wait
	}
	seen := r.rebinds[queue]
	if now.Sub(seen.last) > quiet {
		seen.first = now
	}
	seen.last = now
	r.rebinds[queue] = seen
	if now.Sub(seen.first) < max(r.Wait, quiet) {
		return nil
	}
	return fmt.Errorf("%w: a service binds the queue %s again and again, so messages still come to it; stop it and run %s again",
		ErrWaiting, queue, command)
}

// switchSeen is what the broker showed of a switch exchange.
type switchSeen struct {
	bound []topology.Binding // what it was bound to, now or before
	used  bool               // it was bound to something
	at    time.Time
}

// clock returns a time of day for messages.
func clock(t time.Time) string { return t.Format("15:04:05.000") }

// ensureSwitch returns a step that makes sure that the switch exchange routes as its
// policy says, and none if that is sure: see topology.Policy.IsPending. If a foreign
// policy is in effect instead, the step overrides it.
func (r *Runner) ensureSwitch(m Move, state topology.State) (cutoverStep, error) {
	const most = 5
	f, inEffect := m.find(state), state.ExchangePolicies[m.switchName()]
	if !f.exchanges[m.switchName()] || f.policy == nil || !f.policy.IsPending() && inEffect == m.policy() {
		return cutoverStep{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.overrides[m.Legacy]++; r.overrides[m.Legacy] > most {
		return cutoverStep{},
			fmt.Errorf("%w: the policy %q does not take effect on the exchange %s, though it has the highest priority (in effect is %q); check whether another program writes policies there, and run the command again",
				ErrRefused, m.policy(), m.switchName(), inEffect)
	}
	leadsTo, _ := f.policy.Definition[topology.ArgAlternateExchange].(string)
	doing := "renew the policy of the switch exchange of " + m.Legacy
	if inEffect != m.policy() && inEffect != "" {
		doing = fmt.Sprintf("override the policy %q, which is in effect on the switch exchange of %s", inEffect, m.Legacy)
	}
	return cutoverStep{Doing: doing, Changes: []plan.Change{m.pointSwitch(state, f, leadsTo)}}, nil
}

// execute carries out changes, in the order of their phases, and lets the broker settle:
// other nodes see a change a little later.
func (r *Runner) execute(ctx context.Context, changes []plan.Change) error {
	if err := r.carryOut(ctx, changes); err != nil || len(changes) == 0 {
		return err
	}
	return wait.For(ctx, r.Settle)
}

func (r *Runner) carryOut(ctx context.Context, changes []plan.Change) error {
	if len(changes) == 0 {
		return nil
	}
	slices.SortStableFunc(changes, func(a, b plan.Change) int { return int(a.Phase - b.Phase) })
	return apply.Execute(ctx, gated{r.Management, r}, plan.Plan{Changes: changes}, r.noteWrite)
}

// prepare carries out what preparation returns for moves and the broker as it is now, after adapt.
// Queues share what it creates, so they prepare one at a time: a queue that is just being declared
// is listed, and if RabbitMQ fails to declare it (541), it vanishes with the bindings that it got
// meanwhile. Those of another queue would not be restored, and its failures would be unroutable.
func (r *Runner) prepare(ctx context.Context, moves []Move, adapt func(*plan.Plan)) error {
	if changed, err := r.prepareAlone(ctx, moves, adapt); err != nil || !changed {
		return err
	}
	return wait.For(ctx, r.Settle)
}

func (r *Runner) prepareAlone(ctx context.Context, moves []Move, adapt func(*plan.Plan)) (changed bool, err error) {
	r.preparing.Lock()
	defer r.preparing.Unlock()
	state, err := r.inspect(ctx)
	if err != nil {
		return false, err
	}
	p := preparation(r.Topology, state, moves)
	adapt(&p)
	return len(p.Changes) > 0, r.carryOut(ctx, p.Changes)
}

// declaredAtOnce is how many quorum queues a run declares at a time. More at a time take longer,
// and a busy node fails if one takes 5 seconds.
const declaredAtOnce = 2

// gated carries out changes as a run may: few queues are declared at a time.
type gated struct {
	*management.Client

	runner *Runner
}

// Apply implements apply.Applier.
func (g gated) Apply(ctx context.Context, c plan.Change) error {
	defer g.runner.gate(c)()
	return g.Client.Apply(ctx, c)
}

// gate waits until a change may be carried out. leave must be called after it.
func (r *Runner) gate(c plan.Change) (leave func()) {
	if q, isQueue := c.After.(topology.Queue); !isQueue || q.Type() != topology.Quorum {
		return func() {}
	}
	r.mu.Lock()
	if r.declaring == nil {
		r.declaring = make(chan struct{}, declaredAtOnce)
	}
	declaring := r.declaring
	r.mu.Unlock()
	declaring <- struct{}{}
	return func() { <-declaring }
}

// mostTrouble is how long a run tries again what the broker fails to do for one queue, and how long
// it goes on while the broker does nothing else for it either.
const mostTrouble = 2 * time.Minute

// patiently calls work, and again if the broker fails at it (541), as a busy node does with quorum
// queues, or does not answer, as while it is too slow or its node starts again. work must be a
// function of the state of the broker, as what failed may be done, or done by half. Nothing can
// meet what work does the next time but a declaration of what exists then: a deletion, a binding or
// an unbinding without an answer ends with the connection that holds the lock, see
// [management.Client.UseAMQP].
func (r *Runner) patiently(ctx context.Context, m Move, work func() error) error {
	var since time.Time
	for pause := time.Second; ; pause = min(2*pause, 10*time.Second) {
		err := work()
		since = firstOf(since, time.Now())
		if r.failing(passes(err)) || time.Since(since) >= mostTrouble || r.Parallel > 0 && r.Management.LockLost() {
			return err
		}
		r.say("%s: trying again in %s: %v", m.Legacy, text.Duration(pause), err)
		if wait.For(ctx, pause) != nil || !r.regainLock(ctx) {
			return err
		}
	}
}

// passes reports whether the same may succeed later. What a run must say in the end, or has rolled
// back, does not, whatever its cause.
func passes(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	ends := is(ErrWaiting) || is(ErrRefused) || is(ErrDisturbed) || is(ErrVanished)
	return !ends && (is(broker.ErrInternal) || is(broker.ErrUnreachable))
}

// regainLock reports whether the run holds its lock. If the connection that held it has ended,
// regainLock takes it again, and waits while the broker cannot be reached.
func (r *Runner) regainLock(ctx context.Context) bool {
	for began := time.Now(); r.Management.LockLost(); {
		if r.Relock == nil {
			return false
		}
		err := r.Relock(ctx)
		if err == nil {
			r.say("the connection with the lock has ended; the lock is taken again")
			return true
		}
		if !errors.Is(err, broker.ErrUnreachable) || time.Since(began) >= mostTrouble || wait.For(ctx, time.Second) != nil {
			r.say("the connection with the lock has ended, and it cannot be taken again: %v", err)
			return false
		}
	}
	return true
}

// failing notes whether the broker has failed at a queue. It reports whether not to try again.
func (r *Runner) failing(failed bool) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !failed {
		r.trouble = time.Time{}
		return true
	}
	r.trouble = firstOf(r.trouble, time.Now())
	return time.Since(r.trouble) >= mostTrouble
}
