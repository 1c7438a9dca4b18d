package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/topology"
)

func newCompile(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "compile",
		Short: "Print the objects that topology files compile to",
		Long: `Print the exchanges, queues and bindings that the topology files compile to, without a
broker. -o definitions prints the format that RabbitMQ imports. An import skips objects
that exist already, whatever their arguments, so prefer apply.`,
		Example:     "  dlxctl compile\n  dlxctl compile -o definitions > definitions.json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json definitions"},
		RunE: func(*cobra.Command, []string) error {
			t, err := a.files().load()
			if err != nil {
				return err
			}
			if a.output == "text" {
				return topology.WriteText(a.stdout, t)
			}
			endpoint, err := a.conn.endpoint(t) // the vhost may be that of the URL
			if err != nil {
				return err
			}
			write := topology.JSON
			if a.output == "definitions" {
				write = topology.Definitions
			}
			data, err := write(t, endpoint.VHost)
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(data)
			return err
		},
	}
}
