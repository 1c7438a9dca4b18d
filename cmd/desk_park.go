package cmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type deskParkCommand struct {
	deskAct

	pastKeep bool
}

func newDeskPark(a *app) *cobra.Command {
	k := deskParkCommand{deskAct: newAct(a, desk.Park)}
	c := &cobra.Command{
		Use:        "park QUEUE|@WORKQUEUE",
		SuggestFor: []string{"archive", "shelve", "hide"},
		Short:      "Put dead letters aside for 30 days",
		Long: `Move dead letters to the queue NAME.parked, where NAME is the topology. There they wait
for 30 days, and no alert counts them. 'dlxctl desk restore' moves them back to the queue
from which they came; after 30 days the broker deletes them.

--past-keep chooses the dead letters that are older than the topology file keeps them,
dead: {keep: 30d}. Without a queue it does so in each dead-letter queue that has a keep.
Their age counts from their last failure: what restore moved back is as old as before.

Without --yes, park shows what it would do.`,
		Example: "  dlxctl desk park @billing --where 'error contains \"no such customer\"' --reason TICKET-12\n" +
			"  dlxctl desk park --past-keep --yes",
		Args: func(c *cobra.Command, args []string) error {
			if k.pastKeep && len(args) == 0 {
				return nil
			}
			return oneQueue(c, args)
		},
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, args []string) error {
			if k.pastKeep {
				return k.parkOld(c, args)
			}
			return k.proposeIn(c, args, named(args[0]))
		},
	}
	k.add(c)
	c.Flags().BoolVar(&k.pastKeep, "past-keep", false, "choose what is older than keep of the topology file")
	return c
}

// parkOld parks what is older than the file keeps it: in one queue, or in each that has a keep.
func (k *deskParkCommand) parkOld(c *cobra.Command, args []string) error {
	switch all := len(args) == 0; {
	case k.choose.Until != "":
		return usageError{errors.New("--past-keep and --until both say how old the messages are; pass one of them")}
	case all && c.Flags().Changed("expect"):
		return usageError{errors.New("--expect is for one queue; name the queue")}
	case all && k.app.output == "json":
		return usageError{errors.New("-o json is for one queue; name the queue")}
	}
	if err := k.app.needsFile("desk park --past-keep"); err != nil {
		return err
	}
	d, closeDesk, err := k.app.openAct(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	keeps := d.Topology.Keeps
	place := deskPlace{}
	if len(args) == 1 {
		if place, err = placeOf(d, args[0]); err != nil {
			return err
		}
		keeps = []topology.Keep{{Queue: place.queue, Age: d.Topology.KeepOf(place.queue)}}
	}
	if len(keeps) == 0 {
		return fmt.Errorf("%w: no dead-letter queue of the topology file has a keep; write one, such as dead: {keep: 30d}",
			desk.ErrRefused)
	}
	now := time.Now()
	var failed error
	for _, keep := range keeps {
		if c.Context().Err() != nil {
			break
		}
		if len(args) == 0 {
			place = deskPlace{queue: keep.Queue}
		}
		// What is wrong with one queue does not keep the old messages of the others where they are.
		if err := k.parkOldOf(c, d, place, keep, now); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// parkOldOf parks what is older than its queue keeps it.
func (k *deskParkCommand) parkOldOf(
	c *cobra.Command, d *desk.Desk, place deskPlace, keep topology.Keep, now time.Time,
) error {
	if keep.Age == 0 {
		return fmt.Errorf("%w: the dead-letter queue %s has no keep in the topology file; write one, such as dead: {keep: 30d}",
			desk.ErrRefused, text.Name(keep.Queue))
	}
	ask := k.ask
	ask.Selection = k.choose.in(place)
	r, err := k.choose.withLook(ask.Request(now))
	if err != nil {
		return err
	}
	r.Until = now.Add(-keep.Age).UTC()
	if k.app.output == "text" {
		fmt.Fprintf(k.app.stdout, "%s keeps dead letters for %s; older are those that failed before %s\n",
			text.Name(keep.Queue), text.Duration(keep.Age), r.Until.Format(time.RFC3339))
	}
	argument := place.queue
	if place.work != "" {
		argument = "@" + place.work
	}
	return k.execute(c, []string{argument}, d, r)
}
