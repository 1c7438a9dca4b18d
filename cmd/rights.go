package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/generate"
)

func newRights(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rights",
		Short: "Print the permissions that each user needs",
		Long: `Print the set_permissions commands for a topology: for the user that plans and applies,
for the one that migrates (if the file replaces queues), for the processor, for the
services of each owner, and for publishers. The user names are examples. rights needs no
broker, so it cannot see policies of other teams: where plan overrides one, apply needs
the tag policymaker too.`,
		Example:     "  dlxctl rights\n  dlxctl rights -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			t, vhost, err := a.loadPlaced()
			if err != nil {
				return err
			}
			if a.output == "json" {
				return generate.WriteRightsJSON(a.stdout, vhost, generate.Rights(t))
			}
			return generate.WriteRights(a.stdout, vhost, generate.Rights(t))
		},
	}
}
