package cmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

// deskGroupsCommand is the command desk groups.
type deskGroupsCommand struct {
	deskLook
	by string
}

func newDeskGroups(a *app) *cobra.Command {
	k := deskGroupsCommand{deskLook: deskLook{app: a}}
	c := &cobra.Command{
		Use:        "groups QUEUE|@WORKQUEUE",
		Aliases:    []string{"group"},
		SuggestFor: []string{"causes", "summary", "stats"},
		Short:      "Count what dead letters have in common",
		Long: `Group the dead letters of a queue by what they have in common, largest group first: how
many, which share, when the first and the last of them failed, and the handle of an
example.

--by cause is why the broker or the processor gave up; error is the text of the error;
queue is the work queue; key is the routing key of the publisher; header:NAME and
body.PATH are values of the message.`,
		Example: `  dlxctl desk groups @billing
  dlxctl desk groups billing.dead --by body.customer.country --where 'cause == "rejected"'`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text table json jsonl"},
		RunE:        k.run,
	}
	c.Flags().StringVar(&k.by, "by", "cause", "`PROPERTY`: cause, error, queue, key, header:NAME or body.PATH")
	k.choose.add(c)
	k.choose.addLimit(c.Flags(), 0, "group so many messages at most, from the head of the queue; 0 is all")
	return c
}

// run groups messages.
func (k *deskGroupsCommand) run(c *cobra.Command, args []string) error {
	by, err := deadletter.ParseBy(k.by)
	if err != nil {
		return usageError{fmt.Errorf("--by: %w", err)}
	}
	return k.in(args[0], func(d *desk.Desk, r desk.Request) error {
		groups, picked, err := d.GroupBy(c.Context(), r, by)
		if err != nil {
			return err
		}
		switch k.app.output {
		case "json":
			err = jsondoc.Write(k.app.stdout, groups)
		case "jsonl":
			err = writeLines(k.app.stdout, groups)
		default:
			err = desk.WriteGroups(k.app.stdout, k.by, groups, k.app.width())
		}
		if err != nil {
			return err
		}
		return k.app.picked(r, picked)
	})
}

// writeLines writes values as JSON, a line each.
func writeLines[T any](w io.Writer, values []T) error {
	for _, v := range values {
		if err := jsondoc.WriteLine(w, v); err != nil {
			return err
		}
	}
	return nil
}
