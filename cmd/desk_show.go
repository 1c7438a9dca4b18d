package cmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
)

type deskShowCommand struct {
	app    *app
	choose chooseFlags
	raw    bool
	tryAll bool
}

func newDeskShow(a *app) *cobra.Command {
	k := deskShowCommand{app: a}
	c := &cobra.Command{
		Use:        "show HANDLE [QUEUE|@WORKQUEUE]",
		SuggestFor: []string{"view", "get", "inspect", "cat"},
		Short:      "Show one dead letter with its history and body",
		Long: `Show a dead letter: why it died, the timeline of its attempts, its properties, its headers
by family, and its decoded body. Without QUEUE, show looks in the dead-letter queues of the
topology, in NAME.parked and in NAME.unroutable.

--raw prints the bytes of the body as they were published, and nothing else. Nothing is
masked in them.

--try-all reads the body by each protobuf type of the schemas, and lists the types that it
may have, the best first: 'dlxctl desk show HANDLE --protoset orders.binpb --try-all'.`,
		Example: `  dlxctl desk show 0a1b2c3d4e5f
  dlxctl desk show 0a1b2c3d4e5f#2 @billing
  dlxctl desk show 0a1b2c3d4e5f --raw > body.bin`,
		Args:        handleAndQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        k.run,
	}
	k.choose.addLook(c)
	k.choose.addUnfiled(c)
	c.Flags().BoolVar(&k.raw, "raw", false, "print the bytes of the body, with nothing masked")
	c.Flags().BoolVar(&k.tryAll, "try-all", false, "list the protobuf types that the body may have")
	return c
}

func (k *deskShowCommand) run(c *cobra.Command, args []string) error {
	if err := k.check(); err != nil {
		return err
	}
	d, o, closeDesk, err := k.app.openToLook(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	found, err := k.app.findMessage(c.Context(), d, args, o)
	if err != nil {
		return err
	}
	switch {
	case k.raw:
		_, err = k.app.stdout.Write(found.message.Delivery.Body)
		return err
	case k.tryAll:
		return k.writeFits(d.Reader.Fits(found.message))
	case k.app.output == "json":
		return jsondoc.Write(k.app.stdout, found.view)
	default:
		return deadletter.WriteShow(k.app.stdout, found.view, k.app.width())
	}
}

// check refuses flags that contradict each other.
func (k *deskShowCommand) check() error {
	switch {
	case k.raw && k.app.output != "text":
		return usageError{errors.New("--raw prints the bytes of the body alone; pass it without -o")}
	case k.tryAll && (k.raw || k.app.output != "text"):
		return usageError{errors.New("--try-all prints a table alone; pass it without --raw and -o")}
	}
	return nil
}

// writeFits writes the message types that a body may have, and how to choose one.
func (k *deskShowCommand) writeFits(fits []decode.Fit) error {
	if len(fits) == 0 {
		return fmt.Errorf("%w: the body has none of the protobuf types of the schemas; name other schemas with --protoset or --proto",
			desk.ErrRefused)
	}
	table := text.Table{Whole: []int{0}}
	table.Add(nil, "TYPE", "UNKNOWN FIELDS", "KNOWN FIELDS", "FROM")
	for _, f := range fits {
		table.Add(nil, f.Type, fmt.Sprint(f.Unknown), fmt.Sprint(f.Fields), strings.Join(f.Steps, ", "))
	}
	if err := table.Write(k.app.stdout, k.app.width()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(k.app.stdout, "to read messages so: --type %s, or an entry of messages.types in the topology file\n", fits[0].Type)
	return err
}
