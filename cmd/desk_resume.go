package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
)

type deskResumeCommand struct {
	app    *app
	name   string
	limits desk.Limits
	yes    bool
	expect int
	allow  allowFlag
}

func newDeskResume(a *app) *cobra.Command {
	k := deskResumeCommand{app: a, limits: desk.Replay.Kind().Limits}
	c := &cobra.Command{
		Use:        "resume [RUN]",
		SuggestFor: []string{"continue"},
		Short:      "Continue runs that were stopped",
		Long: `Continue a run that was stopped by its brake, by a signal or by a kill, from any machine.
Without RUN, resume continues every run of the topology that no process works on, oldest
first. The limits of the run still hold; those that are on the command line replace them.

A discard --forever goes on to delete. It needs --expect, the number of messages that it
has chosen, and so its name.

A run that was killed may send the messages that were in flight a second time, with the
same message-id: at most --in-flight for each kill, and the result says how many in all.

Without --yes, resume shows which runs it would continue.`,
		Example:     "  dlxctl desk run resume --yes\n  dlxctl desk run resume RUN --rate 1/s --yes",
		Args:        usageArgs(cobra.MaximumNArgs(1)),
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	addLimits(c.Flags(), &k.limits)
	k.allow.add(c.Flags())
	addName(c.Flags(), &k.name)
	for flag, none := range map[string]string{"rate": "", "ramp": "", "stop-on": "", "max-waiting": "0", "settle": "0s"} {
		c.Flags().Lookup(flag).DefValue = none // help shows no default: a run has limits of its own
	}
	c.Flags().IntVar(&k.expect, "expect", 0, "go on only if the run has chosen so many messages")
	c.Flags().BoolVar(&k.yes, "yes", false, "do it; without this flag the command only shows what it would do")
	return c
}

func (k *deskResumeCommand) run(c *cobra.Command, args []string) error {
	if _, err := k.limits.Over(desk.SendOptions{}, c.Flags().Changed); err != nil {
		return usageError{err}
	}
	if len(args) == 0 && c.Flags().Changed("expect") {
		return usageError{errors.New("--expect is for one run; name the run")}
	}
	d, closeDesk, err := k.app.openRuns(c.Context(), k.name, true)
	if err != nil {
		return err
	}
	defer closeDesk()
	if d.Allow, err = k.allow.queues(); err != nil {
		return err
	}
	runs, err := k.runs(c, d, args)
	if err != nil {
		return err
	}
	if !k.yes || len(runs) == 0 {
		next := deskLine(c, "run", byResume, "--yes")
		if len(runs) == 1 {
			next = resumeLine(c, runs[0].ID, runs[0].Deletes(), runs[0].Chosen)
		}
		return k.app.showRuns(runs, "to continue them: "+next)
	}
	return k.each(c, runs, func(r desk.Run) (desk.Result, error) { return k.resume(c, d, r) })
}

// each resumes runs, one after the other, until the context of the command ends.
func (k *deskResumeCommand) each(
	c *cobra.Command, runs []desk.Run, resume func(desk.Run) (desk.Result, error),
) error {
	var failed error
	moved := 0
	for i, r := range runs {
		if c.Context().Err() != nil {
			return errors.Join(failed, &deskStopError{stepsError{
				fmt.Errorf("stopped: interrupted before %s", text.Count(len(runs)-i, "more run")),
				[]string{"to continue: " + deskLine(c, "run", byResume, "--yes")},
			}})
		}
		result, err := resume(r)
		moved += result.Moved
		failed = errors.Join(failed, err)
	}
	if _, stopped := errors.AsType[*deskStopError](failed); failed != nil && moved > 0 && !stopped {
		return &deskPartError{stepsError{err: failed}} // also if the others were refused
	}
	return failed
}

// runs returns the run that args name, or all that no process works on.
func (k *deskResumeCommand) runs(c *cobra.Command, d *desk.Desk, args []string) ([]desk.Run, error) {
	if len(args) == 0 {
		all, err := d.Runs(c.Context())
		return slices.DeleteFunc(all, func(r desk.Run) bool { return r.Active }), err
	}
	r, err := findRun(c.Context(), d, args[0])
	if err == nil && r.Active {
		err = fmt.Errorf("%w: another process works on the run %s at this moment; wait for it, or stop it: %s",
			desk.ErrRefused, r.ID, deskLine(c, "run", "cancel", r.ID))
	}
	return []desk.Run{r}, err
}

// agree refuses a run that deletes messages unless --expect says how many: the person who resumes
// it may be another than the one who began it, and nothing brings them back.
func (k *deskResumeCommand) agree(c *cobra.Command, r desk.Run) error {
	switch counted := c.Flags().Changed("expect"); {
	case counted && k.expect != r.Chosen:
		return fmt.Errorf("%w: --expect is %d, but the run %s has chosen %d; nothing was moved", desk.ErrRefused,
			k.expect, r.ID, r.Chosen)
	case r.Deletes() && !counted:
		return stepsError{
			fmt.Errorf("%w: the run %s deletes %s at once, and nothing brings them back", desk.ErrRefused, r.ID,
				text.Count(r.Chosen, "message")),
			[]string{
				"to delete them: " + resumeLine(c, r.ID, true, r.Chosen),
				"to put them back: " + deskLine(c, "run", byReturn, r.ID, "--yes"),
			},
		}
	default:
		return nil
	}
}

func (k *deskResumeCommand) resume(c *cobra.Command, d *desk.Desk, r desk.Run) (desk.Result, error) {
	if err := k.agree(c, r); err != nil {
		return desk.Result{}, err
	}
	o, err := k.limits.Over(r.Send, c.Flags().Changed)
	if err != nil {
		return desk.Result{}, usageError{err}
	}
	w := k.app.watchRun(c.Context(), r.Action)
	result, err := d.Resume(c.Context(), r.ID, &o, w.progress)
	w.finish()
	result.Deletes, result.Chosen = r.Deletes(), r.Chosen // one that is refused does not say it
	return result, k.app.finishRun(c, byResume, r.Action, result, err)
}

// resumeLine returns the command line that resumes a run, which deletes the messages that it has
// chosen or not.
func resumeLine(c *cobra.Command, run string, deletes bool, chosen int) string {
	words := []string{"run", byResume, run, "--yes"}
	if deletes {
		words = append(words, "--expect", strconv.Itoa(chosen))
	}
	return deskLine(c, words...)
}

// showRuns lists runs, and what to do with them.
func (a *app) showRuns(runs []desk.Run, next string) error {
	if a.output == "json" {
		return jsondoc.Write(a.stdout, runs)
	}
	if err := desk.WriteRuns(a.stdout, runs, a.screen()); err != nil || len(runs) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout, next)
	return nil
}
