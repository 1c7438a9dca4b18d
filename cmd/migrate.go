package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// migrator is one run of migrate.
type migrator struct {
	*app
	lockFlags
	runner      migrate.Runner
	until       string
	drain       string
	dryRun, yes bool
}

func (a *app) migrateCommand() *cobra.Command {
	r := migrator{app: a}
	c := &cobra.Command{
		Use:   "migrate [LEGACY...]",
		Short: "Move legacy queues onto their successors, under live traffic",
		Long: `Move the queues that the file names by replaces: onto the queues that replace them.
Every message goes to exactly one of the two, while publishers publish and consumers
consume. It can be killed at any moment and run again, on any machine: what is to be
done next shows on the broker.

  check     can they be moved? Every reason why not, at once
  prepare   make the new queues and their retry planes, without bindings
  cutover   turn the messages to the new queues, by one update of a policy for each
  drain     move what is left in the legacy queues, when nobody consumes there any more
  retire    delete them, once they are empty and nothing has come for --idle

Exit codes: 0 done, 1 failed and nothing was written, 2 waiting for others: run it
again, 3 refused, 4 something was written but not all.`,
		Example:     "  dlxctl migrate --dry-run\n  dlxctl migrate --yes\n  dlxctl migrate invoices --until cutover --yes\n  dlxctl migrate status",
		Annotations: map[string]string{outputsAnnotation: "text"},
		RunE:        func(c *cobra.Command, args []string) error { return r.run(c.Context(), args) },
	}
	f := c.Flags()
	f.StringVar(&r.until, "until", string(migrate.Retire), "last `STAGE` to do: check, prepare, cutover, drain or retire")
	f.BoolVar(&r.dryRun, "dry-run", false, "say where each queue stands and what would be done, and write nothing")
	f.BoolVar(&r.yes, "yes", false, "do not ask; required without a terminal")
	f.DurationVar(&r.runner.Settle, "settle", 500*time.Millisecond, "how long the broker gets to come to rest between two steps")
	f.StringVar(&r.drain, "drain", "idle", "when to move what is left: idle (nobody consumes) or now")
	f.DurationVar(&r.runner.Wait, "wait", 10*time.Minute, "how long to wait for others")
	f.DurationVar(&r.runner.Idle, "idle", 30*time.Second, "how long nothing may have arrived before a legacy queue is deleted")
	f.BoolVar(&r.runner.Forward, "forward", false, "leave a forwarder in place of a legacy queue to which somebody publishes by name")
	r.add(f)
	abort := &cobra.Command{
		Use:   "abort [LEGACY...]",
		Short: "Turn migrations back that are not done",
		Long: `Turn the messages back to the legacy queues, in the same way in which they were turned
away, move back what waits in the new queues, and delete what migrate made. What waits
in a tier comes back to the legacy queue: the way there stays until the tiers are empty.

Exit codes: as migrate; 2 while messages wait in the tiers: run it again.`,
		Example: "  dlxctl migrate abort --yes",
		RunE:    func(c *cobra.Command, args []string) error { return r.abort(c.Context(), args) },
	}
	abort.Flags().BoolVar(&r.yes, "yes", false, "do not ask; required without a terminal")
	abort.Flags().DurationVar(&r.runner.Settle, "settle", 500*time.Millisecond, "how long the broker gets to come to rest between two steps")
	abort.Flags().DurationVar(&r.runner.Wait, "wait", 10*time.Minute, "how long to wait for tiers to be empty")
	r.add(abort.Flags())
	c.AddCommand(abort, &cobra.Command{
		Use: "status", Short: "Show where each migration stands", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return r.status(c.Context()) },
	})
	return c
}

// read checks what the flags say.
func (r *migrator) read() error {
	var stages []string
	for _, s := range migrate.Stages() {
		stages = append(stages, string(s))
	}
	switch {
	case !slices.Contains(stages, r.until):
		return usageError{fmt.Errorf("--until is %q; write %s", r.until, strings.Join(stages, ", "))}
	case r.drain != "idle" && r.drain != "now":
		return usageError{fmt.Errorf("--drain is %q; write idle or now", r.drain)}
	case r.runner.Settle < 0 || r.runner.Wait < 0 || r.runner.Idle <= 0:
		return usageError{errors.New("--settle and --wait must be 0s or more, and --idle more")}
	}
	r.runner.Until, r.runner.Now = migrate.Stage(r.until), r.drain == "now"
	return nil
}

func (r *migrator) run(ctx context.Context, legacy []string) error {
	if err := r.read(); err != nil {
		return err
	}
	return r.with(ctx, legacy, r.runner.Run)
}

// abort turns the migrations back.
func (r *migrator) abort(ctx context.Context, legacy []string) error {
	without, err := r.loadUnmoved(legacy)
	if err != nil {
		return err
	}
	return r.with(ctx, legacy, func(ctx context.Context) error { return r.runner.Abort(ctx, without) })
}

// with does something about the migrations of legacy, under the lock.
func (r *migrator) with(ctx context.Context, legacy []string, do func(context.Context) error) error {
	want, err := r.load()
	if err != nil {
		return err
	}
	for _, name := range legacy {
		if !slices.ContainsFunc(want.Works, func(w topology.Work) bool { return w.Replaces == name }) {
			return fmt.Errorf("%w: no queue of the file replaces %q; add an entry such as: {name: %s_with_dlx, replaces: %s}", migrate.ErrRefused, name, name, name)
		}
	}
	m, err := r.management()
	if err != nil {
		return err
	}
	defer m.Close()
	r.runner.Topology, r.runner.Management, r.runner.Legacy = want, m, legacy
	if r.runner.Endpoint, err = r.conn.Resolve(); err != nil {
		return err
	}
	r.runner.Say = func(format string, args ...any) {
		fmt.Fprintln(r.stdout, topology.Printable(fmt.Sprintf(format, args...)))
	}
	if r.dryRun {
		r.runner.Until = migrate.Check
		if err := r.status(ctx); err != nil {
			return err
		}
		return r.runner.Run(ctx)
	}
	lock, err := r.take(ctx, r.app, m, want.Name)
	if err != nil {
		return err
	}
	if lock != nil {
		defer func() {
			_ = lock.Unlock(topology.LockName(want.Name)) // if not, the end of the connection does it
			_ = lock.Close()
		}()
	}
	r.runner.Allowed = func(rights []plan.Right) error { return mayDo(ctx, m, lock, rights) }
	if !r.yes {
		if err := r.status(ctx); err != nil {
			return err
		}
		if err := r.confirm(ctx); err != nil {
			return err
		}
	}
	err = do(ctx)
	switch {
	case errors.Is(err, migrate.ErrWaiting):
		return waitingError{err}
	case err != nil && r.runner.Wrote():
		return unfinishedError{err}
	case err != nil:
		return err
	}
	return r.status(ctx)
}

// status says where each migration stands.
func (r *migrator) status(ctx context.Context) error {
	want, err := r.load()
	if err != nil {
		return err
	}
	m, err := r.management()
	if err != nil {
		return err
	}
	defer m.Close()
	state, err := m.Inspect(ctx)
	if err != nil {
		return err
	}
	standings := migrate.Standings(want, state)
	for _, s := range standings {
		fmt.Fprintln(r.stdout, topology.Printable(s.String()))
	}
	if len(standings) == 0 {
		fmt.Fprintln(r.stdout, "no migration is to be done: no legacy queue of the file exists")
	}
	return nil
}

// waitingError says that others must act first.
type waitingError struct{ error }

func (e waitingError) Unwrap() error { return e.error }
