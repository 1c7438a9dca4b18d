package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

// version, commit and date are set by the linker in make build; see Version and origin.
//
//nolint:gochecknoglobals // the linker can set nothing else
var version, commit, date string

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

// origin returns the commit of this build, and its time in UTC: those that the linker set,
// otherwise those that go build noted. Both are empty if they are not known, as after go install.
func origin() (of, at string) {
	of, at = commit, date
	if info, ok := debug.ReadBuildInfo(); ok && of == "" {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				of = s.Value
			case "vcs.time":
				at = s.Value
			}
		}
	}
	return of, at
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				of, at := origin()
				return jsondoc.WriteLine(a.stdout,
					versionJSON{runtime.GOARCH, of, at, runtime.Version(), runtime.GOOS, Version()})
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
	// Commit is the commit that it was built from. Empty: it is not known.
	Commit string `json:"commit"`
	// Date is the time of the commit, in UTC. Empty: it is not known.
	Date string `json:"date"`
	// Go is the version of the compiler.
	Go string `json:"go"`
	// OS is the operating system that it was built for.
	OS string `json:"os"`
	// Version is that of dlxctl.
	Version string `json:"version"`
}

func versionText() string {
	built := fmt.Sprintf("%s, %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if of, at := origin(); of != "" {
		built = fmt.Sprintf("commit %.12s of %s, %s", of, at, built)
	}
	return fmt.Sprintf("dlxctl %s (%s)\n", Version(), built)
}
