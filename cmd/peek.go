package cmd

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

type peekCommand struct {
	app    *app
	choose chooseFlags
	raw    bool
}

func newPeek(a *app) *cobra.Command {
	k := peekCommand{app: a}
	c := &cobra.Command{
		Use:        "peek QUEUE|@WORKQUEUE",
		SuggestFor: []string{"get", "browse", "cat", "head", "look"},
		Short:      "Show messages of any queue, and leave them there",
		Long: `Show the first messages of a queue of the virtual host, a line each. Afterwards they are in
the queue as before, in the same order. peek refuses a queue that a look would harm, and says
what the look has changed; docs/looking.md explains both.

A topology file is optional. With one, its rules for masking and its schemas apply, and
@WORKQUEUE names the dead-letter queue of a work queue.

The user needs the tag management and the permission to read the queue.`,
		Example: `  dlxctl peek billing.dead
  dlxctl peek orders -n 0 --where 'headers["x-tenant"] == "acme"' -o jsonl
  dlxctl peek orders -n 1 --raw > body`,
		Args:        oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text table json jsonl"},
		RunE:        k.run,
	}
	k.choose.add(c)
	k.choose.addCost(c.Flags())
	c.Flags().IntVarP(&k.choose.Limit, "limit", "n", 10, "show so many messages at most; 0 is all")
	k.choose.addSkip(c.Flags())
	c.Flags().BoolVar(&k.raw, "raw", false, "write only the bodies, byte for byte and unmasked, with a newline between two")
	return c
}

// run shows messages.
func (k *peekCommand) run(c *cobra.Command, args []string) error {
	t, err := k.topology()
	if err != nil {
		return err
	}
	place := deskPlace{queue: args[0]}
	if strings.HasPrefix(args[0], "@") {
		if place, err = deskQueue(t, args[0]); err != nil {
			return err
		}
	}
	r, err := k.choose.request(place)
	if err != nil {
		return err
	}
	d, closeDesk, err := k.app.deskOf(c.Context(), t, k.choose.messages)
	if err != nil {
		return err
	}
	defer closeDesk()
	out := k.output()
	picked, err := d.Pick(c.Context(), r, out.Add)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return k.app.picked(r, picked)
}

// topology returns the topology of -f. Without the flag, and without the file that it names by
// default, nothing is known about the virtual host but what desk.yaml says about messages.
func (k *peekCommand) topology() (topology.Compiled, error) {
	if k.app.hasNoFile() {
		messages, _, err := k.app.files().messages()
		return topology.Compiled{Messages: messages}, err
	}
	return k.app.files().load()
}

// messageWriter writes messages.
type messageWriter interface {
	Add(deadletter.Message, deadletter.View) error
	Close() error
}

// output returns what writes the messages.
func (k *peekCommand) output() messageWriter {
	if k.raw {
		return &bodies{w: k.app.stdout}
	}
	return views{desk.NewList(k.app.stdout, k.app.output, k.app.screen())}
}

// views writes messages as a person may see them.
type views struct{ *desk.List }

func (v views) Add(_ deadletter.Message, view deadletter.View) error { return v.List.Add(view) }

// bodies writes the bodies of messages as they are.
type bodies struct {
	w     io.Writer
	count int
}

func (b *bodies) Add(m deadletter.Message, _ deadletter.View) error {
	if b.count++; b.count > 1 {
		if _, err := fmt.Fprintln(b.w); err != nil {
			return err
		}
	}
	_, err := b.w.Write(m.Delivery.Body)
	return err
}

func (b *bodies) Close() error { return nil }
