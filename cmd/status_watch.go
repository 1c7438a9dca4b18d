package cmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Escape sequences of a terminal.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the alternate screen, without a cursor, long lines cut
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor on
	clearBelow  = "\x1b[J"
)

// statusWatch shows the status again and again: on a terminal in place, and elsewhere as one block
// after the other.
type statusWatch struct {
	k *statusCommand
	// read reads the brokers once.
	read func(context.Context) ([]status.Report, error)
	// size returns the columns and lines of the terminal.
	size func() (width, height int)
	// inPlace says that stdout is a terminal that can be painted again.
	inPlace bool
	reports []status.Report // of the last look that succeeded
	failed  error           // of the last look; nil if it succeeded
}

func newStatusWatch(looks *statusLooks) *statusWatch {
	a := looks.k.app
	return &statusWatch{
		k: looks.k, read: looks.look, size: a.screenSize,
		inPlace: terminal(a.stdout) && !a.dumb() && a.output == "text",
	}
}

// run shows the status until ctx ends. A first look that fails ends it: the address or the password
// may be wrong. A later one does not: it is during an outage that a person watches.
func (w *statusWatch) run(ctx context.Context) error {
	if err := w.look(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	stdout := w.k.app.stdout
	if w.inPlace {
		fmt.Fprint(stdout, enterScreen)
		defer func() { // what was shown last stays on the screen
			fmt.Fprint(stdout, leaveScreen)
			_ = w.k.print(w.reports) // it was shown before
		}()
	}
	for ctx.Err() == nil {
		if err := w.show(); err != nil {
			return err
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
		_ = w.look(ctx) // show shows the error
	}
	return nil
}

// look reads the brokers. If it fails, the reports of the look before stay.
func (w *statusWatch) look(ctx context.Context) error {
	reports, err := w.read(ctx)
	if w.failed = err; err == nil {
		w.reports = reports
	}
	return err
}

// wait waits for the next look. A terminal whose size changes is painted again at once.
func (w *statusWatch) wait(ctx context.Context) error {
	next := time.NewTimer(w.k.interval)
	defer next.Stop()
	resized := time.NewTicker(250 * time.Millisecond)
	defer resized.Stop()
	width, height := w.size()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			return nil
		case <-resized.C:
			if x, y := w.size(); x != width || y != height {
				width, height = x, y
				if err := w.show(); err != nil {
					return err
				}
			}
		}
	}
}

// show writes the last reports, or repaints the screen with them.
func (w *statusWatch) show() error {
	a := w.k.app
	if w.inPlace {
		_, err := io.WriteString(a.stdout, w.screen())
		return err
	}
	if w.failed != nil {
		_, err := fmt.Fprintln(a.stderr, time.Now().Format(time.DateTime)+" "+w.failure())
		return err
	}
	if err := w.k.write(a.stdout, w.reports, 0, 0); err != nil || a.output == "json" {
		return err
	}
	_, err := fmt.Fprintln(a.stdout)
	return err
}

// failure says that the last look failed, and why.
func (w *statusWatch) failure() string {
	return "cannot read the broker, trying again: " + topology.Printable(strings.Join(strings.Fields(w.failed.Error()), " "))
}

// screen returns what paints the reports over what a terminal shows.
func (w *statusWatch) screen() string {
	width, height := w.size()
	failure := ""
	if w.failed != nil {
		failure = strings.Join(text.Wrap(w.failure(), width), "\n") + "\n"
	}
	lines := w.k.fitted(w.reports, failure, width, height)
	if height > 0 && len(lines) > height {
		left := len(lines) - height + 1
		lines = append(lines[:max(0, height-1)], fmt.Sprintf("%d more lines do not fit on this screen", left))
	}
	return cursorHome + strings.Join(lines, clearLine+"\r\n") + clearLine + clearBelow
}
