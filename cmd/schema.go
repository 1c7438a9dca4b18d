package cmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/spec"
)

func newSchema(a *app) *cobra.Command {
	overlay, clusters := false, false
	c := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of topology files",
		Long: `Print the JSON Schema of topology files, for editors and linters. To use it, begin a
file with:

  # yaml-language-server: $schema=./topology.schema.json

--for-overlays prints that of overlays, in which no key is required, and null removes one.
--for-clusters prints that of files for 'dlxctl desk serve --cluster'.`,
		Example:     "  dlxctl schema > topology.schema.json\n  dlxctl schema --for-overlays > overlay.schema.json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			schema := spec.Schema()
			switch {
			case overlay && clusters:
				return usageError{errors.New("--for-overlays and --for-clusters exclude each other; pass one of them")}
			case overlay:
				schema = spec.OverlaySchema()
			case clusters:
				schema = spec.ClustersSchema()
			}
			_, err := a.stdout.Write(schema)
			return err
		},
	}
	c.Flags().BoolVar(&overlay, "for-overlays", false, "print the schema of overlays")
	c.Flags().BoolVar(&clusters, "for-clusters", false, "print the schema of files that list clusters")
	return c
}
