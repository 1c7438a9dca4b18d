package cmd

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// chooseFlags are the flags that choose messages of a queue, and limit the look at it.
type chooseFlags struct {
	desk.Selection
	skip            int
	holdLimit       string
	holdTime        time.Duration
	besideConsumers bool
	messages        messageFlags
	// name and showBodies are for a virtual host without a topology file.
	name       string
	showBodies bool
	// verbose: what a look changed is shown also where it limits nothing.
	verbose bool
}

// add adds the flags that every choice has.
func (k *chooseFlags) add(c *cobra.Command) {
	k.addChoice(c.Flags())
	k.addLook(c)
}

func (k *chooseFlags) addChoice(f *pflag.FlagSet) {
	f.StringVar(&k.Where, "where", "", "choose the messages for which `EXPR` is true; see docs/looking.md")
	f.StringArrayVar(&k.Handles, "handle", nil,
		"choose the message with this `HANDLE`, as 'desk list' prints it; repeat the flag for several")
	f.StringVar(&k.Since, "since", "", "choose what failed since `TIME`: a duration such as 2h, or 2026-01-02T15:04:05Z")
	f.StringVar(&k.Until, "until", "", "choose what failed before `TIME`: a duration such as 30d, or 2026-01-02T15:04:05Z")
}

// addLimit adds the flag that ends a choice.
func (k *chooseFlags) addLimit(f *pflag.FlagSet, standard int, usage string) {
	f.IntVar(&k.Limit, "limit", standard, usage)
}

// addSkip adds the flag of a command that shows messages.
func (k *chooseFlags) addSkip(f *pflag.FlagSet) {
	f.IntVar(&k.skip, "skip", 0, "pass over so many messages at the head of the queue")
}

// addLook adds the flags of a look, and of how bodies are read.
func (k *chooseFlags) addLook(c *cobra.Command) {
	c.Flags().BoolVar(&k.besideConsumers, "beside-consumers", false,
		"look although the queue has consumers, which wait meanwhile")
	k.addHold(c)
}

// addHold adds the flags of addLook for a command that looks beside consumers anyway.
func (k *chooseFlags) addHold(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.holdLimit, "hold-limit", "",
		"`LIMIT` of what a look holds: a number of messages, or a size such as 256MiB (default: by the type of the queue)")
	f.DurationVar(&k.holdTime, "hold-time", 0,
		"give everything back after this `DURATION` (default: when no message has come for 10s, or after 10m; with --beside-consumers after 10s for each 100,000 messages)")
	markAdvanced(f, "hold-limit", "hold-time")
	k.messages.register(c)
}

// addCost adds the flag of a command that says what its look costs.
func (k *chooseFlags) addCost(f *pflag.FlagSet) {
	k.addVerbose(f, "show what the look changed, also where that limits nothing")
}

func (k *chooseFlags) addVerbose(f *pflag.FlagSet, usage string) {
	f.BoolVarP(&k.verbose, "verbose", "v", false, usage)
}

// addUnfiled adds the flags for a virtual host without a topology file.
func (k *chooseFlags) addUnfiled(c *cobra.Command) {
	f := c.Flags()
	addName(f, &k.name)
	f.BoolVar(&k.showBodies, "show-bodies", false, "without a topology file: show bodies, of which only what --redact names is masked")
}

// addName adds the flag that names a topology on the broker.
func addName(f *pflag.FlagSet, name *string) {
	f.StringVar(name, "name", "", "without a topology file: the topology that is meant, if dlxctl has applied several")
}

// in returns what the flags choose in a place.
func (k *chooseFlags) in(p deskPlace) desk.Selection {
	s := k.Selection
	s.Queue, s.Work, s.Where = p.queue, p.work, p.only(k.Where)
	return s
}

func (k *chooseFlags) request(p deskPlace) (desk.Request, error) {
	return k.withLook(k.in(p).Request(time.Now()))
}

// withLook adds the limits of the look to a request that was made of flags.
func (k *chooseFlags) withLook(r desk.Request, err error) (desk.Request, error) {
	if err != nil {
		return desk.Request{}, usageError{err}
	}
	r.Look, err = k.look()
	return r, err
}

func (k *chooseFlags) look() (desk.LookOptions, error) {
	if k.skip < 0 {
		return desk.LookOptions{}, usageError{fmt.Errorf("--skip is %d; write a number of messages, such as 100", k.skip)}
	}
	o := desk.LookOptions{Skip: k.skip, BesideConsumers: k.besideConsumers, Hold: k.holdTime, TellCost: k.verbose}
	if k.holdLimit == "" {
		return o, nil
	}
	if n, err := strconv.Atoi(k.holdLimit); err == nil && n > 0 {
		o.HoldMessages, o.HoldBytes = n, math.MaxInt64
		return o, nil
	}
	var bytes size
	if err := bytes.Set(k.holdLimit); err != nil || bytes == 0 {
		return o, usageError{fmt.Errorf("--hold-limit is %q; write a number of messages such as 200000, or a size such as 256MiB",
			k.holdLimit)}
	}
	o.HoldMessages, o.HoldBytes = math.MaxInt, int64(bytes)
	return o, nil
}
