package cmd

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

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
example. Without --by, messages are grouped by error if any of them has one, and otherwise
by cause. If they are all one group, a line names the other properties that tell them apart.

--by error is the error that the consumer, the processor or a framework wrote, with its
type; cause is why the broker or the processor gave up; queue is the work queue; key is the
routing key of the publisher; header:NAME and body.PATH are values of the message.`,
		Example: `  dlxctl desk groups @billing
  dlxctl desk groups billing.dead --by body.customer.country --where 'cause == "rejected"'`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text table json jsonl"},
		RunE:        k.run,
	}
	c.Flags().StringVar(&k.by, "by", "",
		"`PROPERTY`: error, cause, queue, key, exchange, type, header:NAME or body.PATH (default: error, or cause where no message has one)")
	k.choose.add(c)
	k.choose.addCost(c.Flags())
	k.choose.addUnfiled(c)
	k.choose.addLimit(c.Flags(), 0, "group so many messages at most, from the head of the queue; 0 is all")
	k.choose.addSkip(c.Flags())
	return c
}

func (k *deskGroupsCommand) run(c *cobra.Command, args []string) error {
	ways, err := deadletter.NewWays(k.by)
	if err != nil {
		return usageError{fmt.Errorf("--by: %w", err)}
	}
	return k.in(c.Context(), args[0], func(d *desk.Desk, r desk.Request) error {
		found, picked, err := d.GroupBy(c.Context(), r, ways)
		if err != nil {
			return err
		}
		switch k.app.output {
		case "json":
			err = jsondoc.Write(k.app.stdout, found.Groups)
		case "jsonl":
			err = writeLines(k.app.stdout, found.Groups)
		default:
			err = desk.WriteGroups(k.app.stdout, found, k.app.screen())
		}
		err = cmp.Or(err, desk.WriteMasked(k.app.stderr, found), desk.WriteApart(k.app.stderr, found),
			desk.WriteUncommented(k.app.stderr, found))
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
