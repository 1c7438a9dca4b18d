package cmd

import (
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type deskImportCommand struct {
	app    *app
	name   string
	skip   int
	yes    bool
	expect int
	allow  allowFlag
}

func newDeskImport(a *app) *cobra.Command {
	k := deskImportCommand{app: a}
	c := &cobra.Command{
		Use:        "import QUEUE|@WORKQUEUE FOLDER|FILE.jsonl",
		SuggestFor: []string{"load", "upload"},
		Short:      "Put exported messages into a queue",
		Long: `Put messages that 'dlxctl desk export --raw' copied into a queue, at its tail and in their
order, with body, properties and headers as they were. Each is published as mandatory and
confirmed. The user-id and the expiration are left out: the broker accepts only the user
of the connection, and a message that expires would not stay. Exchange and routing key
become those of the queue, unless headers have them too. A queue that would drop messages
is refused.

import does not know what the queue has already: it puts a message there twice if the
original is still in the queue. An import that was interrupted says how many messages are
in the queue, and how many more may be; --skip continues behind them.

Without --yes, import reads the files and shows what it would do.

Exit codes: 0 done or shown, 1 failed and nothing was imported, 3 refused, 4 some messages
were imported but not all, 130 interrupted before the first.`,
		Example:     "  dlxctl desk import @billing billing.jsonl\n  dlxctl desk import @billing billing.jsonl --yes --expect 12",
		Args:        queueAndPath,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE:        k.run,
	}
	k.allow.add(c.Flags())
	addName(c.Flags(), &k.name)
	c.Flags().BoolVar(&k.yes, "yes", false, "do it; without this flag the command only shows what it would do")
	c.Flags().IntVar(&k.expect, "expect", 0, "refuse to do it if there are not exactly `N` messages")
	c.Flags().IntVar(&k.skip, "skip", 0, "leave out the first `N` messages of the files")
	return c
}

func (k *deskImportCommand) run(c *cobra.Command, args []string) error {
	if k.skip < 0 {
		return usageError{fmt.Errorf("--skip is %d; write 0 or more", k.skip)}
	}
	d, closeDesk, err := k.app.openRuns(c.Context(), k.name, false)
	if err != nil {
		return err
	}
	defer closeDesk()
	if d.Allow, err = k.allow.queues(); err != nil {
		return err
	}
	place, err := placeOf(d, args[0])
	if err != nil {
		return err
	}
	// All files are read before the first message is published: an import that stops at a
	// damaged file would be half an import.
	count, changed, bytes, err := k.check(args[1])
	if err != nil {
		return err
	}
	fmt.Fprintf(k.app.stdout, "%s has %s%s; they would go to the tail of %s\n", topology.Printable(args[1]),
		text.Count(count, "message"), changedText(changed), text.Name(place.queue))
	switch {
	case k.yes && c.Flags().Changed("expect") && count != k.expect:
		return fmt.Errorf("%w: --expect is %d, but %s has %d; nothing was imported; look again without --yes",
			desk.ErrRefused, k.expect, topology.Printable(args[1]), count)
	case count == 0:
		return nil
	}
	if err := d.RefuseImport(c.Context(), place.queue, count, bytes); err != nil {
		return acceptLoss(c, err)
	}
	if !k.yes {
		fmt.Fprintf(k.app.stdout, "nothing was imported; to do it: %s\n",
			commandLine(c, args, "--yes", "--expect", fmt.Sprint(count)))
		return nil
	}
	return k.publish(c, d, args, place.queue, count)
}

// publish imports the messages, and says how far it came.
func (k *deskImportCommand) publish(c *cobra.Command, d *desk.Desk, args []string, queue string, count int) error {
	p := k.app.newProgress("imported", "messages", count)
	im, err := d.Import(c.Context(), queue, k.messages(args[1]), p.set)
	p.finish()
	if im.Done > 0 || err == nil {
		fmt.Fprintf(k.app.stdout, "imported %s into %s\n", text.Count(im.Done, "message"), text.Name(queue))
	}
	if err == nil || im == (desk.Imported{}) {
		return err
	}
	if c.Context().Err() != nil {
		err = errors.New("interrupted")
	}
	_ = c.Flags().Set("skip", fmt.Sprint(k.skip+im.Done)) // a number is always accepted
	next := "to continue: " + commandLine(c, args, "--yes")
	if im.Doubtful > 0 {
		next = fmt.Sprintf("some or all of the next %s may be in %s too; look which, and add to --skip how many there are: %s",
			text.Count(im.Doubtful, "message"), text.Name(queue), commandLine(c, args, "--yes"))
	}
	return &deskPartError{stepsError{err, []string{next}}}
}

func changedText(changed int) string {
	if changed == 0 {
		return ""
	}
	return fmt.Sprintf(", %d changed since the export", changed)
}

// check reads all messages. It returns how many are to be imported, with how many bytes of bodies,
// and how many of all differ from what was exported.
func (k *deskImportCommand) check(path string) (count, changed int, bytes int64, err error) {
	err = readArchive(path, func(a deadletter.Archived) error {
		if count++; count > k.skip {
			bytes += int64(len(a.Message.Delivery.Body))
		}
		if a.Changed {
			changed++
		}
		return nil
	})
	return max(count-k.skip, 0), changed, bytes, err
}

func (k *deskImportCommand) messages(path string) iter.Seq2[deadletter.Message, error] {
	return func(yield func(deadletter.Message, error) bool) {
		n := 0
		err := readArchive(path, func(a deadletter.Archived) error {
			if n++; n <= k.skip || yield(a.Message, nil) {
				return nil
			}
			return errEnough
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(deadletter.Message{}, err)
		}
	}
}

// errEnough ends the reading of an archive.
var errEnough = errors.New("enough")

// readArchive reads the messages of a file or a folder.
func readArchive(path string, visit func(deadletter.Archived) error) error {
	if isFolder(path) {
		return pathError(path, deadletter.ReadArchivedFolder(os.DirFS(path), visit))
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, reason(err))
	}
	defer f.Close()
	return pathError(path, deadletter.ReadArchived(f, visit))
}

func pathError(path string, err error) error {
	if err == nil || errors.Is(err, errEnough) {
		return err
	}
	if errors.Is(err, deadletter.ErrRedacted) {
		return fmt.Errorf("%w: %s: %w", desk.ErrRefused, path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}
