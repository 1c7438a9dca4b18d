// Package cmd is the command line: flags, wiring, the choice of the output and
// the exit code. One file holds one command, which makes one call and prints the
// result. Engines, loops and protocols are in the packages that it imports.
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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/verify"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Exit codes. Scripts rely on them. The comments are the table of docs/reference.md.
const (
	// done; plan: also if there are changes
	exitDone = 0
	// failed, and nothing was written; try: something differs from what trace predicts; validate
	// --strict: there are warnings
	exitFailed = 1
	// plan --detailed-exitcode: there are changes or drift; migrate, and apply that replaces a queue:
	// it waits for publishers, consumers or tiers; run it again; desk: stopped with messages left in
	// the hold of a run; audit: there are findings as bad as --fail-on; trace: the message is lost;
	// verify: there are problems; status --exit-code: there is a problem
	exitPending = 2
	// refused, and nothing was written or moved: a change is blocked, or needs an --allow; with
	// --skip-blocked the rest was done; desk: it would do harm, or --expect names another number
	exitBlocked = 3
	// some changes were written, or messages moved, but not all; run it again
	exitPartial = 4
	// desk, peek: a look did not reach all messages of the queue, so that others may match
	exitUnreached = 5
	// wrong flags, arguments or environment variables
	exitUsage = 64
	// interrupted before the first write
	exitInterrupted = 130
)

// errPending is the error of a plan with changes under --detailed-exitcode, and of a status with
// problems under --exit-code. It is an answer and prints nothing.
var errPending = errors.New("changes are pending")

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs the program with the arguments after its name and returns its exit
// code. The first SIGINT or SIGTERM asks the command to stop, the second kills.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a signal kills the process

	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: os.LookupEnv, environ: os.Environ}
	c, err := a.commandFor(args).ExecuteContextC(ctx)
	code := exitCode(ctx, err)
	switch {
	case code == exitInterrupted && !errors.Is(err, verify.ErrInterrupted):
		fmt.Fprintln(stderr, "dlxctl: interrupted; nothing was written")
	case err != nil:
		report(stderr, c, err)
	}
	return code
}

// CheckArgs returns the error with which Main would refuse these arguments before it runs
// a command: the command or flag does not exist, or does not accept the value or the
// arguments. It runs nothing, and reads neither files nor the environment.
func CheckArgs(args ...string) error {
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard,
		env: func(string) (string, bool) { return "", false },
	}
	root := newRoot(a)
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

// report prints the error of a command for a person.
func report(w io.Writer, c *cobra.Command, err error) {
	if isAnswer(err) {
		return
	}
	if problems, ok := errors.AsType[*spec.Error](err); ok {
		fmt.Fprintln(w, problems)
		fmt.Fprintf(w, "dlxctl: %s\n", problems.Summary())
		return
	}
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = topology.Printable(lines[i]) // it may quote the broker, and names that other teams chose
	}
	fmt.Fprintf(w, "dlxctl: %s\n", strings.Join(lines, "\n"))
	if _, usage := errors.AsType[usageError](err); usage && !strings.Contains(err.Error(), "--help") {
		fmt.Fprintf(w, "run '%s --help' for usage\n", c.CommandPath())
	}
}

// isAnswer reports whether an error is the answer to the question of the command, which the output
// has given already.
func isAnswer(err error) bool {
	return errors.Is(err, errPending) || errors.Is(err, errFindings) || errors.Is(err, errLost) ||
		errors.Is(err, errUnverified)
}

// exitCode is the one place that decides on exit codes.
func exitCode(ctx context.Context, err error) int {
	_, usage := errors.AsType[usageError](err)
	_, unfinished := errors.AsType[*apply.UnfinishedError](err)
	partial, stopped := errors.AsType[*apply.PartialError](err)
	_, part := errors.AsType[*deskPartError](err)
	_, rest := errors.AsType[*deskStopError](err)
	switch {
	case err == nil:
		return exitDone
	case isAnswer(err):
		return exitPending
	case usage || errors.Is(err, broker.ErrURL): // a URL comes from a flag or its variable
		return exitUsage
	case unfinished || part || stopped && partial.Wrote():
		return exitPartial
	case errors.Is(err, plan.ErrBlocked) || errors.Is(err, plan.ErrHazard): // and the rest may wait
		return exitBlocked
	case rest || errors.Is(err, migrate.ErrWaiting):
		return exitPending
	case errors.Is(err, migrate.ErrRefused) || errors.Is(err, desk.ErrRefused):
		return exitBlocked
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, desk.ErrUnreached):
		return exitUnreached
	default:
		return exitFailed
	}
}
