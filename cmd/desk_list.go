package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
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

The name of a delay in the place of QUEUE is all queues in which its messages wait, those that
are due first at the beginning.

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

// run lists the messages of a queue, or of a delay, those that are due first at the beginning.
func (k *deskListCommand) run(c *cobra.Command, args []string) error {
	d, closeDesk, err := k.app.openDesk(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	places, unseen := deskPlaces(c.Context(), d, args[0])
	if unseen != nil && !errors.Is(unseen, desk.ErrUnreached) {
		return unseen
	}
	if _, delay := namedDelay(d.Topology, args[0]); delay && k.choose.skip > 0 {
		return usageError{fmt.Errorf("--skip is for one queue, and %q is a delay; name a level of it", args[0])}
	}
	slices.Reverse(places)
	list := desk.NewList(k.app.stdout, k.app.output, k.app.screen())
	looks, rest, err := k.each(c.Context(), d, places, list)
	if err = errors.Join(err, list.Close()); err != nil {
		return err
	}
	return k.told(looks, rest, unseen)
}

// looked is a look at a queue, and what was picked there.
type looked struct {
	request desk.Request
	picked  desk.Picked
}

// told says below the list what was looked at. rest are the places that were not. unreached is nil,
// or says what no look can reach.
func (k *deskListCommand) told(looks []looked, rest []deskPlace, unreached error) error {
	for _, l := range looks {
		unreached = errors.Join(unreached, k.app.picked(l.request, l.picked))
	}
	switch {
	case len(rest) > 0:
		fmt.Fprintf(k.app.stderr, "not looked at: %s; --limit 0 shows all\n",
			text.List(text.Each(rest, func(p deskPlace) string { return text.Name(p.queue) })))
	case len(looks) == 0 && unreached == nil:
		fmt.Fprintln(k.app.stderr, "no message waits there")
	}
	return unreached
}

// each lists the messages of some places, up to the limit. rest are those that it did not come to.
func (k *deskListCommand) each(ctx context.Context, d *desk.Desk, places []deskPlace, list *desk.List) (
	looks []looked, rest []deskPlace, err error,
) {
	left, all := k.choose.Limit, k.choose.Limit == 0
	for i, place := range places {
		if !all && left == 0 {
			return looks, places[i:], nil
		}
		r, err := k.choose.request(place)
		if err != nil {
			return looks, nil, err
		}
		r.Limit = left
		picked, err := d.Pick(ctx, r, func(_ deadletter.Message, v deadletter.View) error { return list.Add(v) })
		if err != nil {
			return looks, nil, err
		}
		left -= min(left, picked.Shown)
		looks = append(looks, looked{r, picked})
	}
	return looks, nil, nil
}
