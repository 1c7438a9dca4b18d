package cmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/notify"
	"github.com/dlxctl/dlxctl/processor"
)

// processFlags are what process is told beside the files.
type processFlags struct {
	prefetch   int
	bytes      size
	untilEmpty bool
	grace      time.Duration
	listen     string
	webhook    string
	bodies     bool
}

func (a *app) processCommand() *cobra.Command {
	f := processFlags{bytes: 32 << 20}
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
and /readyz (503, with the reason, while a failed queue is not consumed).

--notify posts a JSON notice for each dead letter, with a "text" that chat services show,
many in one post and one post a second at most. A webhook that fails or hangs holds up no
message. Its URL is a secret: give it as DLXCTL_NOTIFY, as others see command lines.`,
		Example:     "  dlxctl process\n  dlxctl process --until-empty\n  dlxctl process --log-format json --prefetch 1000 --listen :9419",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.prefetch < 1 || f.prefetch > 65535:
				return usageError{fmt.Errorf("--prefetch is %d; write a number from 1 to 65535", f.prefetch)}
			case f.grace < 0:
				return usageError{fmt.Errorf("--grace is %s; write 0s or more", f.grace)}
			case f.untilEmpty && a.watchFiles:
				return usageError{errors.New("--watch and --until-empty exclude each other: one goes on, the other ends")}
			case f.bodies && f.webhook == "":
				return usageError{errors.New("--notify-body has no --notify: there is nobody to send bodies to")}
			}
			return a.watched(c.Context(), f)
		},
	}
	c.Flags().IntVar(&f.prefetch, "prefetch", 256, "how many messages of each failed queue may be in flight")
	c.Flags().Var(&f.bytes, "prefetch-bytes", "how many bytes of them; 0 is any number, and a larger message is in flight alone")
	c.Flags().BoolVar(&a.watchFiles, "watch", false, "go on with what the files say when they change; apply first")
	c.Flags().BoolVar(&f.untilEmpty, "until-empty", false, "exit once every failed queue is empty and nothing is in flight")
	c.Flags().DurationVar(&f.grace, "grace", 10*time.Second, "how long to go on with what is in flight after a signal")
	c.Flags().StringVar(&f.listen, "listen", "", "`ADDRESS` to serve /metrics, /healthz and /readyz on, like :9419; empty is none")
	c.Flags().StringVar(&f.webhook, "notify", "", "`URL` of a webhook that gets a notice of each dead letter")
	c.Flags().BoolVar(&f.bodies, "notify-body", false, "notices carry the first 4 KiB of the message's body")
	return c
}

// watched runs the processors with all that shows and tells what they do.
func (a *app) watched(ctx context.Context, f processFlags) error {
	p := processor.Processor{Prefetch: f.prefetch, PrefetchBytes: int(f.bytes), UntilEmpty: f.untilEmpty, Grace: f.grace, Monitor: processor.NewMonitor(Version())}
	stop, err := a.listen(ctx, f.listen, p.Monitor)
	if err != nil {
		return err
	}
	defer stop()
	if f.webhook == "" {
		return a.process(ctx, p)
	}
	if p.Notifier, err = notify.New(f.webhook, f.bodies, a.log(), p.Monitor); err != nil {
		return usageError{err}
	}
	telling, end := context.WithCancel(context.WithoutCancel(ctx))
	var told sync.WaitGroup
	told.Go(func() { p.Notifier.Run(telling) })
	defer told.Wait()
	defer end() // once the processors are done: what they tell last is told too
	return a.process(ctx, p)
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
		if p.Endpoint, err = a.endpointOf(l.conn, l.topology); err != nil {
			return nil, err
		}
		p.Log = p.Log.With("topology", l.topology.Name)
		processors = append(processors, p)
	}
	return processors, nil
}
