package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

type deskCommand struct {
	app  *app
	look chooseFlags
}

func newDesk(a *app) *cobra.Command {
	k := deskCommand{app: a}
	c := &cobra.Command{
		Use:        "desk",
		SuggestFor: []string{"dlq", "dead-letters", "deadletters", "shovel", "redrive"},
		Short:      "Look at dead letters, and send them back to work",
		Long: `Show each dead-letter queue of the topology that has messages, the one with most first: how
many it holds, the oldest, how many are new in the last 24 hours, the most frequent cause,
the owner, and the runs in progress. The empty queues are counted, and -v lists them. The
subcommands show, export, replay, edit, park and discard its messages, and give back what
was taken. pull takes messages out of a work queue.

desk looks at the first --limit messages of each queue, and says where it did not look at
all of them. --limit 0 looks at no message. The count of a queue that it did not look at, such
as an empty one, is up to 5 seconds old. A terminal shows ages such as 12m in place of times.
A look gives the messages back in their order; docs/looking.md says what it costs in a queue.

replay, edit, park, restore, discard, pull and import change nothing without --yes. They show
how many messages they looked at and chose, where these would go, and the command line
that does it.

Without a topology file, all commands but comment and park --past-keep find the dead-letter
queues on the broker. Bodies are hidden then, unless --show-bodies is given, or a
file desk.yaml, which has only the key messages, says what is masked.

QUEUE is a queue of the virtual host. @WORKQUEUE is the dead-letter queue of a work queue,
and only its messages. A HANDLE names the content of a message; HANDLE#2 is the second of
two equal messages.

Exit codes: 0 done or shown, 1 failed and nothing was moved, 2 stopped because messages
failed again, or with messages left in the hold of the run, 3 refused, 4 some messages were
moved but not all, 5 a look did not reach all messages of the queue, 130 interrupted before
anything was moved.`,
		Example:                    "  dlxctl desk\n  dlxctl desk groups @billing\n  dlxctl desk replay @billing --since 6h",
		Args:                       noCommand,
		SuggestionsMinimumDistance: 2,
		Annotations:                map[string]string{outputsAnnotation: "text json"},
		RunE:                       func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
	k.look.addLimit(c.Flags(), desk.OverviewMessages, "messages to look at in each queue; 0 looks at none")
	k.look.addLook(c)
	k.look.addVerbose(c.Flags(), "list the empty queues too, and what each look changed")
	k.look.addUnfiled(c)
	c.AddCommand(
		newDeskList(a), newDeskGroups(a), newDeskShow(a), newDeskDiff(a), newDeskFind(a), newDeskDigest(a), newDeskComment(a),
		newDeskExport(a), newDeskImport(a),

		newDeskReplay(a), newDeskEdit(a), newDeskPark(a), newDeskRestore(a), newDeskDiscard(a),
		newDeskPull(a),
		newDeskRun(a), newDeskServe(a),
	)
	return c
}

// run writes the overview.
func (k *deskCommand) run(ctx context.Context) error {
	o, err := k.look.look()
	if err != nil {
		return err
	}
	if o.Messages = k.look.Limit; o.Messages < 0 {
		return usageError{fmt.Errorf("--limit is %d; write 0 or more", o.Messages)}
	}
	d, closeDesk, err := k.app.openDesk(ctx, k.look)
	if err != nil {
		return err
	}
	defer closeDesk()
	overview, err := d.Overview(ctx, o)
	if err != nil {
		return err
	}
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, overview)
	}
	return desk.WriteOverview(k.app.stdout, overview, k.app.screen(), k.look.verbose)
}
