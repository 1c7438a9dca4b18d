package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// runWatch shows, on stderr, what a run does: how far it is, and a line for each thing that a
// person should know at once.
type runWatch struct {
	app    *app
	verb   string
	forget func() bool // the notice of Ctrl-C
	bar    *progress
	last   desk.Progress
	// pausing is the reason of the pause that was said last, up to its first number, and paused when.
	pausing string
	paused  time.Time
}

// watchRun shows the progress of a run until finish.
func (a *app) watchRun(ctx context.Context, action desk.Action) *runWatch {
	return &runWatch{
		app: a, verb: action.Kind().Done,
		forget: context.AfterFunc(ctx, func() {
			fmt.Fprintln(a.stderr, "stopping after the messages in flight; a second signal kills")
		}),
	}
}

func (w *runWatch) progress(p desk.Progress) {
	if w.bar == nil || p.Phase != w.last.Phase {
		w.endBar()
		verb := w.verb
		if p.Phase == desk.Taking {
			verb = "took"
		}
		w.bar = w.app.newProgress(verb, "messages", p.Chosen)
	}
	w.bar.set(p.Done)
	if p.Run != w.last.Run {
		w.say("run %s", p.Run)
	}
	if p.Batch > w.last.Batch && w.last.Batch > 0 {
		w.say("%s", batchEnd(w.last, p))
	}
	if p.FailedAgain > w.last.FailedAgain {
		w.say("failed again: %d so far; the last one: %s", p.FailedAgain, p.LastFailure)
	}
	if p.Pausing != w.last.Pausing && w.newPause(p.Pausing) {
		w.say("pausing: %s", p.Pausing)
	}
	w.last = p
}

// batchEnd says how a batch of the ramp ended, of which before was the last progress.
func batchEnd(before, now desk.Progress) string {
	switch {
	case now.FailedAgain > 0: // fewer than the run tolerates
		return fmt.Sprintf("batch %d sent: %d sent, %d failed again so far", before.Batch, before.Done, now.FailedAgain)
	case len(now.Unheard) > 0:
		return fmt.Sprintf("batch %d sent: %d sent; failures are not heard in %s",
			before.Batch, before.Done, strings.Join(now.Unheard, ", "))
	default:
		return fmt.Sprintf("batch %d succeeded: %d sent, none failed again", before.Batch, before.Done)
	}
}

// newPause reports whether to say why the run pauses: a reason that differs from the one before in
// its numbers only is said again after a while.
func (w *runWatch) newPause(why string) bool {
	kind := why
	if i := strings.IndexAny(why, "0123456789"); i >= 0 {
		kind = why[:i]
	}
	if why == "" || kind == w.pausing && time.Since(w.paused) < lineEvery {
		return false
	}
	w.pausing, w.paused = kind, time.Now()
	return true
}

// say prints a line.
func (w *runWatch) say(format string, args ...any) {
	write := func() { fmt.Fprintln(w.app.stderr, topology.Printable(fmt.Sprintf(format, args...))) }
	if w.bar == nil {
		write()
		return
	}
	w.bar.above(write)
}

// endBar ends the progress of a phase.
func (w *runWatch) endBar() {
	if w.bar != nil {
		w.bar.finish()
	}
	w.bar = nil
}

// finish ends the output.
func (w *runWatch) finish() {
	w.endBar()
	w.forget()
}
