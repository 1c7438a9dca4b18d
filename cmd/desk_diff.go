package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

type deskDiffCommand struct {
	app    *app
	choose chooseFlags
	live   bool
}

func newDeskDiff(a *app) *cobra.Command {
	k := deskDiffCommand{app: a}
	c := &cobra.Command{
		Use:        "diff HANDLE HANDLE [QUEUE|@WORKQUEUE]",
		SuggestFor: []string{"compare", "cmp"},
		Short:      "Show in what two messages differ",
		Long: `Show in what two dead letters differ: why they died, their properties, their headers and their
decoded bodies. What only the first message has is behind -, what only the second has is
behind +. Without QUEUE, diff looks in the dead-letter queues of the topology, in
NAME.parked and in NAME.unroutable.

With --live, name one dead letter. It is compared, as it was published, with the first
message in its work queue that has the same routing key. A work queue with consumers also
needs --beside-consumers.

Values are masked as 'dlxctl desk show' masks them, and what is masked is not compared.`,
		Example: `  dlxctl desk diff 0a1b2c3d4e5f 9f8e7d6c5b4a
  dlxctl desk diff 0a1b2c3d4e5f 9f8e7d6c5b4a @billing
  dlxctl desk diff 0a1b2c3d4e5f --live --beside-consumers`,
		Args: func(c *cobra.Command, args []string) error {
			handles := 2
			if k.live {
				handles = 1
			}
			return handlesAndQueue(c, args, handles)
		},
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.choose.addLook(c)
	k.choose.addUnfiled(c)
	c.Flags().BoolVar(&k.live, "live", false, "compare with a message of the same routing key in the work queue")
	return c
}

// run compares two messages.
func (k *deskDiffCommand) run(c *cobra.Command, args []string) error {
	d, o, closeDesk, err := k.app.openToLook(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	handles, queue := args[:1], args[1:]
	if !k.live {
		handles, queue = args[:2], args[2:]
	}
	first, err := k.app.findMessage(c.Context(), d, append(handles[:1:1], queue...), o)
	if err != nil {
		return err
	}
	var other deadletter.View
	if k.live {
		other, err = d.FindLive(c.Context(), first.message, o)
	} else {
		var second foundMessage
		second, err = k.app.findMessage(c.Context(), d, append(handles[1:2:2], queue...), o)
		other = second.view
	}
	if err != nil {
		return err
	}
	comparison := deadletter.Compare(first.view, other, k.live)
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, comparison)
	}
	return comparison.Write(k.app.stdout)
}

// handlesAndQueue requires so many handles, and accepts a queue behind them.
func handlesAndQueue(c *cobra.Command, args []string, handles int) error {
	if len(args) < handles || len(args) > handles+1 {
		return usageError{fmt.Errorf("%s accepts %d handles and a queue, but got %d arguments; handles are as 'dlxctl desk list' prints them",
			c.CommandPath(), handles, len(args))}
	}
	for _, handle := range args[:handles] {
		if _, _, err := deadletter.ParseHandle(handle); err != nil {
			return usageError{err}
		}
	}
	return nil
}
