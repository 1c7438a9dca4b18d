package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// placed resolves the queues that the command works on: several for a delay.
type placed func(context.Context, *desk.Desk) ([]deskPlace, error)

func named(argument string) placed {
	return func(ctx context.Context, d *desk.Desk) ([]deskPlace, error) { return deskPlaces(ctx, d, argument) }
}

// proposeIn proposes what the flags ask for in the queues, and executes it with --yes.
func (k *deskAct) proposeIn(c *cobra.Command, args []string, where placed) error {
	d, closeDesk, err := k.app.openAct(c.Context(), k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	places, unseen := where(c.Context(), d)
	if unseen != nil && !errors.Is(unseen, desk.ErrUnreached) {
		return unseen
	}
	if len(places) != 1 && k.app.output == "json" {
		return usageError{fmt.Errorf("-o json is for one queue, and messages of the delay wait in %d; name one of its levels",
			len(places))}
	}
	requests, err := k.requests(c.Context(), d, places)
	if err != nil {
		return err
	}
	return cmp.Or(k.execute(c, args, d, requests...), unseen)
}

// requests returns the request for each place. Of several places, only those that have a message
// with one of the handles get one, if there are handles.
func (k *deskAct) requests(ctx context.Context, d *desk.Desk, places []deskPlace) (out []desk.Request, err error) {
	handles, located := k.choose.Handles, map[string][]string{}
	several := len(places) > 1 && len(handles) > 0
	if several {
		o, err := k.choose.look()
		if err != nil {
			return nil, err
		}
		queues := text.Each(places, func(p deskPlace) string { return p.queue })
		if located, err = d.Locate(ctx, queues, handles, o); err != nil {
			return nil, err
		}
		found := slices.Concat(slices.Collect(maps.Values(located))...)
		for _, h := range handles {
			if !slices.Contains(found, h) {
				return nil, fmt.Errorf("%w: no message that waits there has the handle %s; list them again", desk.ErrRefused, h)
			}
		}
	}
	for _, place := range places {
		k.ask.Selection = k.choose.in(place)
		if several {
			if k.ask.Handles = located[place.queue]; len(k.ask.Handles) == 0 {
				continue
			}
		}
		r, err := k.choose.withLook(k.ask.Request(time.Now()))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// execute shows what a run for each request would do, and does it with --yes. --limit and --expect
// count the messages of all.
func (k *deskAct) execute(c *cobra.Command, args []string, d *desk.Desk, requests ...desk.Request) error {
	var err error
	if d.Allow, err = k.allow.queues(); err != nil {
		return err
	}
	all, err := k.propose(c.Context(), d, requests)
	if err != nil {
		return err
	}
	if err := k.showAll(c, args, all); err != nil {
		return err
	}
	switch {
	case k.yes && c.Flags().Changed("expect") && all.chosen != k.expect:
		return fmt.Errorf("%w: --expect is %d, but %s chosen; nothing was moved; look again without --yes",
			desk.ErrRefused, k.expect, text.Choose(all.chosen, "1 message is", fmt.Sprintf("%d messages are", all.chosen)))
	case all.refusals > 0:
		return fmt.Errorf("%w: nothing was moved; see %s above", desk.ErrRefused,
			text.Choose(all.refusals, "the reason", "the reasons"))
	}
	var failed, unreached error
	for i, p := range all.list {
		if k.yes && p.Chosen > 0 {
			w := k.app.watchRun(c.Context(), p.Request.Action)
			result, err := d.Execute(c.Context(), p, w.progress)
			w.finish()
			ended := err == nil && result.Left == 0
			failed = errors.Join(failed, k.app.finishRun(c, byResume, p.Request.Action, result, err))
			if rest := all.list[i+1:]; !ended && len(rest) > 0 {
				fmt.Fprintln(k.app.stderr, "nothing was taken from:", text.List(text.Each(rest,
					func(p desk.Proposal) string { return text.Name(p.Request.Queue) })))
			}
			if !ended {
				break
			}
		}
		unreached = cmp.Or(unreached, p.Request.Unreached(p.Looked, p.Chosen))
	}
	return cmp.Or(failed, unreached)
}

// proposals are what a command would do, by queue.
type proposals struct {
	list             []desk.Proposal
	chosen, refusals int
	drops            []string // the queues that may drop messages, each once
	dropping         int      // how many of the refusals are for that
}

// propose makes the proposals. Of several requests, it leaves out those that choose nothing of all
// that they have looked at.
func (k *deskAct) propose(ctx context.Context, d *desk.Desk, requests []desk.Request) (out proposals, err error) {
	for _, r := range requests {
		if r.Limit > 0 && out.chosen > 0 {
			if r.Limit -= out.chosen; r.Limit == 0 {
				break
			}
		}
		p, err := d.Propose(ctx, r)
		if err != nil {
			return out, err
		}
		if len(requests) > 1 && p.Chosen+len(p.Refusals) == 0 && r.Unreached(p.Looked, 0) == nil {
			continue
		}
		out.list, out.drops = append(out.list, p), append(out.drops, p.Drops...)
		out.chosen, out.refusals = out.chosen+p.Chosen, out.refusals+len(p.Refusals)
		if len(p.Drops) > 0 {
			out.dropping++
		}
	}
	slices.Sort(out.drops)
	out.drops = slices.Compact(out.drops)
	return out, nil
}

// showAll writes the proposals, and the command line that does them.
func (k *deskAct) showAll(c *cobra.Command, args []string, all proposals) error {
	again := ""
	if all.chosen > 0 && all.refusals == 0 && !k.yes {
		again = commandLine(c, args, "--yes", "--expect", strconv.Itoa(all.chosen))
	}
	for i, p := range all.list {
		next := ""
		if i == len(all.list)-1 {
			next = again
		}
		if err := k.show(p, next); err != nil {
			return err
		}
	}
	if len(all.list) == 0 {
		fmt.Fprintln(k.app.stdout, "0 chosen")
	}
	if k.app.output == "text" && all.dropping > 0 && all.dropping == all.refusals {
		var more []string
		if k.yes {
			more = []string{"--yes", "--expect", strconv.Itoa(all.chosen)}
		}
		fmt.Fprintln(k.app.stdout, "to accept the loss:", allowLine(c, all.drops, more...))
	}
	return nil
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
