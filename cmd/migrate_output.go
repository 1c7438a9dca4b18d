package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// migrateOutput prints what a migration does: lines on stdout, and on stderr how many messages are
// moved.
type migrateOutput struct {
	app *app

	mu  sync.Mutex
	bar *progress // nil: no messages are being moved
}

// report prints a line.
func (o *migrateOutput) report(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.app.stdout
	if o.app.output != "text" {
		w = o.app.stderr // the document is alone on stdout
	}
	write := func() { fmt.Fprintln(w, topology.Printable(fmt.Sprintf(format, args...))) }
	if o.bar == nil {
		write()
		return
	}
	o.bar.above(write)
}

// progress shows how many of the messages are moved.
func (o *migrateOutput) progress(messages int64) (step, finish func()) {
	return o.with(o.app.newMessageProgress(int(messages)))
}

// queueProgress shows how many of the queues are at their end.
func (o *migrateOutput) queueProgress(queues int) (step, finish func()) {
	return o.with(o.app.newProgress("ended", "queues", queues))
}

// with shows a bar until finish is called.
func (o *migrateOutput) with(bar *progress) (step, finish func()) {
	o.show(bar)
	return bar.step, func() {
		o.show(nil)
		bar.finish()
	}
}

// show sets what report must not write into.
func (o *migrateOutput) show(bar *progress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bar = bar
}

// afterInterrupt is how long an interrupted run may look where it stands.
const afterInterrupt = 10 * time.Second

// interrupted returns the error of a run that a signal ended: what is done, what is left, and the
// commands that continue and go back.
func (k *migrateCommand) interrupted(ctx context.Context, cause error, action migrateAction) error {
	lines := []string{"interrupted, and no message is lost"}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), afterInterrupt)
	defer stop()
	done, err := k.runner.Interrupted(ctx, cause)
	if err != nil {
		done = []string{fmt.Sprintf("'dlxctl migrate status' shows what is done; it cannot be read now: %s", err)}
	}
	lines = append(append(lines, done...), action.onward)
	if back := action.back(); back != "" {
		lines = append(lines, back)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// backLine returns how to roll back the queues of a run: of one that treats each by itself, those
// that are in the middle. Empty: none is.
func (k *migrateCommand) backLine(c *cobra.Command, legacy []string) string {
	if results := k.runner.Results(); len(results) > 0 {
		legacy = nil
		for _, r := range results {
			if r.Outcome == migrate.Stopped {
				legacy = append(legacy, r.Queue)
			}
		}
		if len(legacy) == 0 {
			return ""
		}
	}
	return "to roll back: " + shellLine(c, slices.Concat([]string{"migrate", "abort"}, legacy, k.consent())...)
}

// explainEach writes what became of each queue of a run, and returns the error of its worst result.
func (k *migrateCommand) explainEach(ctx context.Context, s *apply.Session, err error, took time.Duration,
	action migrateAction,
) error {
	interrupted := ctx.Err() != nil
	if interrupted {
		within, stop := context.WithTimeout(context.WithoutCancel(ctx), afterInterrupt)
		defer stop()
		_ = k.runner.Unbegun(within) // otherwise they are shown as stopped, which says less
	}
	if werr := k.writeResults(s, took); werr != nil {
		return errors.Join(werr, err)
	}
	onlyWaiting := !slices.ContainsFunc(k.runner.Results(), func(r migrate.Result) bool {
		return r.Outcome != migrate.Done && r.Outcome != migrate.Waiting && (r.Outcome != migrate.Refused || !action.skips)
	})
	switch {
	case err == nil, onlyWaiting && !interrupted:
		return err
	case interrupted && k.wrote(action):
		return &apply.UnfinishedError{Err: k.interrupted(ctx, err, action)}
	case k.wrote(action):
		return &apply.UnfinishedError{Err: err}
	default:
		return err
	}
}

// writeResults writes what became of each queue of a run.
func (k *migrateCommand) writeResults(s *apply.Session, took time.Duration) error {
	switch k.app.output {
	case "text":
		return migrate.WriteResults(k.app.stdout, k.runner.Results(), took, k.app.width())
	case "markdown": // of apply: a plan is on stdout
		return migrate.WriteResults(k.app.stderr, k.runner.Results(), took, 0)
	}
	return jsondoc.Write(k.app.stdout, migrate.ResultDocument{
		Version: 1, Topology: s.Topology.Name, VHost: s.Endpoint.VHost, Queues: k.runner.Results(),
	})
}

// forwardLine returns the command line that migrates legacy, from a subcommand of migrate.
func (k *migrateCommand) forwardLine(c *cobra.Command, legacy []string) string {
	words := append([]string{"migrate"}, k.consent()...)
	if namesSubcommand(c.Parent(), legacy) {
		return shellLine(c, words...) + behindDashes(legacy)
	}
	return shellLine(c, slices.Insert(words, 1, legacy...)...)
}

// consent returns --yes if this run had it.
func (k *migrateCommand) consent() []string {
	if k.yes {
		return []string{"--yes"}
	}
	return nil
}
