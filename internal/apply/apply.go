// Package apply makes a broker match a topology. [Session] is the access to the
// broker that every command shares: it inspects, plans and holds the lock of the
// topology. [Runner] carries out a plan from the lock to the verified end.
//
// What a run guarantees:
//
//   - Only one run per topology writes at a time. The lock is an exclusive queue: the
//     broker frees it when the process dies.
//   - Nothing is written or moved before the whole plan is shown, has no blocked change and no
//     hazard without consent (or skips those), the user has every right that it needs,
//     and the reporter has confirmed.
//   - The changes are carried out in an order in which every message has somewhere to go
//     at each moment, and a queue is deleted only when it is proved empty or its
//     messages may be lost by consent. A retry or failed queue that is not empty stays
//     for a later run, with the bindings that route its messages.
//   - A run that is stopped or killed at any moment loses nothing: the next run plans from
//     what the broker holds and continues. An error after the first write is an
//     [UnfinishedError] or a [PartialError].
//   - A run that ends without an error has read the broker again and found nothing left
//     to do, except skipped changes, and retired tiers that are not empty yet.
package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// UnfinishedError is a failure after the first write: run the command again.
type UnfinishedError struct{ Err error }

// Error returns the text of the failure.
func (e *UnfinishedError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// Reporter shows how a run proceeds, and asks for consent.
type Reporter interface {
	// Planned shows the plan, before anything is refused.
	Planned(plan.Plan) error
	// Confirm asks for consent, before the first write. An error ends the run.
	Confirm(ctx context.Context) error
	// Progress announces that so many changes are about to be written. step is called
	// after each, and finish at the end.
	Progress(ctx context.Context, changes int) (step, finish func())
	// Result shows a line about finished changes.
	Result(line string)
	// Unprocessed shows, after the last write, which failed queues no processor consumes: none, as
	// a rule. It is not called if nothing was written: the plan of Planned says it.
	Unprocessed(list []plan.Unprocessed)
	// Notice shows a line about what the run waits for or skips.
	Notice(line string)
}

// Replacer replaces queues under their names. Package migrate does that, which stands above this
// one.
type Replacer interface {
	// Check fails if one of the queues cannot be replaced, or if the user lacks a right. It writes
	// nothing.
	Check(ctx context.Context, queues []string) error
	// Replace replaces the queues, or goes on with that. Its error concerns some of them: the others
	// are replaced. wrote says that the run has written something before.
	Replace(ctx context.Context, queues []string, wrote bool) error
}

// Runner is one run of apply.
type Runner struct {
	Session  *Session
	Reporter Reporter
	Options  plan.Options
	// Saved is the saved plan to carry out: the run is refused if the broker has changed
	// since. Nil: the plan that is made now.
	Saved *planview.Saved
	// Asks says that Confirm asks a person, who may take long: then the run reads the broker once
	// more, and is refused if a change that was shown is not to be carried out any more.
	Asks bool
	// Settle is the pause between two steps of a changed backoff.
	Settle time.Duration
	// Wait is how long to wait until retired tiers are empty, to delete them. Zero: they
	// stay for a later run.
	Wait time.Duration
	// Replacer replaces queues under their names. It may be nil for a run that wants no queue.
	Replacer Replacer

	skips     bool // some changes are blocked or not allowed, and the others are carried out
	confirmed bool // the reporter has consented, and the user has the rights
	done      map[plan.Action]int
	moved     int64                 // messages of retired failed queues
	last      plan.Plan             // of the last read
	routes    map[string]bool       // the addresses of failures at the last read: true for dead letters at once
	kept      map[topology.Key]bool // what the run was to delete and has not
	refusal   *refusal              // why the last write has kept a queue; nil if it has not
}

// command is the name of the command that runs r, for advice.
func (r *Runner) command() string {
	if r.Options.Destroy {
		return "destroy"
	}
	return "apply"
}

// Run plans, shows the plan, asks for consent, writes, and verifies the result.
// The package comment states what it guarantees.
func (r *Runner) Run(ctx context.Context) error {
	r.done, r.kept = map[plan.Action]int{}, map[topology.Key]bool{}
	p, err := r.plan(ctx)
	if err != nil {
		return err
	}
	if r.Saved != nil {
		if err := r.Saved.Check(p); err != nil {
			return err
		}
	}
	if err := r.Reporter.Planned(p); err != nil {
		return err
	}
	refused := plan.Check(p, r.Options.Allow)
	if refused != nil && !r.Options.SkipBlocked {
		return refused
	}
	r.skips = refused != nil
	r.Options.Allow = p.Narrowed(r.Options.Allow) // what later plans add was not shown
	todo, replaced := plan.Allowed(p, r.Options.Allow), p.Replacements(r.Options.Allow)
	if !todo.Empty() || len(replaced) > 0 || r.Wait > 0 && len(todo.Retiring) > 0 {
		if err := r.confirm(ctx, p, replaced); err != nil {
			return err
		}
	}
	if !todo.Empty() {
		if err := r.write(ctx, todo); err != nil {
			return err
		}
	}
	var unreplaced error
	if len(replaced) > 0 {
		unreplaced = r.Replacer.Replace(ctx, replaced, len(r.done) > 0)
		if unreplaced != nil && ctx.Err() != nil {
			return unreplaced
		}
		if p, todo, err = r.writeRest(ctx); err != nil {
			return errors.Join(unreplaced, err)
		}
	}
	if err := r.handOver(ctx, todo.Retiring); err != nil {
		return errors.Join(unreplaced, err)
	}
	if r.Wait > 0 && r.confirmed { // if not, there was nothing to wait for
		last, err := r.retire(ctx, p)
		if err != nil {
			return errors.Join(unreplaced, err)
		}
		// Messages of the tiers may be in a queue now that is to be deleted as well.
		late := plan.Skipped(last, r.Options.Allow, "the retired tiers are deleted")
		if late != nil && refused == nil {
			return errors.Join(unreplaced, &UnfinishedError{late})
		}
		p = last
	}
	if len(r.done)+len(replaced) > 0 {
		r.Reporter.Unprocessed(r.last.Unprocessed)
	}
	return errors.Join(unreplaced, r.usedMeanwhile(r.lastOfKept()),
		plan.Skipped(plan.Replaced(p, r.Options.Allow), r.Options.Allow, r.summary()))
}

// confirm checks what the run needs beforehand for p and the queues that are replaced, and asks.
func (r *Runner) confirm(ctx context.Context, p plan.Plan, replaced []string) error {
	// What belongs to these queues, such as a new binding, is written after them.
	whole := plan.Allowed(plan.Replaced(p, r.Options.Allow), r.Options.Allow)
	if err := r.Session.CheckRights(ctx, plan.Rights(whole)); err != nil {
		return err
	}
	if len(replaced) > 0 {
		if err := r.Replacer.Check(ctx, replaced); err != nil {
			return err
		}
	}
	if err := r.Reporter.Confirm(ctx); err != nil {
		return err
	}
	r.confirmed = true
	if !r.Asks {
		return nil
	}
	now, err := r.plan(ctx)
	if err != nil {
		return err
	}
	allowed := map[topology.Key]plan.Action{}
	for _, c := range plan.Allowed(now, r.Options.Allow).Changes {
		allowed[keyOf(c)] = c.Action
	}
	// A deletion that needs consent now: a binding that another client has made meanwhile would go
	// with its queue. What a run may do in addition, as a tier is empty now, is no reason to refuse.
	for _, c := range plan.Allowed(p, r.Options.Allow).Changes {
		if allowed[keyOf(c)] != c.Action {
			return fmt.Errorf("the broker has changed since the plan was shown: %s %s %s is not possible, or not needed, any more; nothing was written; run %s again",
				c.Action, c.Kind, text.Name(c.Name), r.command())
		}
	}
	return nil
}

// writeRest carries out what is left once queues were replaced: what belongs to them, and what had
// to stay for them. It returns the plan, and its part that may be carried out.
func (r *Runner) writeRest(ctx context.Context) (p, todo plan.Plan, err error) {
	if p, err = r.plan(ctx); err != nil {
		return p, todo, &UnfinishedError{err}
	}
	if todo = plan.Allowed(p, r.Options.Allow); !todo.Empty() {
		if err := r.write(ctx, todo); err != nil {
			return p, todo, &UnfinishedError{err}
		}
	}
	if late := plan.Check(p, r.Options.Allow); late != nil && !r.skips {
		return p, todo, unfinished("what belongs to the replaced queues is left: %w", late)
	}
	return p, todo, nil
}

func unfinished(format string, args ...any) error {
	return &UnfinishedError{fmt.Errorf(format, args...)}
}

// plan reads the broker and compares it with the topology.
func (r *Runner) plan(ctx context.Context) (plan.Plan, error) {
	state, p, err := r.Session.Plan(ctx, nil, r.Options)
	r.last, r.routes = p, map[string]bool{}
	top := r.Session.Topology.Name
	for _, b := range state.Have.Bindings {
		if b.Source == topology.FailedExchangeName(top) {
			dies := b.DestinationType == topology.ToExchange && b.Destination == topology.DeadLetterName(top)
			r.routes[b.Key] = r.routes[b.Key] || dies
		}
	}
	return p, err
}

// write carries out a plan, and reads the broker again to verify it.
func (r *Runner) write(ctx context.Context, p plan.Plan) error {
	done, before := map[plan.Action]int{}, blocked(r.last)
	keeper := tierKeeper{Converger: r.Session.Management, kept: map[topology.Key]bool{}, delays: map[string][]string{}}
	step, finish := r.Reporter.Progress(ctx, len(p.Changes))
	err := ExecuteWithReroutes(ctx, &keeper, r.Session.Topology, p, r.Settle, func(c plan.Change) {
		done[c.Action]++
		step()
	})
	finish()
	if err == nil {
		err = keeper.undelayed(r.Session.Topology)
	}
	if err != nil {
		return err
	}
	done[plan.Delete] -= len(keeper.kept)
	maps.Copy(r.kept, keeper.kept)
	r.refusal = keeper.refusal
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool { return keeper.kept[keyOf(c)] })
	left, err := r.readBack(ctx, p)
	if err != nil && ctx.Err() != nil {
		return unfinished("%s written, but interrupted before verification; run %s again",
			text.Count(len(p.Changes), "change"), r.command())
	}
	if err != nil {
		return unfinished("%s written, but verification failed: %w; run %s again", text.Count(len(p.Changes), "change"),
			err, r.command())
	}
	if !left.Empty() {
		var rest strings.Builder
		if err := planview.WriteText(&rest, left, planview.TextOptions{}); err != nil {
			return err
		}
		return unfinished("%s written, but the broker does not match the topology; another client may be changing it. Run %s again. Remaining changes:\n%s", text.Count(len(p.Changes), "change"), r.command(), rest.String())
	}
	now := blocked(r.last) // another topology may have written at the same time: a lock is for one
	for _, c := range p.Changes {
		if why, is := now[keyOf(c)]; is && before[keyOf(c)] == "" {
			return unfinished("%s written, and %s %s is blocked now: %s; then run %s again",
				text.Count(len(p.Changes), "change"), c.Kind, text.Name(c.Name), why, r.command())
		}
	}
	for a, n := range done {
		r.done[a] += n
	}
	if r.refusal != nil && r.Wait == 0 && r.usedMeanwhile(r.lastOfKept()) == nil { // else the end of the run says it
		r.Reporter.Notice(r.refusal.String())
	}
	if len(p.Changes) > 0 {
		rest := "verified"
		if r.skips {
			rest = "verified except the skipped changes"
		} else if r.usedMeanwhile(r.lastOfKept()) != nil {
			rest = "verified except what was used meanwhile"
		}
		r.Reporter.Result(fmt.Sprintf("done: %s, %s%s", summary(done), rest, r.later(left)))
	}
	return nil
}

