package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
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
				return jsondoc.WriteLine(a.stdout, versionJSON{runtime.GOARCH, runtime.Version(), runtime.GOOS, Version()})
			}
			_, err := fmt.Fprint(a.stdout, versionText())
			return err
		},
	}
}

// versionJSON is the version as scripts read it.
type versionJSON struct {
	// Arch is the architecture that it was built for.
	Arch string `json:"arch"`
	// Go is the version of the compiler.
	Go string `json:"go"`
	// OS is the operating system that it was built for.
	OS string `json:"os"`
	// Version is that of dlxctl.
	Version string `json:"version"`
}

// versionText is what version and --version print.
func versionText() string {
	return fmt.Sprintf("dlxctl %s (%s, %s/%s)\n", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
