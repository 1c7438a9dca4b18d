package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
)

// What continues a run that stopped.
const (
	byResume = "resume"
	byReturn = "return"
)

// finishRun writes how a run ended, and returns the error that says what to do next. by is the
// command that continues the run, and cause the error with which it ended.
func (a *app) finishRun(c *cobra.Command, by string, action desk.Action, r desk.Result, cause error) error {
	if _, drops := errors.AsType[desk.DroppingError](cause); drops {
		return acceptLoss(c, cause)
	}
	switch {
	case cause != nil && r.Run == "":
		return cause // nothing was moved
	case errors.Is(cause, desk.ErrRefused) && r.Left == 0:
		return cause
	case errors.Is(cause, desk.ErrRefused): // once it had taken some, or when it was resumed
		return stepsError{cause, nextSteps(c, by, r)}
	}
	interrupted := c.Context().Err() != nil
	if interrupted && errors.Is(cause, c.Context().Err()) {
		cause = nil
	}
	if interrupted && r.Stopped == "" && r.Left > 0 {
		r.Stopped = "interrupted"
	}
	var err error
	if a.output == "json" {
		r.Action = action // a run that ended before its list was read does not know it
		err = jsondoc.Write(a.stdout, r)
	} else {
		err = desk.WriteResult(a.stdout, action, r)
	}
	switch next := nextSteps(c, by, r); {
	case err != nil:
		return err
	case cause != nil:
		return &deskPartError{stepsError{cause, next}}
	case r.Stopped != "" || r.Left > 0:
		why := cmp.Or(r.Stopped, "the run ended before all was sent")
		return &deskStopError{stepsError{fmt.Errorf("stopped: %s", why), next}}
	case r.Missing > 0:
		return &deskPartError{stepsError{err: fmt.Errorf("%s no longer in the queue: another program took %s, or %s expired",
			text.Choose(r.Missing, "1 chosen message is", fmt.Sprintf("%d chosen messages are", r.Missing)),
			text.Choose(r.Missing, "it", "them"), text.Choose(r.Missing, "it", "they"))}}
	default:
		return nil
	}
}

// nextSteps returns the commands that say what failed again, and that continue or undo a run.
func nextSteps(c *cobra.Command, by string, r desk.Result) []string {
	if r.Ended && r.LeftInQueue == 0 {
		return nil
	}
	var steps []string
	if r.FailedAgain > 0 {
		steps = append(steps, "to see what failed again, once it is a dead letter: "+
			deskLine(c, "list", r.Queue, "--where", fmt.Sprintf("run == %q", r.Run)))
	}
	if r.Ended {
		return append(steps, stepWithoutHold(c, r))
	}
	if r.Gone > 0 {
		return append(steps, "to see what its hold has: "+deskLine(c, "run", "list"),
			"to end the run, if that is nothing: "+deskLine(c, "run", by, r.Run, "--yes"))
	}
	if r.Moved > 0 && r.Left == 0 {
		return append(steps, "all is moved; to remove its empty hold: "+deskLine(c, "run", by, r.Run, "--yes"))
	}
	back := deskLine(c, "run", byReturn, r.Run, "--yes")
	if by == byReturn {
		return append(steps, "to continue: "+back)
	}
	return append(steps, "to continue: "+resumeLine(c, r.Run, r.Deletes, r.Chosen), "to put the rest back: "+back)
}

// stepWithoutHold returns the command that does the rest of a run that has no hold: what it has not
// moved is still in the queue.
func stepWithoutHold(c *cobra.Command, r desk.Result) string {
	if r.Action.Kind().Edits && r.DoubledAtMost > 0 { // another edit would send another message
		if r.Parked {
			return "the edit is done if the edited message has arrived: its original stays parked"
		}
		return "to end the edit, if the edited message has arrived: " +
			deskLine(c, string(desk.Park), r.Queue, "--handle", c.Flags().Arg(0), "--yes")
	}
	if handle := c.Flags().Lookup("handle"); handle != nil && handle.Changed { // those that were moved are refused
		return "to do the rest, once the cause is gone: repeat the command with the handles that are left: " +
			deskLine(c, "list", r.Queue)
	}
	left, more := strconv.Itoa(r.LeftInQueue), []string{"--yes"}
	limit := c.Flags().Lookup("limit")
	if limit != nil && limit.Changed {
		_ = limit.Value.Set(left) // the rest is the first that the same command chooses
	}
	counted := limit != nil && limit.Changed || r.FailedAgain == 0 // else it chooses what failed again too
	if expect := c.Flags().Lookup("expect"); expect != nil && expect.Changed && counted {
		more = append(more, "--expect", left)
	}
	return "to do the rest, once the cause is gone: " + commandLine(c, c.Flags().Args(), more...)
}

