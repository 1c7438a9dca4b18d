package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/spec"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of topology files",
		Long: `Print the JSON Schema of topology files, for editors and linters. In a file:

  # yaml-language-server: $schema=./topology.schema.json`,
		Example:     "  dlxctl schema > topology.schema.json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(spec.Schema())
			return err
		},
	}
}
