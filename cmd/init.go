package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/templates"
)

func newInit(a *app) *cobra.Command {
	var template string
	var force bool
	names := strings.Join(templates.Starters(), "|")
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented topology file",
		Long: `Write a commented topology file to start from. It can be applied as it is.

  minimal   the shortest topology that works
  full      every key, explained
  direct    a failed message goes straight to its dead-letter queue
  in-place  a requeued message comes back at once, in its order, a few times
  tail      a failed message returns to the tail of its queue a few times, then is dead-lettered
  tiers     a failed message waits longer each time, then is dead-lettered
  repeats   like tiers, with several attempts in a tier
  crashes   like tiers, and a message whose consumer dies waits too
  filter    what is requeued comes back later, and what is rejected is dead-lettered at once
  deadline  like tiers, and what no consumer takes in time is dead-lettered
  discard   like tiers, then it is deleted
  priority  like tiers, and comes back behind new messages, if its consumer says so
  elsewhere a failed message waits, and then comes to another queue, with consumers of its own
  native    RabbitMQ 4.3.1 or later delays the retries itself, and no processor is needed

FILE is topology.yaml, or the file of -f; - writes to stdout. The topology gets the name
of the folder that FILE is in. Topologies of different teams on one virtual host need
different names.`,
		Example: "  dlxctl init\n  dlxctl init --template tiers orders.yaml\n  dlxctl init --template full -",
		Args:    usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			data, ok := templates.Starter(template)
			if !ok {
				return usageError{fmt.Errorf("unknown template %q; write %s", template, strings.Join(templates.Starters(), ", "))}
			}
			path := a.paths[0]
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
	c.Flags().StringVar(&template, "template", "minimal", "template `NAME`: "+names)
	c.Flags().BoolVar(&force, "force", false, "overwrite FILE if it exists")
	return c
}

// folderOf returns the name of the folder that a file is in; for stdout that of the
// current folder. It is empty if the folder is unknown.
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
		return fmt.Errorf("%s exists already; pass --force to overwrite it", path)
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

// fileFlag returns the -f flag for path. It is empty for the default path.
func fileFlag(path string) string {
	if path == "topology.yaml" {
		return ""
	}
	return " -f " + text.ShellQuote(path)
}
