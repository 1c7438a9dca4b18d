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
	write := func() { fmt.Fprintln(o.app.stdout, topology.Printable(fmt.Sprintf(format, args...))) }
	if o.bar == nil {
		write()
		return
	}
	o.bar.above(write)
}

// progress shows how many of the messages are moved.
func (o *migrateOutput) progress(messages int64) (step, finish func()) {
	bar := o.app.newMessageProgress("moved", int(messages))
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
	lines = append(lines, done...)
	return errors.New(strings.Join(append(lines, action.onward, action.back), "\n"))
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
