package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/generate"
)

func (a *app) rightsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rights",
		Short: "Print the permissions that CI, the processor and the services need",
		Long: `Print the set_permissions lines for a file: for who plans and applies, for who
migrates (if queues are replaced), for the processor, for the services of each owner,
and for publishers. The names of the users are examples. It needs no broker, so it
cannot know of policies of other teams: where plan overrides one, apply needs the tag
policymaker too.`,
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
