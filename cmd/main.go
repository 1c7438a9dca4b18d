// Package cmd is the command line: flags, wiring, the choice of the output and
// the exit code. One file holds one command. What the commands do stands in
// the packages below; nothing here knows how a broker works.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// Exit codes. Scripts rely on them. The comments are the table of docs/reference.md.
const (
	exitDone        = 0   // done; plan: also if there are changes
	exitFailed      = 1   // failed, and nothing was written
	exitPending     = 2   // plan --detailed-exitcode: there are changes or drift; migrate: others must act first, then run it again
	exitBlocked     = 3   // refused, and nothing was written: something is blocked, or needs an --allow; with --skip-blocked the rest was done
	exitPartial     = 4   // something was written, but not all; run it again
	exitUsage       = 64  // wrong flags, arguments or environment variables
	exitInterrupted = 130 // interrupted before the first write
)

// errPending is the error of a plan with changes under --detailed-exitcode. It
// is an answer and prints nothing.
var errPending = errors.New("changes are pending")

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// unfinishedError is a failure after the first write.
type unfinishedError struct{ error }

func (e unfinishedError) Unwrap() error { return e.error }

// Main runs the program with the arguments after its name and gives its exit
// code. The first SIGINT or SIGTERM asks the command to stop, the second kills.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a signal has its usual effect

	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: os.LookupEnv, environ: os.Environ}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	switch {
	case code == exitInterrupted:
		fmt.Fprintln(stderr, "dlxctl: interrupted; nothing was written")
	case err != nil:
		report(stderr, err)
	}
	return code
}

// Takes gives the error with which Main would refuse these arguments before it runs a
// command: there is no such command or flag, or it does not take the value or the
// arguments. It runs nothing, and reads neither files nor the environment.
func Takes(args ...string) error {
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, env: func(string) (string, bool) { return "", false }}
	root := a.root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	switch err := c.ParseFlags(rest); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return c.FlagErrorFunc()(c, err)
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	return a.checkGlobals(c)
}

// report prints err as a person needs it.
func report(w io.Writer, err error) {
	if errors.Is(err, errPending) {
		return
	}
	if problems, ok := errors.AsType[*spec.Error](err); ok {
		fmt.Fprintln(w, problems)
		fmt.Fprintf(w, "dlxctl: %s\n", problems.Summary())
		return
	}
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = topology.Printable(lines[i]) // the broker's words and others' names may be in it
	}
	fmt.Fprintf(w, "dlxctl: %s\n", strings.Join(lines, "\n"))
	var usage usageError
	if errors.As(err, &usage) && !strings.Contains(err.Error(), "--help") {
		fmt.Fprintln(w, "run 'dlxctl --help' or 'dlxctl COMMAND --help' for usage")
	}
}

// exitCode is the one place that decides on exit codes.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var partial *plan.PartialError
	var unfinished unfinishedError
	var waiting waitingError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errPending):
		return exitPending
	case errors.As(err, &usage) || errors.Is(err, broker.ErrURL): // a URL comes from a flag or its variable
		return exitUsage
	case errors.As(err, &waiting):
		return exitPending
	case errors.As(err, &unfinished):
		return exitPartial
	case errors.As(err, &partial) && partial.Wrote():
		return exitPartial
	case errors.Is(err, plan.ErrBlocked) || errors.Is(err, plan.ErrHazard) || errors.Is(err, migrate.ErrRefused):
		return exitBlocked
	case ctx.Err() != nil:
		return exitInterrupted
	default:
		return exitFailed
	}
}
