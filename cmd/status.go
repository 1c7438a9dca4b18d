package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/status"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the retry plane now",
		Long: `Show what waits in each tier, in the failed, dead and unroutable queues, who consumes,
and what a person should look at. Counts are up to 5 seconds old. Files that say a name
each are a topology each; -o json writes one object for each.`,
		Example:     "  dlxctl status\n  dlxctl status -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := a.loadEach()
			if err != nil {
				return err
			}
			for i, l := range all {
				if i > 0 && a.output == "text" {
					fmt.Fprintln(a.stdout)
				}
				if err := a.status(c.Context(), l); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// status writes the report of one topology.
func (a *app) status(ctx context.Context, l loaded) error {
	m, err := a.managementOf(l.conn, l.topology)
	if err != nil {
		return err
	}
	defer m.Close()
	state, _, err := inspect(ctx, m, l.topology, plan.Options{})
	if err != nil {
		return err
	}
	state = m.AskConsumers(ctx, state, broker.UnknownConsumers(state))
	r := status.Make(l.topology, state)
	if a.output == "json" {
		return status.WriteJSON(a.stdout, r)
	}
	return status.WriteText(a.stdout, r)
}
