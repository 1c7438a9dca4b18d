package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// deskRunsCommand is the command desk runs.
type deskRunsCommand struct{ app *app }

func newDeskRuns(a *app) *cobra.Command {
	k := deskRunsCommand{app: a}
	return &cobra.Command{
		Use:   "runs",
		Short: "List the runs that have not ended",
		Long: `List the runs of the topology that have not ended: those that work at this moment, and
those that stopped with messages left in their hold. Resume them, return what they hold,
or cancel those that work. The numbers of messages are up to 5 seconds old.`,
		Example:     "  dlxctl desk runs\n  dlxctl desk runs -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
}

func (k *deskRunsCommand) run(ctx context.Context) error {
	d, closeDesk, err := k.app.openRuns(false)
	if err != nil {
		return err
	}
	defer closeDesk()
	runs, err := d.Runs(ctx)
	if err != nil {
		return err
	}
	if k.app.output == "json" {
		return desk.WriteRunsJSON(k.app.stdout, runs)
	}
	return desk.WriteRuns(k.app.stdout, runs, k.app.width())
}
