package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// statusCommand is the command status.
type statusCommand struct{ app *app }

func newStatus(a *app) *cobra.Command {
	k := statusCommand{app: a}
	return &cobra.Command{
		Use:   "status",
		Short: "Show queue depths, consumers and warnings",
		Long: `Show how many messages wait in each work queue, tier, failed, dead-letter and unroutable
queue, in the holds of 'dlxctl desk' and parked there, how many consumers each queue has, and
warnings. Counts are up to 5 seconds old.
Each file with its own 'name' is a separate topology; -o json writes one object for each.`,
		Example:     "  dlxctl status\n  dlxctl status -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
}

func (k *statusCommand) run(ctx context.Context) error {
	all, err := k.app.files().loadEach()
	if err != nil {
		return err
	}
	for i, t := range all {
		if i > 0 && k.app.output == "text" {
			fmt.Fprintln(k.app.stdout)
		}
		if err := k.write(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// write writes the report of one topology.
func (k *statusCommand) write(ctx context.Context, t topology.Compiled) error {
	s, err := k.app.conn.open(t)
	if err != nil {
		return err
	}
	defer s.Close()
	state, _, err := s.Inspect(ctx, plan.Options{})
	if err != nil {
		return err
	}
	state = s.Management.AskConsumers(ctx, state, management.UnknownConsumers(state))
	report := status.Make(t, state)
	if k.app.output == "json" {
		return status.WriteJSON(k.app.stdout, report)
	}
	return status.WriteText(k.app.stdout, report)
}
