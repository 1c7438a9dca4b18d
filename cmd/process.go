package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/processor"
)

func (a *app) processCommand() *cobra.Command {
	var prefetch int
	var untilEmpty bool
	var grace time.Duration
	c := &cobra.Command{
		Use:   "process",
		Short: "Run the worker that counts the attempts",
		Long: `Read the failed queues of the topology and move each message on: to the tier where it
waits for its next attempt, or to its dead-letter queue. A message is acknowledged
only after the broker has confirmed its copy, so none is lost wherever the process
dies; what was in flight may be doubled, with the same message-id.

Files that say a name each are a topology each, and are worked off side by side. Run
as many processes as you like. The worker connects again by itself. SIGTERM or SIGINT: it
takes no more, finishes what is in flight within --grace, and exits with 0; a second
signal kills.`,
		Example:     "  dlxctl process\n  dlxctl process --until-empty\n  dlxctl process --log-format json --prefetch 1000",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case prefetch < 1 || prefetch > 65535:
				return usageError{fmt.Errorf("--prefetch is %d; write a number from 1 to 65535", prefetch)}
			case untilEmpty && a.watchFiles:
				return usageError{errors.New("--watch and --until-empty exclude each other: one goes on, the other ends")}
			case grace < 0:
				return usageError{fmt.Errorf("--grace is %s; write 0s or more", grace)}
			}
			p := processor.Processor{Prefetch: prefetch, UntilEmpty: untilEmpty, Grace: grace}
			return a.process(c.Context(), p)
		},
	}
	c.Flags().IntVar(&prefetch, "prefetch", 256, "how many messages of each failed queue may be in flight")
	c.Flags().BoolVar(&a.watchFiles, "watch", false, "go on with what the files say when they change; apply first")
	c.Flags().BoolVar(&untilEmpty, "until-empty", false, "exit once every failed queue is empty and nothing is in flight")
	c.Flags().DurationVar(&grace, "grace", 10*time.Second, "how long to go on with what is in flight after a signal")
	return c
}

// process runs p for each topology of the files, and with --watch for what they
// say later. The first that fails ends the others in good order.
func (a *app) process(ctx context.Context, p processor.Processor) error {
	if a.watchFiles {
		return a.watch(ctx, p)
	}
	processors, err := a.processors(p)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range processors {
		group.Go(func() error { return p.Run(ctx) })
	}
	return group.Wait()
}

// processors fills in what the flags and the files say, for each topology.
func (a *app) processors(p processor.Processor) ([]processor.Processor, error) {
	all, err := a.loadEach()
	if err != nil {
		return nil, err
	}
	var processors []processor.Processor
	for _, l := range all {
		p.Topology, p.Log = l.topology, a.log()
		if p.Endpoint, err = l.conn.Resolve(); err != nil {
			return nil, err
		}
		if len(all) > 1 {
			p.Log = p.Log.With("topology", l.topology.Name)
		}
		processors = append(processors, p)
	}
	return processors, nil
}
