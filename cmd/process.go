package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type processCommand struct {
	app        *app
	prefetch   int
	bytes      size
	watch      bool
	untilEmpty bool
	grace      time.Duration
	listen     string
	webhook    string
	bodies     bool
}

func newProcess(a *app) *cobra.Command {
	k := processCommand{app: a, bytes: 32 << 20}
	c := &cobra.Command{
		Use: "process", SuggestFor: []string{"run", "start", "worker", "consume"},
		Short: "Run the processor, which retries failed messages",
		Long: `Consume the failed queues of the topology, and move each message to the tier where it
waits for its next attempt, or to its dead-letter queue. The processor acknowledges a
message only after the broker has confirmed its copy, so no message is lost wherever the
process dies. Messages in flight may be duplicated then, with the same message-id.

Each file with its own 'name' is a separate topology; they are processed in parallel. Any
number of processes may run. The processor reconnects by itself. On SIGTERM or SIGINT it
consumes no more, finishes the messages in flight within --grace, prints how many messages
it has moved, and exits with 0. A second signal kills it.

Where a backoff of the file has 'outage', the process also reads statistics from the
management API (--api), for which its user needs the tag management.

--listen serves /metrics for Prometheus, /healthz (503 if the processor is stuck: restart
it) and /readyz (503, with the reason, while a failed queue is not consumed).

--notify posts JSON notices of dead letters, and of the begin and end of an outage, with a
"text" that chat services show.
Messages of a queue that failed alike within a minute share a notice. A webhook that fails
or hangs delays no message. The URL is a secret: set it as DLXCTL_NOTIFY, because command
lines are visible in the process list. 'notify' in the topology file sends notices to
webhooks, chats and mailboxes.`,
		Example:     "  dlxctl process\n  dlxctl process --until-empty\n  dlxctl process --log-format json --prefetch 1000 --listen :9419",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := k.check(); err != nil {
				return err
			}
			return k.run(c.Context())
		},
	}
	c.Flags().IntVar(&k.prefetch, "prefetch", 256, "messages of each failed queue that may be in flight")
	c.Flags().Var(&k.bytes, "prefetch-bytes",
		"bytes of each failed queue that may be in flight; 0 means no limit; a larger message is in flight alone")
	c.Flags().BoolVar(&k.watch, "watch", false, "reload topology files when they change (run apply first)")
	c.Flags().BoolVar(&k.untilEmpty, "until-empty", false,
		"exit once every failed queue is empty and no message is in flight")
	c.Flags().DurationVar(&k.grace, "grace", 10*time.Second, "how long to finish messages in flight after a signal")
	c.Flags().StringVar(&k.listen, "listen", "",
		"`ADDRESS` to serve /metrics, /healthz and /readyz on, such as :9419; empty serves nothing")
	c.Flags().StringVar(&k.webhook, "notify", "", "`URL` of a webhook that receives notices of dead letters")
	c.Flags().BoolVar(&k.bodies, "notify-body", false, "include the first 4 KiB of the message body in notices")
	return c
}

// check refuses values of flags that are invalid or contradict each other.
func (k *processCommand) check() error {
	switch {
	case k.prefetch < 1 || k.prefetch > 65535:
		return usageError{fmt.Errorf("--prefetch is %d; write a number from 1 to 65535", k.prefetch)}
	case k.grace < 0:
		return usageError{fmt.Errorf("--grace is %s; write 0s or more", k.grace)}
	case k.untilEmpty && k.watch:
		return usageError{errors.New("--watch and --until-empty exclude each other; pass one of them")}
	case k.watch && slices.Contains(slices.Concat(k.app.paths, k.app.overlays), "-"):
		return usageError{errors.New("--watch cannot watch stdin; name a file")}
	case k.bodies && k.webhook == "":
		return usageError{errors.New("--notify-body has no effect without --notify; set the webhook with DLXCTL_NOTIFY")}
	}
	return nil
}

// run serves metrics, starts the notifier, and runs the processors.
func (k *processCommand) run(ctx context.Context) error {
	p := processor.Processor{
		Prefetch: k.prefetch, PrefetchBytes: int(k.bytes), UntilEmpty: k.untilEmpty, Grace: k.grace,
		Monitor: monitor.New(Version()), Log: k.app.log(),
	}
	stop, err := listen(ctx, p.Log, k.listen, p.Monitor)
	if err != nil {
		return err
	}
	defer stop()
	ready := func() bool { return len(p.Monitor.Unready()) == 0 }
	alive := func() bool { return len(p.Monitor.Unhealthy(time.Now())) == 0 }
	defer dialSystemd(ctx, k.app.env, p.Log).run(ctx, ready, alive)()
	began := time.Now()
	err = k.notifyAndProcess(ctx, p)
	totals := p.Monitor.Totals()
	if err == nil || totals != (monitor.Totals{}) {
		k.summarize(ctx, p.Log, totals, time.Since(began))
	}
	return err
}

