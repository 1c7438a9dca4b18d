package cmd

import (
	"context"
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
	var listen string
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
signal kills.

--listen serves /metrics for Prometheus, /healthz (503 if it is stuck: start it again)
and /readyz (503, with the reason, while a failed queue is not consumed).`,
		Example:     "  dlxctl process\n  dlxctl process --until-empty\n  dlxctl process --log-format json --prefetch 1000",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case prefetch < 1 || prefetch > 65535:
				return usageError{fmt.Errorf("--prefetch is %d; write a number from 1 to 65535", prefetch)}
			case grace < 0:
				return usageError{fmt.Errorf("--grace is %s; write 0s or more", grace)}
			}
			p := processor.Processor{Prefetch: prefetch, UntilEmpty: untilEmpty, Grace: grace, Monitor: processor.NewMonitor(Version())}
			stop, err := a.listen(c.Context(), listen, p.Monitor)
			if err != nil {
				return err
			}
			defer stop()
			return a.process(c.Context(), p)
		},
	}
	c.Flags().IntVar(&prefetch, "prefetch", 256, "how many messages of each failed queue may be in flight")
	c.Flags().BoolVar(&untilEmpty, "until-empty", false, "exit once every failed queue is empty and nothing is in flight")
	c.Flags().DurationVar(&grace, "grace", 10*time.Second, "how long to go on with what is in flight after a signal")
	c.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to serve /metrics, /healthz and /readyz on, like :9419; empty is none")
	return c
}

// process fills in what the flags and the files say, and runs p for each
// topology. The first that fails ends the others in good order.
func (a *app) process(ctx context.Context, p processor.Processor) error {
	all, err := a.loadEach()
	if err != nil {
		return err
	}
	var processors []processor.Processor
	for _, l := range all {
		p.Topology, p.Log = l.topology, a.log()
		if p.Endpoint, err = l.conn.Resolve(); err != nil {
			return err
		}
		if len(all) > 1 {
			p.Log = p.Log.With("topology", l.topology.Name)
		}
		processors = append(processors, p)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range processors {
		group.Go(func() error { return p.Run(ctx) })
	}
	return group.Wait()
}
