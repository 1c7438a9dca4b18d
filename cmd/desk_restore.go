package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

type deskRestoreCommand struct{ deskAct }

func newDeskRestore(a *app) *cobra.Command {
	k := deskRestoreCommand{newAct(a, desk.Restore)}
	c := &cobra.Command{
		Use:        "restore [QUEUE]",
		SuggestFor: []string{"unpark", "unarchive", "undiscard"},
		Short:      "Move parked messages back to their queue",
		Long: `Move messages from NAME.parked back to the dead-letter queue from which 'dlxctl desk park',
'discard' or 'edit' took them. They are dead letters again, at the tail of the queue.

'dlxctl desk list NAME.parked' lists the parked messages. Without --yes, restore shows what
it would do.`,
		Example:     "  dlxctl desk restore --handle 0a1b2c3d4e5f --yes",
		Args:        parkedOrQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.add(c)
	k.allow.add(c.Flags())
	return c
}

func parkedOrQueue(c *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return oneQueue(c, args)
}

// run restores messages of the topology's parked queue, or of the queue that args name.
func (k *deskRestoreCommand) run(c *cobra.Command, args []string) error {
	where := func(_ context.Context, d *desk.Desk) ([]deskPlace, error) {
		return []deskPlace{{queue: topology.ParkedName(d.Topology.Name)}}, nil
	}
	if len(args) == 1 {
		where = named(args[0])
	}
	return k.proposeIn(c, args, where)
}
