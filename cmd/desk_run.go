package cmd

import (
	"context"
	"fmt"

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

type deskRunListCommand struct {
	app   *app
	name  string
	ended bool
	limit int
}

func newDeskRunList(a *app) *cobra.Command {
	k := deskRunListCommand{app: a}
	c := &cobra.Command{
		Use:   "list",
		Short: "List the runs that have not ended, or those that have",
		Long: `List the runs of the topology that have not ended: those that work at this moment, and
those that stopped with messages left in their hold. Resume them, return what they hold,
or cancel those that work. What is left in the hold of a run that works is up to 5 seconds
old.

--ended lists the runs that have ended in the last 90 days, the newest first: who did what
to which messages, why, and with which result. The records are in the queue NAME.desk.log
of the topology. Without a topology file no run is recorded.`,
		Example:     "  dlxctl desk run list\n  dlxctl desk run list -o json\n  dlxctl desk run list --ended",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, _ []string) error {
			if k.limit < 0 {
				return usageError{fmt.Errorf("--limit is %d; write 0 or more, where 0 is all", k.limit)}
			}
			return k.run(c.Context())
		},
	}
	c.Flags().BoolVar(&k.ended, "ended", false, "list the runs that have ended in the last 90 days")
	c.Flags().IntVar(&k.limit, "limit", 20, "with --ended, list so many runs at most; 0 is all")
	addName(c.Flags(), &k.name)
	return c
}

func (k *deskRunListCommand) run(ctx context.Context) error {
	d, closeDesk, err := k.app.openRuns(ctx, k.name, false)
	if err != nil {
		return err
	}
	defer closeDesk()
	if k.ended {
		return k.listEnded(ctx, d)
	}
	runs, err := d.Runs(ctx)
	if err != nil {
		return err
	}
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, runs)
	}
	return desk.WriteRuns(k.app.stdout, runs, k.app.screen())
}

func (k *deskRunListCommand) listEnded(ctx context.Context, d *desk.Desk) error {
	ended, err := d.EndedRuns(ctx)
	if err != nil {
		return err
	}
	if err := ended.WriteMissed(k.app.stderr); err != nil {
		return err
	}
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, ended.Newest(k.limit))
	}
	return ended.Write(k.app.stdout, k.limit, k.app.screen())
}
