package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// deskEditCommand is the command desk edit.
type deskEditCommand struct {
	deskAct
	bodyFile string
	sameID   bool
	raw      bool
}

func newDeskEdit(a *app) *cobra.Command {
	k := deskEditCommand{deskAct: newAct(a, desk.Edit)}
	c := &cobra.Command{
		Use:        "edit HANDLE [QUEUE|@WORKQUEUE]",
		SuggestFor: []string{"fix", "change", "modify"},
		Short:      "Change the body of a dead letter and send it to work",
		Long: `Open the body of a dead letter in $VISUAL or $EDITOR, show what changed, and send the
changed message to the work queue in which it failed. The original is parked for 30 days:
'dlxctl desk restore' moves it back. The new message has a new message-id, unless --same-id
is given: consumers that remember the ids that they have handled would skip it.

--body-file takes the new body from a file, for scripts. Only text can be edited in an
editor. A compressed or binary body needs --body-file, with the bytes as they are to be
sent. A body in which something is masked needs --raw, which shows it whole.

Without --yes, edit shows the difference and sends nothing.`,
		Example: `  dlxctl desk edit 0a1b2c3d4e5f
  dlxctl desk edit 0a1b2c3d4e5f @billing --body-file fixed.json --yes`,
		Args:        handleAndQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.choose.addLook(c)
	k.choose.addCost(c.Flags())
	k.choose.addUnfiled(c)
	k.addConsent(c.Flags())
	k.allow.add(c.Flags())
	c.Flags().DurationVar(&k.ask.Settle, "settle", k.ask.Settle,
		"how long no failure must be heard before the message counts as done")
	k.addTarget(c.Flags())
	c.Flags().StringVar(&k.bodyFile, "body-file", "", "`FILE` with the new body; - is stdin")
	c.Flags().BoolVar(&k.sameID, "same-id", false, "keep the message-id")
	c.Flags().BoolVar(&k.raw, "raw", false, "edit a body in which values are masked, and show them")
	return c
}

// run edits one message.
func (k *deskEditCommand) run(c *cobra.Command, args []string) error {
	d, closeDesk, err := k.app.openAct(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	k.ask.Handles = args[:1]
	r, err := k.choose.withLook(k.ask.Request(time.Now()))
	if err != nil {
		return err
	}
	found, err := k.app.findMessage(c.Context(), d, args, r.Look)
	if err != nil {
		return err
	}
	from := deadletter.DigestOf(found.message.Delivery)
	if found.message.Delivery, err = deadletter.Original(found.message.Delivery); err != nil {
		return fmt.Errorf("%w: %w", desk.ErrRefused, err)
	}
	edited, err := k.edited(c, d, found.message)
	if err != nil {
		return err
	}
	if edited.Body == nil || bytes.Equal(edited.Body, found.message.Delivery.Body) {
		fmt.Fprintln(k.app.stdout, "the body is unchanged; nothing was sent")
		return nil
	}
	if !k.sameID {
		edited.MessageID = desk.NewMessageID()
	}
	r.Queue, r.Edited, r.EditedFrom = found.message.Queue, &edited, &from
	if k.app.output == "text" {
		k.showDiff(d, found, edited)
	}
	return k.execute(c, args, d, r)
}

// edited returns the new body: that of --body-file, or what the editor leaves.
func (k *deskEditCommand) edited(c *cobra.Command, d *desk.Desk, m deadletter.Message) (deadletter.Edited, error) {
	switch k.bodyFile {
	case "":
	case "-":
		body, err := io.ReadAll(k.app.stdin)
		return deadletter.Edited{Body: body}, err
	default:
		body, err := os.ReadFile(k.bodyFile)
		if err != nil {
			return deadletter.Edited{}, fmt.Errorf("read %s: %w", k.bodyFile, reason(err))
		}
		return deadletter.Edited{Body: body}, nil
	}
	reader := *d.Reader
	if k.raw {
		reader.Redactor = nil
	}
	before, err := reader.Draft(m)
	if err != nil {
		return deadletter.Edited{}, fmt.Errorf("%w: %w; pass --body-file with the new body, or --raw to edit what is masked", desk.ErrRefused, err)
	}
	after, err := k.inEditor(c.Context(), before)
	if err != nil {
		return deadletter.Edited{}, err
	}
	edited, err := reader.FromDraft(m, after)
	if err != nil {
		return deadletter.Edited{}, fmt.Errorf("%w; nothing was sent; --body-file takes any bytes", err)
	}
	if !k.yes && edited.Body != nil {
		err = k.keep(c, m.Name(), edited.Body)
	}
	return edited, err
}

// showDiff writes what changes, as the rules of redaction show it.
func (k *deskEditCommand) showDiff(d *desk.Desk, found foundMessage, edited deadletter.Edited) {
	reader, after := *d.Reader, found.message
	if k.raw {
		reader.Redactor = nil
	}
	after.Delivery.Body = edited.Body
	difference := deadletter.Diff("before", reader.View(found.message).Body.Text, "after", reader.View(after).Body.Text)
	for line := range strings.Lines(difference) {
		fmt.Fprintln(k.app.stdout, topology.Printable(strings.TrimSuffix(line, "\n")))
	}
}

// inEditor lets the person edit a text.
func (k *deskEditCommand) inEditor(ctx context.Context, text []byte) ([]byte, error) {
	words, err := k.editor()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "dlxctl-body-*") // only this user can read it
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	editor := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...) //nolint:gosec // the person's own
	editor.Stdin, editor.Stdout, editor.Stderr = k.app.stdin, k.app.stderr, k.app.stderr
	if err := editor.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w; nothing was sent", words[0], err)
	}
	return os.ReadFile(f.Name())
}

// editor returns the command of the person's editor.
func (k *deskEditCommand) editor() ([]string, error) {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if v, _ := k.app.env(name); strings.TrimSpace(v) != "" {
			return strings.Fields(v), nil
		}
	}
	return nil, usageError{errors.New("no editor is known; set EDITOR, or pass --body-file")}
}

// keep writes an edited body to a file from which the printed command reads it.
func (k *deskEditCommand) keep(c *cobra.Command, handle string, body []byte) error {
	name := strings.ReplaceAll(handle, "#", "-") + ".body"
	if err := os.WriteFile(name, body, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, reason(err))
	}
	fmt.Fprintf(k.app.stderr, "wrote the edited body to %s\n", name)
	return c.Flags().Set("body-file", name)
}
