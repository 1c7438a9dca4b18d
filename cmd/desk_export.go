package cmd

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type deskExportCommand struct {
	deskLook
	raw bool
}

func newDeskExport(a *app) *cobra.Command {
	k := deskExportCommand{deskLook: deskLook{app: a}}
	c := &cobra.Command{
		Use:        "export QUEUE|@WORKQUEUE FOLDER|FILE.jsonl",
		SuggestFor: []string{"save", "dump", "backup", "download"},
		Short:      "Copy dead letters to files",
		Long: `Copy dead letters to a new file with a line of JSON for each, or to a new folder with a
file for each. The messages stay in the queue. Only you can read the files.

Values are masked as in every other output, and such a copy cannot be imported. --raw
copies each message whole: its body byte for byte, all properties, and the headers with
their types. 'dlxctl desk import' takes only such a copy. In a folder it has a file for each
body.

In a copy by --raw a header has its type, as in {"count":{"int32":-1}}: bool, int8 to int64,
uint8 to uint32, float32, float64, string, bytes (base64), timestamp (seconds since 1970),
decimal (scale and value), table, array, or null. A text that is not UTF-8, or begins with
base64:, is written as base64: and its bytes. sha256 is a hash of the whole message: the
import says where a message was changed, and writes each as persistent.`,
		Example: `  dlxctl desk export @billing billing.jsonl
  dlxctl desk export @billing folder --raw --where 'cause == "rejected"'`,
		Args:        queueAndPath,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE:        k.run,
	}
	k.choose.add(c)
	k.choose.addUnfiled(c)
	k.choose.addLimit(c.Flags(), 0, "copy so many messages at most; 0 is all")
	k.choose.addSkip(c.Flags())
	c.Flags().BoolVar(&k.raw, "raw", false, "copy the messages whole, with nothing masked")
	return c
}

func queueAndPath(c *cobra.Command, args []string) error {
	if len(args) == 2 && args[0] != "" && args[1] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s needs a queue and a path, but got %s; write %s @WORKQUEUE billing.jsonl, or a folder",
		c.CommandPath(), text.Count(len(args), "argument"), c.CommandPath())}
}

// run copies messages.
func (k *deskExportCommand) run(c *cobra.Command, args []string) error {
	return k.in(c.Context(), args[0], func(d *desk.Desk, r desk.Request) error {
		write, closeFiles, err := k.files(args[1])
		if err != nil {
			return err
		}
		picked, err := d.Pick(c.Context(), r, write)
		if err = errors.Join(err, closeFiles()); err != nil {
			return unfinished(args[1], picked.Shown, err)
		}
		reached := k.app.picked(r, picked)
		if reached != nil && !errors.Is(reached, desk.ErrUnreached) {
			return reached
		}
		how := "with what the rules mask masked; it cannot be imported, and --raw makes a copy that can"
		switch {
		case k.raw:
			how = "whole, with nothing masked"
		case d.Found != nil && !d.Found.Masked && !k.choose.showBodies:
			how = "without their bodies; --show-bodies copies them too, and --raw makes a copy that can be imported"
		}
		_, err = fmt.Fprintf(k.app.stdout, "copied %s to %s, %s\n", text.Count(picked.Shown, "message"),
			topology.Printable(args[1]), how)
		return cmp.Or(err, reached)
	})
}

// unfinished is the error of an export that failed. It removes the new file or folder if no message
// was copied, so that the same command can run again. A folder with files stays.
func unfinished(path string, copied int, err error) error {
	if copied == 0 && os.Remove(path) == nil {
		return fmt.Errorf("%w; nothing was copied", err)
	}
	return fmt.Errorf("%w; %s has %d of the messages", err, path, copied)
}

// files returns what writes a message to a path, and what ends the export.
func (k *deskExportCommand) files(path string) (func(deadletter.Message, deadletter.View) error, func() error, error) {
	if !strings.HasSuffix(path, ".jsonl") {
		return k.folder(path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("%s exists already; name a new file", path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("write %s: %w", path, reason(err))
	}
	w := bufio.NewWriter(f)
	write := func(m deadletter.Message, v deadletter.View) error {
		if k.raw {
			return deadletter.WriteArchived(w, m)
		}
		return deadletter.WriteRedacted(w, v)
	}
	return write, func() error { return errors.Join(w.Flush(), f.Sync(), f.Close()) }, nil
}

// folder is files for a folder.
func (k *deskExportCommand) folder(path string) (func(deadletter.Message, deadletter.View) error, func() error, error) {
	if err := os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, nil, fmt.Errorf("%s exists already; name a new folder, or a file that ends in .jsonl", path)
	} else if err != nil {
		return nil, nil, fmt.Errorf("write %s: %w", path, reason(err))
	}
	n := 0
	write := func(m deadletter.Message, v deadletter.View) error {
		n++
		if !k.raw {
			name, content, err := deadletter.RedactedFile(v, n)
			return errors.Join(err, os.WriteFile(filepath.Join(path, name), content, 0o600))
		}
		name, content, bodyName, err := deadletter.ArchiveFiles(m, n)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(filepath.Join(path, bodyName), m.Delivery.Body, 0o600),
			os.WriteFile(filepath.Join(path, name), content, 0o600))
	}
	return write, func() error { return nil }, nil
}
