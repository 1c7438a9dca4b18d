package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskReplayCommand struct{ deskAct }

func newDeskReplay(a *app) *cobra.Command {
	k := deskReplayCommand{newAct(a, desk.Replay)}
	c := &cobra.Command{
		Use:        "replay QUEUE|@WORKQUEUE",
		SuggestFor: []string{"retry", "requeue", "redrive", "resend", "reprocess"},
		Short:      "Send dead letters back to work",
		Long: `Send dead letters back to the work queue in which each of them failed, with the routing
key of the publisher. Their attempts count from the beginning. Consumers must be
idempotent: a message that failed halfway does again what it has done before.

Without --yes, replay shows what it would do. With --yes, it takes exactly the chosen
messages into a hold, a queue of the run, and sends them from there: first in the batches
of --ramp, then at --rate. It hears when a message fails again, at once in work queues of
the topology, and elsewhere once it is back in QUEUE; it says where it cannot hear that.
After --stop-on failures it stops, and the rest stays in the hold: 'dlxctl desk run resume'
sends it, 'dlxctl desk run return' puts it back. Ctrl-C and a kill stop it in the same way.

--to says where to: queue is the work queue in which each message failed; original is the
exchange of the publisher, and so all queues that are bound there; queue:NAME and
exchange:NAME name one place for all messages.

A message that was replayed before is left out, unless --again is given.

Exit codes: 0 done or shown, 1 failed and nothing was moved, 2 stopped because messages
failed again, or with messages left in the hold, 3 refused, 4 some messages were moved but
not all, 5 done for the messages that the look reached, which were not all, 130 interrupted
before anything was moved.`,
		Example: `  dlxctl desk replay @billing
  dlxctl desk replay billing.dead --where 'cause == "rejected"' --since 6h --yes --expect 37
  dlxctl desk replay @billing --handle 0a1b2c3d4e5f --yes
  dlxctl desk replay @billing --to exchange:fixed --key order.placed`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, args []string) error {
			return k.proposeIn(c, args, named(args[0]))
		},
	}
	k.add(c)
	addLimits(c.Flags(), &k.ask.Limits)
	k.allow.add(c.Flags())
	k.addTarget(c.Flags())
	c.Flags().BoolVar(&k.ask.Again, "again", false, "also choose messages that were replayed before")
	c.Flags().BoolVar(&k.ask.KeepHistory, "keep-history", false, "keep the headers that describe the failure: retry-*, and those of frameworks")
	c.Flags().BoolVar(&k.ask.KeepTTL, "keep-ttl", false, "give each message the expiration that its publisher gave it")
	return c
}
