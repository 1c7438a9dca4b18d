package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
)

type deskPullCommand struct{ deskAct }

func newDeskPull(a *app) *cobra.Command {
	k := deskPullCommand{newAct(a, desk.Pull)}
	c := &cobra.Command{
		Use:        "pull QUEUE",
		SuggestFor: []string{"take", "extract", "pluck"},
		Short:      "Take messages out of a work queue that consumers read",
		Long: `Move chosen messages of a work queue to its dead-letter queue, while consumers read it. They
are dead letters with the cause "pulled", and the error says who took them and why (--reason).

pull holds what is ready in the queue. The consumers wait for that time, seconds as a rule,
and then get the other messages in their order. It does that twice: to look, and to take. What
a consumer holds cannot be taken.

Without a topology file, the dead-letter queue is the only one of the work queue that is found
on the broker.

pull refuses a queue where other messages would lose their order, or be dropped; docs/looking.md
says which. Without --yes, it shows what it would do.`,
		Example: "  dlxctl desk pull billing --where 'body.customer == 4711'\n" +
			"  dlxctl desk pull billing --where 'id == \"0a1b2c3d\"' --reason TICKET-12 --yes --expect 1",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "" {
				return nil
			}
			return usageError{fmt.Errorf("%s accepts one work queue, but got %d arguments", c.CommandPath(), len(args))}
		},
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, args []string) error {
			if s := k.choose.Selection; s.Where == "" && len(s.Handles) == 0 && s.Since == "" && s.Until == "" && s.Limit == 0 {
				return usageError{errors.New("no message is chosen; pass --where, --handle, --since, --until or --limit")}
			}
			return k.proposeIn(c, args, func(context.Context, *desk.Desk) ([]deskPlace, error) {
				place, err := livePlace(args[0])
				return []deskPlace{place}, err
			})
		},
	}
	f := c.Flags()
	k.choose.addChoice(f)
	k.choose.addHold(c)
	k.choose.addCost(f)
	k.choose.addUnfiled(c)
	k.choose.addLimit(f, 0, "choose so many messages at most, from the head of the queue; 0 is all")
	k.addConsent(f)
	k.allow.add(f)
	return c
}

// livePlace returns the work queue that an argument names.
func livePlace(argument string) (deskPlace, error) {
	if name, dead := strings.CutPrefix(argument, "@"); dead {
		return deskPlace{}, usageError{fmt.Errorf("%s is where the dead letters of %q are; write %s for the work queue itself",
			argument, name, name)}
	}
	return deskPlace{queue: argument}, nil
}
