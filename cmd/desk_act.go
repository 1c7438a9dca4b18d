package cmd

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
)

// deskAct is what the commands have in common that move messages: they show what they would do,
// and do it with --yes.
type deskAct struct {
	app    *app
	ask    desk.Ask
	choose chooseFlags
	yes    bool
	expect int
	allow  allowFlag
}

// newAct returns the part of a command that does an action.
func newAct(a *app, action desk.Action) deskAct { return deskAct{app: a, ask: desk.DefaultAsk(action)} }

func (k *deskAct) add(c *cobra.Command) {
	f := c.Flags()
	k.choose.add(c)
	k.choose.addCost(f)
	k.choose.addUnfiled(c)
	k.choose.addLimit(f, 0, "choose so many messages at most, from the head of the queue; 0 is all")
	k.addConsent(f)
}

func (k *deskAct) addConsent(f *pflag.FlagSet) {
	f.BoolVar(&k.yes, "yes", false, "do it; without this flag the command only shows what it would do")
	f.IntVar(&k.expect, "expect", 0, "refuse to do it if not exactly `N` messages are chosen")
	f.StringVar(&k.ask.Reason, "reason", "", "`TEXT` for the record of the run: why it is done")
}

// addTarget adds the flags that name where messages go.
func (k *deskAct) addTarget(f *pflag.FlagSet) {
	f.StringVar(&k.ask.To, "to", k.ask.To, "`TARGET`: queue, original, queue:NAME or exchange:NAME")
	f.StringVar(&k.ask.Key, "key", "", "routing `KEY` for --to exchange:NAME")
}

// placed resolves the queue that the command works on.
type placed func(*desk.Desk) (deskPlace, error)

func named(argument string) placed {
	return func(d *desk.Desk) (deskPlace, error) { return placeOf(d, argument) }
}

// proposeIn proposes what the flags ask for in a queue, and executes it with --yes.
func (k *deskAct) proposeIn(c *cobra.Command, args []string, where placed) error {
	d, closeDesk, err := k.app.openAct(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	place, err := where(d)
	if err != nil {
		return err
	}
	k.ask.Selection = k.choose.in(place)
	r, err := k.choose.withLook(k.ask.Request(time.Now()))
	if err != nil {
		return err
	}
	return k.execute(c, args, d, r)
}

// execute shows what a run would do, and does it with --yes.
func (k *deskAct) execute(c *cobra.Command, args []string, d *desk.Desk, r desk.Request) error {
	var err error
	if d.Allow, err = k.allow.queues(); err != nil {
		return err
	}
	p, err := d.Propose(c.Context(), r)
	if err != nil {
		return err
	}
	again := ""
	if p.Chosen > 0 && len(p.Refusals) == 0 && !k.yes {
		again = commandLine(c, args, "--yes", "--expect", strconv.Itoa(p.Chosen))
	}
	if err := k.show(p, again); err != nil {
		return err
	}
	if k.app.output == "text" && len(p.Drops) > 0 && len(p.Refusals) == 1 {
		var more []string
		if k.yes {
			more = []string{"--yes", "--expect", strconv.Itoa(p.Chosen)}
		}
		fmt.Fprintln(k.app.stdout, "to accept the loss:", allowLine(c, p.Drops, more...))
	}
	switch {
	case k.yes && c.Flags().Changed("expect") && p.Chosen != k.expect:
		return fmt.Errorf("%w: --expect is %d, but %s chosen; nothing was moved; look again without --yes",
			desk.ErrRefused, k.expect, text.Choose(p.Chosen, "1 message is", fmt.Sprintf("%d messages are", p.Chosen)))
	case len(p.Refusals) > 0:
		return fmt.Errorf("%w: nothing was moved; see %s above", desk.ErrRefused,
			text.Choose(len(p.Refusals), "the reason", "the reasons"))
	case !k.yes || p.Chosen == 0:
		return p.Request.Unreached(p.Looked, p.Chosen)
	}
	w := k.app.watchRun(c.Context(), r.Action)
	result, err := d.Execute(c.Context(), p, w.progress)
	w.finish()
	return cmp.Or(k.app.finishRun(c, byResume, r.Action, result, err), p.Request.Unreached(p.Looked, p.Chosen))
}

// show writes a proposal. again is the command line that does it.
func (k *deskAct) show(p desk.Proposal, again string) error {
	switch {
	case k.app.output == "json" && k.yes && p.Chosen > 0 && len(p.Refusals) == 0:
		return nil // the result is the output
	case k.app.output == "json":
		return jsondoc.Write(k.app.stdout, desk.ProposalDocument{Action: p.Request.Action, Proposal: p, Command: again})
	default:
		return desk.WriteProposal(k.app.stdout, p, again)
	}
}
