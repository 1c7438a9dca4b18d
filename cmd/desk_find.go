package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type deskFindCommand struct {
	app    *app
	choose chooseFlags
}

func newDeskFind(a *app) *cobra.Command {
	k := deskFindCommand{app: a}
	c := &cobra.Command{
		Use:        "find ID",
		SuggestFor: []string{"search", "where", "locate"},
		Short:      "Find a message by its message-id, in any queue of the topology",
		Long: `Find the messages with a message-id in the queues of the topology: work queues, retry
queues, dead-letter queues and those of the desk. It looks at each queue that has messages, one
after the other, and keeps their order. What it did not look at is listed, such as what consumers
hold.

A message on its way between two queues may be missed, or found twice: look again.

Exit codes: 0 found, 1 not found, or failed, 5 not found, and not all messages were looked at.`,
		Example: "  dlxctl desk find 0a1b2c3d-4e5f\n  dlxctl desk find 0a1b2c3d-4e5f --beside-consumers -o json",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("%s accepts one message-id, but got %d arguments", c.CommandPath(), len(args))}
			}
			return nil
		},
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.choose.addLook(c)
	k.choose.addCost(c.Flags())
	k.choose.addUnfiled(c)
	return c
}

// run looks for messages.
func (k *deskFindCommand) run(c *cobra.Command, args []string) error {
	d, o, closeDesk, err := k.app.openToLook(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	sought, err := d.Seek(c.Context(), args[0], o)
	if err != nil {
		return err
	}
	if k.app.output == "json" {
		err = jsondoc.Write(k.app.stdout, sought)
	} else {
		err = sought.Write(k.app.stdout, k.app.screen())
	}
	return errors.Join(err, sought.Err())
}

type foundMessage struct {
	message deadletter.Message
	view    deadletter.View
}

// findMessage finds the message with the handle args[0] in the queue args[1], or else in the
// dead-letter queues of the topology and in its parked and unroutable queues.
func (a *app) findMessage(
	ctx context.Context, d *desk.Desk, args []string, o desk.LookOptions,
) (found foundMessage, err error) {
	queues := d.DeadLetterQueues()
	if name := d.Topology.Name; name != "" {
		queues = append(queues, topology.ParkedName(name), topology.UnroutableName(name))
	}
	var unseen error
	if len(args) > 1 {
		var places []deskPlace
		if places, unseen = deskPlaces(ctx, d, args[1]); unseen != nil && !errors.Is(unseen, desk.ErrUnreached) {
			return found, unseen
		}
		queues = text.Each(places, func(p deskPlace) string { return p.queue })
	}
	err = d.Find(ctx, queues, args[0], o, func(m deadletter.Message, v deadletter.View) error {
		found.message, found.view = m, v
		found.message.Delivery.Body = slices.Clone(m.Delivery.Body) // it is valid only during the call
		return nil
	})
	if err != nil {
		err = errors.Join(err, unseen)
	}
	return found, err
}
