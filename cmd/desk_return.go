package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskReturnCommand struct {
	app   *app
	name  string
	yes   bool
	allow allowFlag
}

func newDeskReturn(a *app) *cobra.Command {
	k := deskReturnCommand{app: a}
	c := &cobra.Command{
		Use:        "return RUN",
		SuggestFor: []string{"undo", "abort", "rollback"},
		Short:      "Put what a run holds back into its queue",
		Long: `Move the messages that are left in the hold of a run back to the queue from which the run
took them, at its tail, with all their headers. This ends the run. What the run has sent
cannot be called back: a consumer may have handled it.

Without --yes, return shows the run.`,
		Example:     "  dlxctl desk run return RUN --yes",
		Args:        oneRun,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.allow.add(c.Flags())
	addName(c.Flags(), &k.name)
	c.Flags().BoolVar(&k.yes, "yes", false, "do it; without this flag the command only shows what it would do")
	return c
}

// run returns what a run holds.
func (k *deskReturnCommand) run(c *cobra.Command, args []string) error {
	d, closeDesk, err := k.app.openRuns(c.Context(), k.name, false)
	if err != nil {
		return err
	}
	defer closeDesk()
	if d.Allow, err = k.allow.queues(); err != nil {
		return err
	}
	r, err := findRun(c.Context(), d, args[0])
	if err != nil {
		return err
	}
	if !k.yes {
		return k.app.showRuns([]desk.Run{r}, "to put back what it holds: "+deskLine(c, "run", byReturn, r.ID, "--yes"))
	}
	w := k.app.watchRun(c.Context(), desk.Restore)
	result, err := d.Return(c.Context(), r.ID, w.progress)
	w.finish()
	return k.app.finishRun(c, byReturn, desk.Restore, result, err)
}
