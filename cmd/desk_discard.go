package cmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskDiscardCommand struct{ deskAct }

func newDeskDiscard(a *app) *cobra.Command {
	k := deskDiscardCommand{newAct(a, desk.Discard)}
	c := &cobra.Command{
		Use:        "discard QUEUE|@WORKQUEUE",
		SuggestFor: []string{"delete", "purge", "remove", "drop"},
		Short:      "Delete dead letters, after 30 days in the parked queue",
		Long: `Take dead letters out of the queue. They are parked for 30 days, and 'dlxctl desk restore'
moves them back. --forever deletes them at once. It needs --yes and --expect, because
nothing brings them back; 'dlxctl desk export --raw' makes a copy first that can be imported.

Without --yes, discard shows what it would do.`,
		Example: `  dlxctl desk discard @billing --where 'body.test == true'
  dlxctl desk discard @billing --where 'body.test == true' --forever --yes --expect 3`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.add(c)
	c.Flags().BoolVar(&k.ask.Forever, "forever", false, "delete the messages in place of parking them")
	return c
}

func (k *deskDiscardCommand) run(c *cobra.Command, args []string) error {
	if k.ask.Forever && k.yes && !c.Flags().Changed("expect") {
		return usageError{errors.New("--forever --yes needs --expect, the number of messages to delete; run the command without --yes, which prints it")}
	}
	return k.proposeIn(c, args, named(args[0]))
}
