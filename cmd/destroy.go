package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
)

// newDestroy makes the command destroy. It is apply for a topology that wants nothing.
func newDestroy(a *app) *cobra.Command {
	k := applyCommand{app: a, question: "delete these objects?"}
	c := &cobra.Command{
		Use: "destroy", SuggestFor: []string{"delete", "remove", "uninstall", "down"},
		Short: "Delete a whole topology from the broker",
		Long: `Show what goes, ask for confirmation, and delete everything on the broker that carries the
owner mark of the topology: queues, exchanges, bindings, policies, and the queue of messages
that the desk parked. Only name, vhost and cluster of the topology file count.

Objects without the owner mark stay. A queue that dlxctl created goes, even if the file calls
it external. A queue of another team stays and loses the dead-lettering that dlxctl gave it:
what its consumers reject is lost from then on, unless another policy keeps it.

destroy deletes in the safe order of apply, and is refused where it would lose messages, stop
consumers or drop routing until --allow HAZARD=NAME allows it. A run of the desk that has not
ended blocks it. A retry queue that holds messages stays until it is empty: run destroy again,
or pass --wait.

Exit codes: 0 everything is deleted, 1 failed and nothing was written, 3 refused, 4 some
objects remain, 130 interrupted before the first write.`,
		Example: "  dlxctl destroy\n  dlxctl destroy --yes --allow drops-routing --allow stops-consumers --wait=10m",
		Args:    noArguments, Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := k.plan.read(); err != nil {
				return err
			}
			return k.destroy(c.Context())
		},
	}
	c.Flags().BoolVar(&k.yes, "yes", false, "skip confirmation; required without a terminal")
	addWait(c.Flags(), &k.wait,
		"wait until retry queues are empty, then delete them; --wait=10m gives up after 10m").NoOptDefVal = "true"
	k.plan.addShared(c.Flags())
	k.lock.add(c.Flags())
	return c
}

// destroy deletes the topology of the files.
func (k *applyCommand) destroy(ctx context.Context) error {
	t, err := k.app.files().load()
	if err != nil {
		return err
	}
	r := apply.Runner{Options: k.plan.options, Asks: !k.yes, Settle: 500 * time.Millisecond, Wait: k.wait}
	if r.Session, err = k.app.conn.open(plan.Nothing(t)); err != nil {
		return err
	}
	return k.carry(ctx, &r, r.Destroy)
}
