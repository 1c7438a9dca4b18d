package cmd

import (
	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/spec"
)

func newSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of topology files",
		Long: `Print the JSON Schema of topology files, for editors and linters. To use it, begin a
file with:

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
