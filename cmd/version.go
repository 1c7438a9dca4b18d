package cmd

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in make build; see Version.
var version string // the linker can set nothing else

// Version returns the version of this build: the one that the linker set, otherwise the
// one of the Go module, otherwise "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				return json.NewEncoder(a.stdout).Encode(map[string]string{
					"version": Version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			_, err := fmt.Fprint(a.stdout, versionText())
			return err
		},
	}
}

// versionText is what version and --version print.
func versionText() string {
	return fmt.Sprintf("dlxctl %s (%s, %s/%s)\n", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
