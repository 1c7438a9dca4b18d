package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/status"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the retry plane now",
		Long: `Show what waits in each tier, in the failed, dead and unroutable queues, who consumes,
and what a person should look at. Counts are up to 5 seconds old.`,
		Example:     "  dlxctl status\n  dlxctl status -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := a.load()
			if err != nil {
				return err
			}
			m, err := a.management()
			if err != nil {
				return err
			}
			defer m.Close()
			state, err := m.Inspect(c.Context())
			if err != nil {
				return err
			}
			r := status.Make(t, state)
			if a.output == "json" {
				return status.WriteJSON(a.stdout, r)
			}
			return status.WriteText(a.stdout, r)
		},
	}
}
