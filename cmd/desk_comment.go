package cmd

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type deskCommentCommand struct {
	app    *app
	choose chooseFlags
	by     string
}

func newDeskComment(a *app) *cobra.Command {
	k := deskCommentCommand{app: a}
	c := &cobra.Command{
		Use:        "comment HANDLE TEXT [QUEUE|@WORKQUEUE]",
		SuggestFor: []string{"note", "annotate", "ack", "mute"},
		Short:      "Say something about a group of dead letters, such as a ticket",
		Long: `Write a comment on the group of the message: all messages of the queue with the same error, or
with the same cause where the message has no error. 'dlxctl desk groups' and the page show it,
with who wrote it. HANDLE is the EXAMPLE of a group, or any of its messages. --by names another
property of the group, as for 'desk groups'.

A later comment takes the place of the earlier one. An empty TEXT takes it back. Comments are in
the queue NAME.desk.log, which keeps them for 90 days.`,
		Example: `  dlxctl desk comment 0a1b2c3d4e5f 'known, ticket 4711'
  dlxctl desk comment 0a1b2c3d4e5f '' @billing`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("%s needs a handle and a text, but got %d arguments; handles are as 'dlxctl desk groups' prints them",
					c.CommandPath(), len(args))}
			}
			return handleAndQueue(c, append(args[:1:1], args[2:]...))
		},
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	c.Flags().StringVar(&k.by, "by", "", "`PROPERTY` of the group, as for 'desk groups' (default: error, or cause where the message has no error)")
	k.choose.addLook(c)
	return c
}

func (k *deskCommentCommand) run(c *cobra.Command, args []string) error {
	ways, err := deadletter.NewWays(k.by)
	if err != nil {
		return usageError{fmt.Errorf("--by: %w", err)}
	}
	if err := k.app.needsFile("desk comment"); err != nil {
		return err
	}
	d, o, closeDesk, err := k.app.openToLook(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	found, err := k.app.findMessage(c.Context(), d, append(args[:1:1], args[2:]...), o)
	if err != nil {
		return err
	}
	values := ways.Add(found.view)
	chosen := ways.Chosen()
	comment := desk.Comment{
		Queue: found.message.Queue, By: ways.By()[chosen].String(), Value: values[chosen], Text: args[1],
	}
	if comment.Value == "" && k.by != "" {
		return fmt.Errorf("%w: the message has no %s", desk.ErrRefused, text.Name(k.by))
	}
	if comment, err = d.Comment(c.Context(), comment); err != nil {
		return err
	}
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, comment)
	}
	says := cmp.Or(topology.Printable(comment.Text), "no comment")
	_, err = fmt.Fprintf(k.app.stdout, "%s, by %s %s: %s\n",
		text.Name(comment.Queue), comment.By, text.Name(comment.Value), says)
	return err
}
