package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// delayedFlags name an exchange of the plugin for delayed messages, and where to ask for it.
type delayedFlags struct {
	exchange string
	nodes    []string
}

func (k *delayedFlags) add(f *pflag.FlagSet) {
	f.StringVar(&k.exchange, "from-delayed", "",
		"replace `EXCHANGE`, of the plugin for delayed messages, by a delay of the file, named as the argument if it has several")
	f.StringArrayVar(&k.nodes, "node-api", nil,
		"with --from-delayed: `URL` of the management API of another node; repeat the flag for each node of the cluster")
}

// leastIdle is how long no message must have been counted at least, for there to be none.
const leastIdle = 3 * broker.Tick

// fromDelayed takes an exchange of the plugin out of use.
func (k *migrateCommand) fromDelayed(c *cobra.Command, delays []string) error {
	for _, name := range []string{"until", "suffix", "write", "match", "parallel", "drain", "forward"} {
		if c.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s is for queues; remove it, or --from-delayed", name)}
		}
	}
	for _, consent := range k.runner.Allow {
		if consent.Hazard != topology.DropsRouting || consent.Object != "" && consent.Object != k.delayed.exchange {
			return usageError{fmt.Errorf("--allow is %s; with --from-delayed it may be %s=%s", consent, topology.DropsRouting,
				k.delayed.exchange)}
		}
	}
	if k.app.output != "text" {
		return usageError{fmt.Errorf("-o %s is for queues; remove it, or --from-delayed", k.app.output)}
	}
	if k.runner.Idle < leastIdle {
		return usageError{fmt.Errorf("--idle is %s; with --from-delayed it must be %s or more, as RabbitMQ counts published messages every %s",
			k.runner.Idle, leastIdle, broker.Tick)}
	}
	want, err := k.app.files().load()
	if err != nil {
		return err
	}
	delay, err := oneDelay(want, delays)
	if err != nil {
		return err
	}
	s, err := k.app.conn.open(want)
	if err != nil {
		return err
	}
	defer s.Close()
	k.output.app = k.app
	f := migrate.FromDelayed{
		Topology: want, Nodes: []*management.Client{s.Management}, Exchange: k.delayed.exchange, Delay: delay,
		Wait: k.runner.Wait, Idle: k.runner.Idle, Allow: k.runner.Allow, Report: k.output.report,
	}
	f.CheckRights = func(rights []plan.Right) error { return s.CheckRights(c.Context(), rights) }
	// For the deletion, and --idle before it at most, as the wait before that may take days.
	f.Lock = func() error { return k.lock.lockSession(c.Context(), k.app, s, "migrate") }
	for _, url := range k.delayed.nodes {
		conn := k.app.conn
		conn.API = url
		other, err := conn.open(want)
		if err != nil {
			return err
		}
		defer other.Close()
		f.Nodes = append(f.Nodes, other.Management)
	}
	if k.dryRun || !k.yes {
		todo, err := f.Preview(c.Context(), k.app.stdout)
		if k.dryRun || err != nil || !todo {
			return err
		}
		question := "wait until " + text.Name(f.Exchange) + " holds nothing, and delete it then?"
		if err := k.app.ask(c.Context(), topology.Printable(question)); err != nil {
			return err
		}
	}
	err = f.Run(c.Context())
	if c.Context().Err() != nil && err != nil {
		return fmt.Errorf("interrupted, and nothing was deleted; to continue: %s", commandLine(c, delays, k.consent()...))
	}
	return err
}

// oneDelay returns the delay that the arguments name, or the only one of the file.
func oneDelay(t topology.Compiled, named []string) (topology.Delay, error) {
	names := text.Each(t.Delays, func(d topology.Delay) string { return d.Name })
	switch {
	case len(names) == 0:
		return topology.Delay{}, usageError{errors.New(
			"the file has no delay; write one under delays, with the exchange of the queues as its to")}
	case len(named) == 0 && len(names) == 1:
		return t.Delays[0], nil
	case len(named) != 1:
		return topology.Delay{}, usageError{fmt.Errorf(
			"name the delay that replaces the exchange, one of %s", text.List(text.Names(names)))}
	}
	d, ok := t.Delay(named[0])
	if !ok {
		return d, usageError{fmt.Errorf("the file has no delay %q; %s", named[0],
			topology.DidYouMean(named[0], names, "it has "+text.List(text.Names(names))))}
	}
	return d, nil
}