// deskStopError says that a run stopped with messages left in its hold.
type deskStopError struct{ stepsError }

// deskPartError says that a run moved some messages, but not all.
type deskPartError struct{ stepsError }

// stepsError is an error with the next steps, a line each.
type stepsError struct {
	err  error
	next []string
}

func (e stepsError) Error() string {
	return strings.Join(append([]string{e.err.Error()}, e.next...), "\n  ")
}

// Unwrap returns the cause.
func (e stepsError) Unwrap() error { return e.err }

// acceptLoss adds to a DroppingError the line that accepts the loss. It returns others as they are.
func acceptLoss(c *cobra.Command, cause error) error {
	drops, ok := errors.AsType[desk.DroppingError](cause)
	if !ok {
		return cause
	}
	return stepsError{cause, []string{"to accept the loss: " + allowLine(c, drops.Queues, "--yes")}}
}

// commandLine returns the command line of a command that runs, with more words behind it, to
// paste into a shell.
func commandLine(c *cobra.Command, args []string, more ...string) string {
	words, last := strings.Fields(c.CommandPath()), ""
	if namesSubcommand(c, args) {
		last = behindDashes(args)
	} else {
		words = append(words, args...)
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "yes" && f.Name != "expect" {
			words = append(words, flagWords(f)...)
		}
	})
	return shellLine(c, append(words[1:], more...)...) + last
}

// namesSubcommand reports whether an argument of a command has the name of one of its subcommands.
func namesSubcommand(c *cobra.Command, args []string) bool {
	return slices.ContainsFunc(c.Commands(), func(sub *cobra.Command) bool { return slices.Contains(args, sub.Name()) })
}

// behindDashes returns the end of a command line with arguments that are not subcommands.
func behindDashes(args []string) string {
	words := []string{" --"}
	for _, arg := range args {
		words = append(words, text.ShellQuote(arg))
	}
	return strings.Join(words, " ")
}

// shellLine returns a command line of dlxctl, with the global flags of a command that runs, to
// paste into a shell. A URL with a password is left out: the environment has it, or the person
// adds it.
func shellLine(c *cobra.Command, words ...string) string { return shellLineOf(c, "", words...) }

// shellLineOf is shellLine for one value of -f. An empty path stands for all values.
func shellLineOf(c *cobra.Command, path string, words ...string) string {
	words = append([]string{"dlxctl"}, words...)
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		secret := (f.Name == "url" || f.Name == "api") && strings.Contains(f.Value.String(), "@")
		switch {
		case f.Name == "file" && path != "":
			words = append(words, "-f", path)
		case f.Changed && f.Name != "output" && !secret:
			words = append(words, flagWords(f)...)
		}
	})
	for i, w := range words {
		words[i] = text.ShellQuote(w)
	}
	return strings.Join(words, " ")
}

// deskLine is shellLine for another command of the desk that works on the same topology.
func deskLine(c *cobra.Command, words ...string) string {
	words = append([]string{"desk"}, words...)
	if name := c.Flags().Lookup("name"); name != nil && name.Changed {
		words = append(words, flagWords(name)...)
	}
	return shellLine(c, words...)
}

// flagWords returns the words that set a flag to the value that it has.
func flagWords(f *pflag.Flag) []string {
	name := "--" + f.Name
	if f.Name == "file" {
		name = "-f"
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		var words []string
		for _, v := range list.GetSlice() {
			words = append(words, name, v)
		}
		return words
	}
	if f.Value.Type() == "bool" {
		if f.Value.String() == "true" {
			return []string{name}
		}
		return []string{name + "=false"}
	}
	return []string{name, f.Value.String()}
}
