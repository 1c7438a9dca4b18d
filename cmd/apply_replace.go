package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
)

// replaceWait is how long an apply without --wait waits for the consumers of a queue that it
// replaces, as migrate does.
const replaceWait = 10 * time.Minute

// replacer lets an apply replace queues under their names, just as migrate does.
type replacer struct {
	migrateCommand

	session *apply.Session
	// begin is called before the first write.
	begin func(context.Context)
	// onward is the command line that goes on with the apply.
	onward string
	// skips says that what is refused does not stop the rest.
	skips   bool
	command *cobra.Command
}

// replacer returns what replaces queues in a run of apply.
func (k *applyCommand) replacer(ctx context.Context, r *apply.Runner, show *reporter) *replacer {
	out := &replacer{
		migrateCommand: migrateCommand{app: k.app, lock: k.lock, yes: k.yes}, session: r.Session,
		onward: k.onward(r.Saved), skips: r.Options.SkipBlocked, command: k.command,
		begin: func(ctx context.Context) {
			show.forget()
			show.forget = k.app.announceStop(ctx)
		},
	}
	out.runner = migrate.Runner{
		Allow: r.Options.Allow, Settle: k.settle, Wait: replaceWait, Parallel: k.parallel,
	}
	if k.command.Flags().Changed("wait") {
		out.runner.Wait = k.wait
	}
	out.attach(ctx, r.Session, "apply")
	return out
}

// onward returns the command line that goes on with an apply. A saved plan is stale once anything
// is written, so that the files are applied that it was made from.
func (k *applyCommand) onward(saved *planview.Saved) string {
	var more []string
	if k.yes {
		more = append(more, "--yes")
	}
	if saved == nil {
		return commandLine(k.command, nil, more...)
	}
	if saved.Options.Prune {
		more = append(more, "--prune")
	}
	if saved.Options.SkipBlocked {
		more = append(more, "--skip-blocked")
	}
	line := []string{shellLine(k.command, append([]string{"apply"}, more...)...)}
	for _, a := range saved.Options.Allow { // with those of this command line
		line = append(line, a.Flag())
	}
	return strings.Join(line, " ")
}

// Check implements apply.Replacer. As for other changes, one queue that is refused stops all,
// unless --skip-blocked is given.
func (r *replacer) Check(ctx context.Context, queues []string) error {
	r.runner.Legacy = queues
	err := r.runner.Check(ctx)
	switch {
	case errors.Is(err, migrate.ErrRefused) && r.skips:
		return nil
	case errors.Is(err, migrate.ErrRefused):
		return fmt.Errorf("%w\nnothing was written", err)
	default:
		return err
	}
}

// Replace implements apply.Replacer.
func (r *replacer) Replace(ctx context.Context, queues []string, wrote bool) error {
	r.runner.Legacy = queues
	r.begin(ctx)
	return r.carryOut(ctx, r.session, migrateAction{
		run: r.runner.Run, wrote: wrote, skips: r.skips,
		onward: "to continue: " + r.onward,
		back:   func() string { return r.backLine(r.command, queues) },
	})
}

// ask asks before an apply makes the changes of a plan, some of which may replace queues under
// their names.
func (k *applyCommand) ask(ctx context.Context, p plan.Plan) error {
	question := k.question
	if replaced := p.Replacements(p.Allow); len(replaced) > 0 {
		question = replaceQuestion(replaced)
		if slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return !c.ReplacesQueue() }) {
			question = "apply these changes, and " + question
		}
	}
	return k.app.ask(ctx, question)
}