// blocked returns why changes of a plan are blocked, by object.
func blocked(p plan.Plan) map[topology.Key]string {
	out := map[topology.Key]string{}
	for _, c := range p.Changes {
		if c.Action == plan.Blocked {
			out[keyOf(c)] = c.Reason
		}
	}
	return out
}

// readBack returns the changes of p that the broker does not show. It writes policies a few
// more times: what the broker still does for a run that was killed, or for another client,
// may undo what was written.
func (r *Runner) readBack(ctx context.Context, p plan.Plan) (plan.Plan, error) {
	const tries = 3
	for try := 0; ; try++ {
		left, err := r.plan(ctx)
		if err != nil {
			return left, err
		}
		left = plan.Later(p, plan.Allowed(left, r.Options.Allow))
		policies := left
		policies.Changes = slices.DeleteFunc(slices.Clone(left.Changes), func(c plan.Change) bool {
			return c.Kind != topology.KindPolicy
		})
		if policies.Empty() || try == tries {
			return left, nil
		}
		if err := Execute(ctx, r.Session.Management, policies, func(plan.Change) {}); err != nil {
			return left, err
		}
	}
}

// later returns the next step for tiers and previous dead-letter queues that are not empty yet. A
// run that waits for the tiers takes that step itself, and says so.
func (r *Runner) later(left plan.Plan) string {
	retiring, or := slices.Concat(left.Retiring, left.RetiringDead), ", or pass --wait"
	if r.Wait > 0 { // it waits for tiers, and not for dead letters
		retiring = left.RetiringDead
	}
	if len(left.RetiringDead) > 0 {
		or = ""
	}
	if len(retiring) == 0 {
		return ""
	}
	unread := ""
	if slices.ContainsFunc(retiring, func(name string) bool { return slices.Contains(left.StillRead, name) }) {
		unread = " and no processor with an older file reads " + text.Choose(len(retiring), "it", "them")
	}
	return fmt.Sprintf(". To delete %s once %s empty%s, run %s again%s", strings.Join(retiring, ", "),
		text.Choose(len(retiring), "it is", "they are"), unread, r.command(), or)
}

// summary counts the changes: "3 created, 1 deleted".
func summary(done map[plan.Action]int) string {
	words := map[plan.Action]string{
		plan.Create: "created", plan.Update: "updated", plan.Replace: "replaced", plan.Delete: "deleted",
		plan.Migrate: "created for a migration",
	}
	var parts []string
	for _, a := range plan.Actions() {
		if n := done[a]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words[a]))
		}
	}
	return strings.Join(parts, ", ")
}

// summary counts the changes of the run, and the messages that it has moved.
func (r *Runner) summary() string {
	parts := []string{summary(r.done)}
	if r.moved > 0 {
		parts = append(parts, text.Count(r.moved, "message")+" moved")
	}
	return strings.TrimPrefix(strings.Join(parts, ", "), ", ")
}
