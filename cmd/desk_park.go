package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskParkCommand struct{ deskAct }

func newDeskPark(a *app) *cobra.Command {
	k := deskParkCommand{newAct(a, desk.Park)}
	c := &cobra.Command{
		Use:        "park QUEUE|@WORKQUEUE",
		SuggestFor: []string{"archive", "shelve", "hide"},
		Short:      "Put dead letters aside for 30 days",
		Long: `Move dead letters to the queue NAME.parked, where NAME is the topology. There they wait
for 30 days, and no alert counts them. 'dlxctl desk restore' moves them back to the queue
from which they came; after 30 days the broker deletes them.

Without --yes, park shows what it would do.`,
		Example:     "  dlxctl desk park @billing --where 'error contains \"no such customer\"' --reason TICKET-12",
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, args []string) error {
			return k.proposeIn(c, args, named(args[0]))
		},
	}
	k.add(c)
	return c
}
