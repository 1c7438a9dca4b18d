package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskCancelCommand struct {
	app  *app
	name string
}

func newDeskCancel(a *app) *cobra.Command {
	k := deskCancelCommand{app: a}
	c := &cobra.Command{
		Use:        "cancel RUN",
		SuggestFor: []string{"stop", "pause"},
		Short:      "Stop a run that another process works on",
		Long: `Ask the process that works on a run to stop, from any machine. It finishes the messages in
flight. What it has sent stays sent; the rest stays in the hold of the run, until
'dlxctl desk run resume' sends it or 'dlxctl desk run return' puts it back. A run of few
messages has no hold and is in no list: what it has not sent stays in the queue.`,
		Example:     "  dlxctl desk run cancel RUN",
		Args:        oneRun,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE:        func(c *cobra.Command, args []string) error { return k.run(c.Context(), c, args[0]) },
	}
	addName(c.Flags(), &k.name)
	return c
}

func (k *deskCancelCommand) run(ctx context.Context, c *cobra.Command, id string) error {
	d, closeDesk, err := k.app.openRuns(ctx, k.name, false)
	if err != nil {
		return err
	}
	defer closeDesk()
	r, err := findRun(ctx, d, id)
	if errors.Is(err, desk.ErrRefused) {
		return k.cancelUnlisted(ctx, d, id, err)
	}
	if err != nil {
		return err
	}
	if r.Active {
		if err := d.Cancel(ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(k.app.stdout, "asked the process of the run %s to stop; its hold keeps the rest\n", id)
	} else {
		fmt.Fprintf(k.app.stdout, "no process works on the run %s; its hold keeps %d\n", id, r.Holds)
	}
	fmt.Fprintf(k.app.stdout, "to continue: %s\nto put the rest back: %s\n",
		resumeLine(c, id, r.Deletes(), r.Chosen), deskLine(c, "run", "return", id, "--yes"))
	return nil
}

// cancelUnlisted stops a run that has no hold, and so is in no list. unknown says that there is no
// run of that name.
func (k *deskCancelCommand) cancelUnlisted(ctx context.Context, d *desk.Desk, id string, unknown error) error {
	err := d.Cancel(ctx, id)
	if _, none := errors.AsType[desk.NoWorkerError](err); none {
		return unknown
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(k.app.stdout, "asked the process of the run %s to stop; what it has not moved is still in its queue\n", id)
	return nil
}
