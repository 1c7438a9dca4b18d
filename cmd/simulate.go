package cmd

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/simulate"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// longestOutage is the longest outage that is simulated.
const longestOutage = 31 * 24 * time.Hour

type simulateCommand struct {
	app      *app
	rate     string
	outage   string
	capacity string
}

func newSimulate(a *app) *cobra.Command {
	k := simulateCommand{app: a}
	c := &cobra.Command{
		Use:        "simulate [QUEUE] --rate N/s --outage DURATION",
		SuggestFor: []string{"outage", "forecast"},
		Short:      "Compute what an outage does to a queue",
		Long: `Compute from the topology files what happens if all deliveries of a work queue fail for a
time: how many messages become dead letters, how many wait in which tier at the peak, when
the last one is done, and how often consumers get messages. Each is computed without and
with the key 'outage' of the backoff, which keeps messages of an outage from dying.

With a queue, or if all queues have the same backoff, simulate prints the tiers and a chart,
else a table of the backoffs. It needs no broker, and publishes nothing.`,
		Example: `  dlxctl simulate --rate 200/s --outage 30m billing
  dlxctl simulate --rate 200/s --outage 30m --capacity 300/s billing
  dlxctl simulate --rate 12000/min --outage 2h -o json`,
		Args:        usageArgs(cobra.MaximumNArgs(1)),
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(_ *cobra.Command, args []string) error { return k.run(args) },
	}
	f := c.Flags()
	f.StringVar(&k.rate, "rate", "", "how many messages arrive in a queue, such as `200/s` or 12000/min")
	f.StringVar(&k.outage, "outage", "", "how long each delivery fails, a `DURATION` such as 30m")
	f.StringVar(&k.capacity, "capacity", "", "how many messages the consumers of a queue take at most, such as `300/s`; default any number")
	return c
}

// run computes the outage of one queue, or of all.
func (k *simulateCommand) run(args []string) error {
	in, err := k.input()
	if err != nil {
		return err
	}
	t, err := k.app.files().load()
	if err != nil {
		return err
	}
	t = policy.WithMatched(t, k.app.declared(t, args))
	queues := t.WorkQueues
	if len(args) > 0 {
		if err := known(args[0], t.WorkQueueNames()); err != nil {
			return err
		}
		queues = slices.DeleteFunc(slices.Clone(queues), func(w topology.WorkQueue) bool { return w.Name != args[0] })
	}
	switch {
	case len(queues) == 0 && len(t.Matches) > 0:
		return errors.New("the file names no work queue; pass the name of one that a match covers")
	case len(queues) == 0:
		return errors.New("the topology has no work queues; add one to the file")
	}
	r := simulate.Make(t, queues, in)
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, r)
	}
	return simulate.WriteText(k.app.stdout, r, simulate.TextOptions{Style: k.app.style(), Width: k.app.width()})
}

// input reads the flags.
func (k *simulateCommand) input() (in simulate.Input, err error) {
	if k.rate == "" || k.outage == "" {
		return in, usageError{errors.New("--rate and --outage are required; write for example --rate 200/s --outage 30m")}
	}
	if in.Rate, err = topology.ParseRate(k.rate); err != nil {
		return in, usageError{fmt.Errorf("--rate is %q; %w", k.rate, err)}
	}
	in.Outage, err = topology.ParseDelay(k.outage)
	switch {
	case err != nil:
		return in, usageError{fmt.Errorf("--outage is %q; %w", k.outage, err)}
	case in.Outage == 0:
		return in, usageError{fmt.Errorf("--outage is %q; write more than 0s", k.outage)}
	case in.Outage > longestOutage:
		return in, usageError{fmt.Errorf("--outage is %q; write %s or less", k.outage, text.Duration(longestOutage))}
	}
	if k.capacity == "" {
		return in, nil
	}
	if in.Capacity, err = topology.ParseRate(k.capacity); err != nil {
		return in, usageError{fmt.Errorf("--capacity is %q; %w", k.capacity, err)}
	}
	if in.Capacity < in.Rate {
		return in, usageError{fmt.Errorf("--capacity is %q, less than --rate %q: the queue would grow without an outage; write the rate or more",
			k.capacity, k.rate)}
	}
	return in, nil
}
