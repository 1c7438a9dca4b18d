package cmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// deskReplayCommand is the command desk replay.
type deskReplayCommand struct {
	deskAct
	send                 sendFlags
	to, key              string
	keepHistory, keepTTL bool
}

func newDeskReplay(a *app) *cobra.Command {
	k := deskReplayCommand{deskAct: deskAct{app: a}}
	c := &cobra.Command{
		Use:        "replay QUEUE|@WORKQUEUE",
		SuggestFor: []string{"retry", "requeue", "redrive", "resend", "reprocess"},
		Short:      "Send dead letters back to work",
		Long: `Send dead letters back to the work queue in which each of them failed, with the routing
key of the publisher. Their attempts count from the beginning. Consumers must be
idempotent: a message that failed halfway does again what it has done before.

Without --yes, replay shows what it would do. With --yes, it takes exactly the chosen
messages into a hold, a queue of the run, and sends them from there: first in the batches
of --ramp, then at --rate. It hears at once when a message fails again. After --stop-on
failures it stops, and the rest stays in the hold: 'dlxctl desk run resume' sends it,
'dlxctl desk run return' puts it back. Ctrl-C and a kill stop it in the same way.

--to says where to: queue is the work queue in which each message failed; original is the
exchange of the publisher, and so all queues that are bound there; queue:NAME and
exchange:NAME name one place for all messages.

A message that was replayed before is left out, unless --again is given.

Exit codes: 0 done or shown, 1 failed and nothing was moved, 2 stopped with messages left
in the hold, 3 refused, 4 some messages were moved but not all.`,
		Example: `  dlxctl desk replay @billing
  dlxctl desk replay billing.dead --where 'cause == "rejected"' --since 6h --yes --expect 37
  dlxctl desk replay @billing --handle 0a1b2c3d4e5f --yes
  dlxctl desk replay @billing --to exchange:fixed --key order.placed`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, args []string) error {
			return k.on(c, args, named(args[0]), k.complete)
		},
	}
	k.add(c)
	k.send.add(c.Flags())
	k.allow.add(c.Flags())
	c.Flags().BoolVar(&k.choose.again, "again", false, "also choose messages that were replayed before")
	c.Flags().StringVar(&k.to, "to", "queue", "`TARGET`: queue, original, queue:NAME or exchange:NAME")
	c.Flags().StringVar(&k.key, "key", "", "routing `KEY` for --to exchange:NAME")
	c.Flags().BoolVar(&k.keepHistory, "keep-history", false, "keep the headers retry-*, which describe the failure")
	c.Flags().BoolVar(&k.keepTTL, "keep-ttl", false, "give each message the expiration that its publisher gave it")
	return c
}

// complete adds target and limits to a request.
func (k *deskReplayCommand) complete(r *desk.Request) error {
	r.Action, r.KeepHistory, r.KeepTTL = desk.Replay, k.keepHistory, k.keepTTL
	var err error
	if r.Target, err = deskTarget(k.to, k.key); err != nil {
		return err
	}
	r.Send, err = k.send.options(desk.SendOptions{}, nil)
	return err
}

// deskTarget reads --to and --key.
func deskTarget(to, key string) (desk.Target, error) {
	kind, name, named := strings.Cut(to, ":")
	switch {
	case key != "" && kind != "exchange":
		return desk.Target{}, usageError{errors.New("--key needs --to exchange:NAME; pass both")}
	case to == "queue":
		return desk.Target{}, nil
	case to == "original":
		return desk.Target{Original: true}, nil
	case kind == "queue" && named && name != "":
		return desk.Target{Queue: name}, nil
	case kind == "exchange" && named && name != "":
		return desk.Target{Exchange: name, Key: key}, nil
	default:
		return desk.Target{}, usageError{fmt.Errorf("--to is %q; write queue, original, queue:NAME or exchange:NAME", to)}
	}
}