// notifyAndProcess runs the processors, next to the notifier if there is one.
func (k *processCommand) notifyAndProcess(ctx context.Context, p processor.Processor) (err error) {
	if k.webhook == "" {
		return k.process(ctx, p)
	}
	target, err := notify.ParseWebhook(k.webhook)
	if err != nil {
		return usageError{err}
	}
	p.Notifier = notify.New([]notify.Target{target}, k.bodies, p.Log,
		func(name string) notify.Counter { return p.Monitor.Notices("", name) })
	notifying, end := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { p.Notifier.Run(notifying) })
	defer ended.Wait()
	defer end() // once the processors have ended: their last notices are sent too
	return k.process(ctx, p)
}

// targets returns the notifier for the targets of a topology, nil if it has none. Bodies go to the
// webhook of --notify alone.
func (k *processCommand) targets(t topology.Compiled, p processor.Processor) (*notify.Notifier, error) {
	targets, err := noticeTargets(t, k.app.env)
	if err != nil || len(targets) == 0 {
		return nil, err
	}
	return notify.New(targets, false, p.Log,
		func(name string) notify.Counter { return p.Monitor.Notices(t.Name, name) }), nil
}

// summarize tells what the processors have moved: as a sentence, or as a record of a log in JSON.
func (k *processCommand) summarize(ctx context.Context, log *slog.Logger, t monitor.Totals, passed time.Duration) {
	passed = passed.Round(time.Second)
	if k.app.logFormat == "json" {
		log.InfoContext(ctx, "stopped", "after", text.Duration(passed), "retried", t.Retried,
			"dead_lettered", t.DeadLettered, "unroutable", t.Unroutable, "dropped", t.Dropped, "unsettled", t.Unsettled)
		return
	}
	dropped := ""
	if t.Dropped > 0 {
		dropped = fmt.Sprintf(", %s deleted as their time was over", text.Grouped(t.Dropped))
	}
	rest := "nothing is left unsettled"
	if t.Unsettled > 0 {
		rest = fmt.Sprintf("%s left unsettled: the broker delivers %s again, and %s may be doubled",
			text.Grouped(t.Unsettled), text.Choose(t.Unsettled, "it", "them"), text.Choose(t.Unsettled, "it", "they"))
	}
	fmt.Fprintf(k.app.stdout,
		"stopped after %s: %s retried, %s to dead-letter queues, %s to unroutable queues%s; %s\n",
		text.Duration(passed), text.Grouped(t.Retried), text.Grouped(t.DeadLettered), text.Grouped(t.Unroutable),
		dropped, rest)
}

// process runs a processor like p for each topology of the files, and with --watch follows
// the files.
func (k *processCommand) process(ctx context.Context, p processor.Processor) error {
	if k.watch {
		s := processor.Supervisor{Log: p.Log, Read: func() (processor.Snapshot, error) { return k.read(p) }}
		return s.Run(ctx)
	}
	files, err := k.read(p)
	if err != nil {
		return err
	}
	processors, err := files.Processors()
	if err != nil {
		return err
	}
	return processor.RunAll(ctx, processors)
}

// read reads the files, to make processors like p of them.
func (k *processCommand) read(p processor.Processor) (processor.Snapshot, error) {
	files := k.app.files()
	in, err := files.readParts()
	return processor.Snapshot{
		Content: in.content(),
		Processors: func() ([]processor.Processor, error) {
			all, err := k.processors(p, files, in)
			files.stderr = io.Discard // it has the warnings
			return all, err
		},
	}, err
}

// processors makes a processor like p for each topology of the files.
func (k *processCommand) processors(p processor.Processor, files loader, in input) ([]processor.Processor, error) {
	all, err := files.compileEach(in)
	if err != nil {
		return nil, err
	}
	var processors []processor.Processor
	for _, t := range all {
		q := p
		q.Topology, q.Log = t, p.Log.With("topology", t.Name)
		if q.Endpoint, err = k.app.conn.endpoint(t); err != nil {
			return nil, err
		}
		if q.Show, err = shown(t, k.bodies, k.watch, q.Log); err != nil {
			return nil, err
		}
		if q.Targets, err = k.targets(t, q); err != nil {
			return nil, err
		}
		processors = append(processors, q)
	}
	return processors, nil
}
