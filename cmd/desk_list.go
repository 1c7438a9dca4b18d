package cmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskListCommand struct{ deskLook }

func newDeskList(a *app) *cobra.Command {
	k := deskListCommand{deskLook{app: a}}
	c := &cobra.Command{
		Use:        "list QUEUE|@WORKQUEUE",
		Aliases:    []string{"ls"},
		SuggestFor: []string{"browse", "messages"},
		Short:      "List dead letters, a line each",
		Long: `List the dead letters of a queue from its head, a line each: handle, time of the last
failure, cause, attempts, routing key, replays, and the error or the beginning of the body.
On a terminal, the time is an age such as 12m, and cause, attempts and replays have columns
only where they differ: what is the same in all messages is said once below them.

--where chooses by an expression over the decoded message: cause, error, attempts, key, queue,
headers and body among others; docs/looking.md lists them. What is masked in the
output is masked for the expression too.

-o json prints an array, and jsonl an object for each message.`,
		Example: `  dlxctl desk list @billing
  dlxctl desk list billing.dead --where 'cause == "rejected" && body.customer.country == "AT"'
  dlxctl desk list @billing --since 2h --limit 0 -o jsonl`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text table json jsonl"},
		RunE:        k.run,
	}
	k.choose.add(c)
	k.choose.addCost(c.Flags())
	k.choose.addUnfiled(c)
	k.choose.addLimit(c.Flags(), 100, "list so many messages at most; 0 is all")
	k.choose.addSkip(c.Flags())
	return c
}

func (k *deskListCommand) run(c *cobra.Command, args []string) error {
	return k.in(c.Context(), args[0], func(d *desk.Desk, r desk.Request) error {
		list := desk.NewList(k.app.stdout, k.app.output, k.app.screen())
		picked, err := d.Pick(c.Context(), r, func(_ deadletter.Message, v deadletter.View) error { return list.Add(v) })
		if err = errors.Join(err, list.Close()); err != nil {
			return err
		}
		return k.app.picked(r, picked)
	})
}
