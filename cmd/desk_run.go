package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

func newDeskRun(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:        "run",
		SuggestFor: []string{"runs"},
		Short:      "List, continue, undo or stop runs",
		Long: `A run moves messages: one replay, edit, park, restore, discard, pull or import. What it has taken
out of a queue and not sent yet is in its hold, also after a kill.`,
		Args:                       noCommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newDeskRunList(a), newDeskResume(a), newDeskReturn(a), newDeskCancel(a))
	return c
}

// deskRunListCommand is the command desk run list.
type deskRunListCommand struct {
	app  *app
	name string
}

func newDeskRunList(a *app) *cobra.Command {
	k := deskRunListCommand{app: a}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the runs that have not ended",
		Long: `List the runs of the topology that have not ended: those that work at this moment, and
those that stopped with messages left in their hold. Resume them, return what they hold,
or cancel those that work. What is left in the hold of a run that works is up to 5 seconds
old.`,
		Example:     "  dlxctl desk run list\n  dlxctl desk run list -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
	addName(c.Flags(), &k.name)
	return c
}

func (k *deskRunListCommand) run(ctx context.Context) error {
	d, closeDesk, err := k.app.openRuns(ctx, k.name, false)
	if err != nil {
		return err
	}
	defer closeDesk()
	runs, err := d.Runs(ctx)
	if err != nil {
		return err
	}
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, runs)
	}
	return desk.WriteRuns(k.app.stdout, runs, k.app.screen())
}
