package cmd

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// deskEditCommand is the command desk edit.
type deskEditCommand struct {
	deskAct
	send     sendFlags
	to, key  string
	bodyFile string
	sameID   bool
	raw      bool
}

func newDeskEdit(a *app) *cobra.Command {
	k := deskEditCommand{deskAct: deskAct{app: a}}
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
	k.addConsent(c.Flags())
	c.Flags().DurationVar(&k.send.settle, "settle", 5*time.Second,
		"how long no failure must be heard before the message counts as done")
	c.Flags().StringVar(&k.to, "to", "queue", "`TARGET`: queue, original, queue:NAME or exchange:NAME")
	c.Flags().StringVar(&k.key, "key", "", "routing `KEY` for --to exchange:NAME")
	c.Flags().StringVar(&k.bodyFile, "body-file", "", "`FILE` with the new body; - is stdin")
	c.Flags().BoolVar(&k.sameID, "same-id", false, "keep the message-id")
	c.Flags().BoolVar(&k.raw, "raw", false, "edit a body in which values are masked, and show them")
	return c
}

// run edits one message.
func (k *deskEditCommand) run(c *cobra.Command, args []string) error {
	d, closeDesk, err := k.app.openDesk(k.choose.messages)
	if err != nil {
		return err
	}
	defer closeDesk()
	r, err := k.request(args)
	if err != nil {
		return err
	}
	found, err := k.app.findMessage(c.Context(), d, args, r.Look)
	if err != nil {
		return err
	}
	r.Queue = found.message.Queue
	before := found.message.Delivery.Body
	after, err := k.edited(c, found)
	if err != nil {
		return err
	}
	if bytes.Equal(after, before) {
		fmt.Fprintln(k.app.stdout, "the body is unchanged; nothing was sent")
		return nil
	}
	if r.Edited = (&deadletter.Edited{Body: after}); !k.sameID {
		r.Edited.MessageID = newMessageID()
	}
	if k.app.output != "json" {
		writeDiff(k.app.stdout, "before", before, "after", after)
	}
	return k.do(c, args, d, r)
}

// request returns the request without the queue and the new body.
func (k *deskEditCommand) request(args []string) (desk.Request, error) {
	r := desk.Request{Action: desk.Edit, Handles: args[:1], Limit: 1, Again: true}
	// One message, and its first failure stops the run.
	r.Send = desk.SendOptions{Ramp: []int{1}, StopFailures: 1}
	if err := k.send.setSettle(&r.Send); err != nil {
		return desk.Request{}, usageError{err}
	}
	var err error
	if r.Look, err = k.choose.look(); err != nil {
		return desk.Request{}, err
	}
	r.Target, err = deskTarget(k.to, k.key)
	return r, err
}

// edited returns the new body: that of --body-file, or what the editor leaves.
func (k *deskEditCommand) edited(c *cobra.Command, found foundMessage) ([]byte, error) {
	m := found.message
	switch {
	case k.bodyFile == "-":
		return io.ReadAll(k.app.stdin)
	case k.bodyFile != "":
		body, err := os.ReadFile(k.bodyFile)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", k.bodyFile, reason(err))
		}
		return body, nil
	case m.Delivery.ContentEncoding != "" || !utf8.Valid(m.Delivery.Body) || bytes.ContainsRune(m.Delivery.Body, 0):
		return nil, fmt.Errorf("%w: the body is not plain text; pass --body-file with the bytes to send, as %s returns them",
			desk.ErrRefused, shellLine(c, "desk", "show", found.view.Name(), m.Queue, "--raw"))
	case found.masked && !k.raw:
		return nil, fmt.Errorf("%w: values of the body are masked, and the editor would show them; pass --raw to see them, or --body-file",
			desk.ErrRefused)
	}
	body, err := k.inEditor(c, m.Delivery.Body)
	if err != nil || k.yes || bytes.Equal(body, m.Delivery.Body) {
		return body, err
	}
	return body, k.keep(c, found.view.Name(), body)
}

// inEditor lets the person edit a body. JSON in one line is shown in several, and stored in one.
func (k *deskEditCommand) inEditor(c *cobra.Command, body []byte) ([]byte, error) {
	words, err := k.editor()
	if err != nil {
		return nil, err
	}
	shown, flat := body, false
	if indented := new(bytes.Buffer); !bytes.ContainsRune(body, '\n') && json.Indent(indented, body, "", "  ") == nil {
		shown, flat = append(indented.Bytes(), '\n'), true
	}
	f, err := os.CreateTemp("", "dlxctl-body-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) // --body-file keeps a body of its own
	_, err = f.Write(shown)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	editor := exec.CommandContext(c.Context(), words[0], append(words[1:], f.Name())...) //nolint:gosec // the person's own
	editor.Stdin, editor.Stdout, editor.Stderr = k.app.stdin, k.app.stderr, k.app.stderr
	if err := editor.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w; nothing was sent", words[0], err)
	}
	after, err := os.ReadFile(f.Name())
	switch {
	case err != nil:
		return nil, err
	case bytes.Equal(after, shown):
		return body, nil
	case !flat:
		return after, nil
	}
	compact := new(bytes.Buffer)
	if err := json.Compact(compact, after); err != nil {
		return nil, fmt.Errorf("the edited body is no JSON any more: %w; nothing was sent; pass it with --body-file if it is meant", err)
	}
	return compact.Bytes(), nil
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

// newMessageID returns a random UUID, the form of a message-id that most consumers expect.
func newMessageID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
