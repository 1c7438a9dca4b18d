package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/try"
	"github.com/dlxctl/dlxctl/topology"
)

type tryCommand struct {
	app      *app
	speed    int
	in       string
	patience time.Duration
	clean    bool
	verbose  bool
}

func newTry(a *app) *cobra.Command {
	k := tryCommand{app: a}
	c := &cobra.Command{
		Use: "try", SuggestFor: []string{"test", "simulate", "rehearse"},
		Short: "Try the topology in a scratch virtual host",
		Long: `Apply the topology in a virtual host of its own, and publish four messages to each work
queue: one that succeeds, one that fails twice, one that crashes its consumer and one that
always fails. A queue with engine: native gets two more, one that is rejected without requeue
and one that is requeued by basic.nack. Run the processor, print what 'dlxctl trace' predicts
of each message and what became of it, and fail where they differ.

By default try makes a scratch virtual host, and deletes it at the end, also after Ctrl-C.
The virtual host of the file and of --url is not touched. That needs the tag administrator.
A user without the tag passes --in with an empty virtual host, in which it has all
permissions and the tag management, or policymaker if the file sets policies. try empties
that virtual host at the end. If policies are there that the file does not know, try shows
what they change.

Delays are divided by --speed, and no delay gets shorter than 50ms. Without --speed it is 60,
or as much as makes the longest backoff take 10s. A message that comes more than 2ms too early
differs; one that is more than 2s late is marked LATE and does not differ, since machines that
run tests are busy. One that has not come when nothing has come for the longest delay and
--patience differs.

A process that is killed leaves its scratch virtual host behind. The next try names it, and
'dlxctl try --clean' deletes all that are not in use.

Exit codes: 0 as predicted, 1 something differs or the trial could not be made, 3 the topology
cannot be applied, 4 the scratch virtual host could not be deleted, 130 interrupted.`,
		Example:     "  dlxctl try\n  dlxctl try --speed 600 -o json\n  dlxctl try --in ci-empty\n  dlxctl try --clean",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := k.check(); err != nil {
				return err
			}
			if k.clean {
				return k.cleanUp(c.Context())
			}
			return k.run(c.Context())
		},
	}
	f := c.Flags()
	f.IntVar(&k.speed, "speed", 0, "by how much delays are divided; 0 is 60, or more if a backoff is long")
	f.StringVar(&k.in, "in", "", "empty virtual `HOST` to use instead of a scratch virtual host")
	f.DurationVar(&k.patience, "patience", 30*time.Second, "how long to wait for a message after its time")
	f.BoolVar(&k.clean, "clean", false, "delete the scratch virtual hosts of killed tries, and try nothing")
	f.BoolVarP(&k.verbose, "verbose", "v", false, "show every message; otherwise only up to 5 queues, and those that differ")
	return c
}

// check refuses values of flags that make no sense.
func (k *tryCommand) check() error {
	switch {
	case k.speed < 0:
		return usageError{fmt.Errorf("--speed is %d; write 1 or more: 1 is the speed of the file", k.speed)}
	case k.patience <= 0:
		return usageError{fmt.Errorf("--patience is %s; write more than 0s", k.patience)}
	case k.clean && k.in != "":
		return usageError{errors.New("--clean deletes scratch virtual hosts, and --in names another one; pass one of them")}
	}
	return nil
}

// run tries the files.
func (k *tryCommand) run(ctx context.Context) error {
	t, err := k.app.files().load()
	if err != nil {
		return err
	}
	conn := k.app.conn
	if k.in != "" {
		conn = connection{conn.Config}
		conn.VHost = k.in
	}
	// Neither the cluster of the file nor its virtual host count: both are about the real broker.
	endpoint, err := conn.endpoint(topology.Compiled{Name: t.Name})
	if err != nil {
		return err
	}
	messages := k.app.newProgress("tried", "messages", 0)
	trial := try.Try{
		Topology: t, Endpoint: endpoint, Given: k.in != "", Speed: k.speed, Patience: k.patience, Log: k.log(),
		Notice:   k.notice,
		Progress: messages.setOf,
	}
	report, err := trial.Run(ctx)
	messages.finish()
	if len(report.Queues) > 0 { // also if the trial could not be removed
		err = errors.Join(err, k.show(report))
	}
	if err != nil {
		return err
	}
	switch {
	case report.Differing > 0:
		return fmt.Errorf("%d of %s differ from what 'dlxctl trace' predicts; see the differences above", report.Differing,
			text.Count(report.Messages, "message"))
	case !report.AsPredicted:
		return errors.New("queues hold messages that 'dlxctl trace' does not predict; see the differences above")
	default:
		return nil
	}
}

// show prints a report.
func (k *tryCommand) show(r try.Report) error {
	const few = 5
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, r)
	}
	return try.WriteText(k.app.stdout, r, k.verbose || len(r.Queues) <= few, k.app.width())
}

// log returns the logger of the processor. It logs each dead letter, and try makes many: they are
// shown with --log-level debug.
func (k *tryCommand) log() *slog.Logger {
	if k.app.logLevel == "debug" {
		return k.app.log()
	}
	return slog.New(slog.DiscardHandler)
}

func (k *tryCommand) notice(line string) { fmt.Fprintln(k.app.stderr, line) }

// cleanUp deletes the scratch virtual hosts of killed tries.
func (k *tryCommand) cleanUp(ctx context.Context) error {
	endpoint, err := k.app.conn.Resolve()
	if err != nil {
		return err
	}
	h := try.Host{Endpoint: endpoint, Notice: k.notice}
	deleted, err := h.Clean(ctx)
	for _, name := range deleted {
		fmt.Fprintf(k.app.stdout, "deleted %s\n", name)
	}
	if err == nil && len(deleted) == 0 {
		fmt.Fprintln(k.app.stdout, "no scratch virtual host of a killed try")
	}
	return err
}
