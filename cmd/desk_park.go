package cmd

import (
	"errors"
	"fmt"
	"slices"
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
Their age counts from their last failure: what restore moved back is as old as before. With
--yes it first continues a run of --past-keep that was interrupted in the same queues.

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
	failed := k.continueOld(c, d, keeps)
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

// continueOld continues what an earlier --past-keep has left undone in some queues, as a program
// that runs each night has no person to do it: one that was killed while it took messages keeps
// each later one from taking from the queue. Other runs are for a person to continue or return.
func (k *deskParkCommand) continueOld(c *cobra.Command, d *desk.Desk, keeps []topology.Keep) error {
	runs, err := d.Runs(c.Context())
	if err != nil {
		return err
	}
	var failed error
	for _, r := range runs {
		i := slices.IndexFunc(keeps, func(keep topology.Keep) bool { return keep.Queue == r.Queue })
		if i < 0 || r.Keep == 0 || r.Active || c.Context().Err() != nil {
			continue
		}
		failed = errors.Join(failed, k.continueRun(c, d, r, keeps[i]))
	}
	return failed
}

// continueRun continues a run that has left something undone.
func (k *deskParkCommand) continueRun(c *cobra.Command, d *desk.Desk, r desk.Run, keep topology.Keep) error {
	said := *k.app
	if k.app.output == "json" { // stdout is for the result of the command
		said.output, said.stdout = "text", k.app.stderr
	}
	now := "keep is " + text.Duration(keep.Age)
	if keep.Age == 0 {
		now = "it has no keep"
	}
	switch was := fmt.Sprintf("the run %s was interrupted while it parked messages of %s", r.ID, text.Name(r.Queue)); {
	case keep.Age == 0 || keep.Age > r.Keep: // messages that it has taken may be young now
		return fmt.Errorf("%w: %s that were older than %s, and %s now\n  to put them back: %s\n  to park them: %s",
			desk.ErrRefused, was, text.Duration(r.Keep), now,
			deskLine(c, "run", byReturn, r.ID, "--yes"), deskLine(c, "run", byResume, r.ID, "--yes"))
	case !k.yes:
		_, err := fmt.Fprintf(said.stdout, "%s; with --yes it is continued first\n", was)
		return err
	default:
		fmt.Fprintf(said.stdout, "%s; continuing it\n", was)
	}
	w := said.watchRun(c.Context(), r.Action)
	result, err := d.Resume(c.Context(), r.ID, nil, w.progress)
	w.finish()
	if err == nil && result.Ended && result.Chosen == 0 { // it had taken nothing, or sent all
		return nil
	}
	return said.finishRun(c, byResume, r.Action, result, err)
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
	r.Until, r.Keep = now.Add(-keep.Age).UTC(), keep.Age
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
