package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

func newRights(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rights",
		Short: "Print the permissions that each user needs",
		Long: `Print the set_permissions commands for a topology: for the user that plans and applies,
for the one that migrates (if the file replaces queues), for the processor, for the
services of each owner, for publishers, for verify, and for people at the desk. The user names are
examples. The expressions stay below the 1,024 bytes that RabbitMQ 4.3 accepts: where the
names are too many, they cover all names with a prefix, and a comment says so.
-o definitions prints the permissions for an import into RabbitMQ, without users and tags:
an import would replace the passwords of users. rights needs no broker,
so it cannot see policies of other teams: where plan overrides one, apply needs the tag
policymaker too.`,
		Example:     "  dlxctl rights\n  dlxctl rights -o json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json definitions"},
		RunE: func(*cobra.Command, []string) error {
			t, vhost, err := a.loadPlaced()
			if err != nil {
				return err
			}
			switch a.output {
			case "json":
				return jsondoc.Write(a.stdout, generate.RightsDocument{Version: 1, VHost: vhost, Grants: generate.Rights(t)})
			case "definitions":
				return generate.WriteRightsDefinitions(a.stdout, vhost, generate.Rights(t))
			}
			return generate.WriteRights(a.stdout, vhost, generate.Rights(t))
		},
	}
}
