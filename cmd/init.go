package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/templates"
)

func (a *app) initCommand() *cobra.Command {
	var template string
	var force bool
	names := strings.Join(templates.Starters(), "|")
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented starter",
		Long: `Write a commented topology file to start from. It can be applied as it is.

  minimal   the least that works
  full      every key, explained
  park      a failed message waits for a person at once
  tail      a failed message goes to the tail of its queue a few times, then parks
  tiers     a failed message waits longer each time, then parks
  repeats   the same with several attempts in a tier

FILE is topology.yaml unless given, or the one of -f; - writes to stdout. The topology gets
the name of the folder that FILE is in: another team's topology on the same virtual host
has another name.`,
		Example: "  dlxctl init\n  dlxctl init --template tiers orders.yaml\n  dlxctl init --template full -",
		Args:    usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			data, ok := templates.Starter(template)
			if !ok {
				return usageError{fmt.Errorf("there is no template %q, only %s", template, strings.Join(templates.Starters(), ", "))}
			}
			path := a.files[0]
			if len(args) == 1 {
				path = args[0]
			}
			data = templates.Named(data, folderOf(path))
			if path == "-" {
				_, err := a.stdout.Write(data)
				return err
			}
			if err := writeNew(path, data, force); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "wrote %s; next: dlxctl plan%s\n", path, fileFlag(path))
			return nil
		},
	}
	c.Flags().StringVar(&template, "template", "minimal", "which `NAME`: "+names)
	c.Flags().BoolVar(&force, "force", false, "overwrite FILE if it is there")
	return c
}

// folderOf gives the name of the folder that a file is in; for stdout that of the
// current one. It is empty where that cannot be told.
func folderOf(path string) string {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return ""
	}
	return filepath.Base(folder)
}

// writeNew writes path, which must not exist unless force is given.
func writeNew(path string, data []byte, force bool) error {
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; --force overwrites it", path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, reason(err))
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, reason(err))
	}
	return nil
}

// fileFlag gives the flag that names path, where one is needed.
func fileFlag(path string) string {
	if path == "topology.yaml" {
		return ""
	}
	return " -f " + path
}
