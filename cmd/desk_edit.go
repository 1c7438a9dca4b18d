package cmd

import (
	"context"
	"encoding/json"
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

type deskEditCommand struct {
	deskAct
	bodyFile string
	set      []string
	remove   []string
	sameID   bool
	raw      bool
}

func newDeskEdit(a *app) *cobra.Command {
	k := deskEditCommand{deskAct: newAct(a, desk.Edit)}
	c := &cobra.Command{
		Use:        "edit HANDLE [QUEUE|@WORKQUEUE]",
		SuggestFor: []string{"fix", "change", "modify"},
		Short:      "Change a dead letter and send it to work",
		Long: `Open the body of a dead letter in $VISUAL or $EDITOR, show what changed, and send the
changed message to the work queue in which it failed. The original is parked for 30 days:
'dlxctl desk restore' moves it back. The new message has a new message-id, unless --same-id
is given: consumers that remember the ids that they have handled would skip it.

--set-header and --remove-header change headers, and --key the routing key; the body then stays
as it is, unless --body-file is given. A header keeps its type, and a new one is a string:
NAME:TYPE=VALUE gives it another one. Tables and lists are JSON as in an export. Headers of
dlxctl, RabbitMQ and of the failure cannot be changed, and masked ones only with --raw. All
others keep their values and types, also those that are masked.

--body-file takes the new body from a file, for scripts. Only text can be edited in an
editor. A compressed or binary body needs --body-file, with the bytes as they are to be
sent; an empty file is refused, but for /dev/null. A body in which something is masked
needs --raw, which shows it whole.

Without --yes, edit shows the difference and sends nothing.`,
		Example: `  dlxctl desk edit 0a1b2c3d4e5f
  dlxctl desk edit 0a1b2c3d4e5f @billing --body-file fixed.json --yes
  dlxctl desk edit 0a1b2c3d4e5f --set-header tenant=eu-2 --set-header 'version:int32=2' \
      --remove-header debug --key order.changed`,
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
	f := c.Flags()
	f.Lookup("key").Usage = "routing `KEY` of the message, or for --to exchange:NAME"
	f.StringArrayVar(&k.set, "set-header", nil, "header `NAME=VALUE` or NAME:TYPE=VALUE; repeat the flag for several")
	f.StringArrayVar(&k.remove, "remove-header", nil, "`NAME` of a header that goes; repeat the flag for several")
	c.Flags().BoolVar(&k.sameID, "same-id", false, "keep the message-id")
	c.Flags().BoolVar(&k.raw, "raw", false, "edit a body or headers in which values are masked, and show them")
	return c
}

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
	from := deadletter.DigestOf(found.message.Delivery).Whole(found.message.Delivery)
	if found.message.Delivery, err = deadletter.Original(found.message.Delivery); err != nil {
		return fmt.Errorf("%w: %w", desk.ErrRefused, err)
	}
	edited, err := k.edited(c, d, found.message, r.Key)
	if err != nil {
		return err
	}
	if edited.Unchanged(found.message.Delivery) && (r.Key == "" || r.Key == k.reader(d).View(found.message).Key) {
		fmt.Fprintln(k.app.stdout, "the message is unchanged; nothing was sent")
		return nil
	}
	if !k.sameID {
		edited.MessageID = desk.NewMessageID()
	}
	r.Queue, r.Edited, r.EditedFrom = found.message.Queue, &edited, &from
	if k.app.output == "text" {
		k.showDiff(d, found.message, edited, r.Key)
	}
	return k.execute(c, args, d, r)
}

// reader returns the reader of the desk, which masks nothing with --raw.
func (k *deskEditCommand) reader(d *desk.Desk) *deadletter.Reader {
	reader := *d.Reader
	if k.raw {
		reader.Redactor = nil
	}
	return &reader
}

// edited returns what the flags change, and the new body: that of --body-file, or, if no flag
// changes anything, what the editor leaves.
func (k *deskEditCommand) edited(c *cobra.Command, d *desk.Desk, m deadletter.Message, key string) (
	edited deadletter.Edited, err error,
) {
	var changes []deadletter.HeaderChange
	for _, s := range k.set {
		change, err := deadletter.ParseHeaderChange(s)
		if err != nil {
			return edited, usageError{fmt.Errorf("--set-header: %w", err)}
		}
		changes = append(changes, change)
	}
	for _, name := range k.remove {
		changes = append(changes, deadletter.HeaderChange{Name: name, Remove: true})
	}
	if edited, err = k.reader(d).View(m).Change(m.Delivery, changes); err != nil {
		return edited, fmt.Errorf("%w: %w", desk.ErrRefused, err)
	}
	if k.bodyFile != "" || len(changes) == 0 && key == "" {
		edited.Body, err = k.body(c, d, m)
	}
	return edited, err
}

// body returns the new body: that of --body-file, or what the editor leaves. Nil: it is unchanged.
func (k *deskEditCommand) body(c *cobra.Command, d *desk.Desk, m deadletter.Message) ([]byte, error) {
	if k.bodyFile != "" {
		return k.fromFile(m)
	}
	reader := k.reader(d)
	before, err := reader.Draft(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; pass --raw to edit what is masked, or --body-file with a body that has all values", desk.ErrRefused, err)
	}
	after, err := k.inEditor(c.Context(), before)
	if err != nil {
		return nil, err
	}
	edited, err := reader.FromDraft(m, after)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was sent; --body-file takes any bytes", err)
	}
	if !k.yes && edited.Body != nil {
		err = k.keep(c, m.Name(), edited.Body)
	}
	return edited.Body, err
}

// fromFile returns the body of --body-file.
func (k *deskEditCommand) fromFile(m deadletter.Message) (body []byte, err error) {
	name := k.bodyFile
	if name == "-" {
		name = "stdin"
		body, err = io.ReadAll(k.app.stdin)
	} else {
		body, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, reason(err))
	}
	before := m.Delivery.Body
	if k.bodyFile == os.DevNull { // empty on purpose
		return body, nil
	}
	if err := deadletter.CheckBody(before, body); err != nil {
		return nil, fmt.Errorf("%w: %s %w; nothing was sent", desk.ErrRefused, name, err)
	}
	if json.Valid(before) && !json.Valid(body) {
		fmt.Fprintf(k.app.stderr, "note: %s is not JSON, but the body of the message is JSON\n", name)
	}
	return body, nil
}

// showDiff writes what changes, as the rules of redaction show it.
func (k *deskEditCommand) showDiff(d *desk.Desk, m deadletter.Message, edited deadletter.Edited, key string) {
	reader, after := k.reader(d), m
	difference := deadletter.DiffHeaders(m.Delivery, edited, reader.View(m).Key, key)
	if edited.Body != nil {
		after.Delivery.Body = edited.Body
		difference += deadletter.Diff("before", reader.View(m).Body.Text, "after", reader.View(after).Body.Text)
	}
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
