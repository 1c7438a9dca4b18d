package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// migrator is one run of migrate.
type migrator struct {
	*app
	lockFlags
	runner      migrate.Runner
	until       string
	drain       string
	suffix      string
	dryRun, yes bool
	write       bool // the file
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
		Annotations: map[string]string{outputsAnnotation: "text markdown"},
		RunE:        func(c *cobra.Command, args []string) error { return r.run(c.Context(), args) },
	}
	f := c.Flags()
	f.StringVar(&r.until, "until", string(migrate.Retire), "last `STAGE` to do: check, prepare, cutover, drain or retire")
	f.BoolVar(&r.dryRun, "dry-run", false, "say where each queue stands and what would be done, and write nothing")
	f.StringVar(&r.suffix, "suffix", "_with_dlx", "what a queue that the file does not replace yet gets as its new name, after the old one")
	f.BoolVar(&r.write, "write", false, "write replaces: into the file for the queues named, and stop")
	f.BoolVar(&r.yes, "yes", false, "do not ask; required without a terminal")
	f.DurationVar(&r.runner.Settle, "settle", 500*time.Millisecond, "how long the broker gets to come to rest between two steps")
	f.StringVar(&r.drain, "drain", "idle", "when to move what is left: idle (nobody consumes) or now")
	r.runner.Wait = 10 * time.Minute
	addWait(f, &r.runner.Wait, "how long to wait for others; true is without end")
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
	addWait(abort.Flags(), &r.runner.Wait, "how long to wait for tiers to be empty")
	r.add(abort.Flags())
	c.AddCommand(abort, &cobra.Command{
		Use: "status", Short: "Show where each migration stands", Args: noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(c *cobra.Command, _ []string) error { return r.status(c.Context()) },
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
	case r.suffix == "":
		return usageError{errors.New("--suffix is empty; the new queue needs a name of its own")}
	case r.output == "markdown" && !r.dryRun:
		return usageError{errors.New("-o markdown is for --dry-run")}
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
	sources, err := r.sources(r.files...) // once: one may be stdin
	if err != nil {
		return meantCommand(legacy, err)
	}
	want, err := r.compileHere(sources)
	if err != nil {
		return err
	}
	if missing := unnamed(want, legacy); len(missing) > 0 {
		return meantCommand(missing, r.propose(ctx, sources, missing))
	}
	if r.write {
		return usageError{errors.New("--write is for queues that the file does not replace yet; name them")}
	}
	return r.with(ctx, want, legacy, r.runner.Run)
}

// meantCommand adds to err that a name which no queue has may be a subcommand with
// a slip.
func meantCommand(names []string, err error) error {
	for _, name := range names {
		for _, command := range []string{"status", "abort"} {
			if err != nil && spec.DidYouMean(name, []string{command}, "") != "" {
				return fmt.Errorf("%w; or did you mean 'dlxctl migrate %s'?", err, command)
			}
		}
	}
	return err
}

// abort turns the migrations back.
func (r *migrator) abort(ctx context.Context, legacy []string) error {
	sources, err := r.sources(r.files...) // once: one may be stdin
	if err != nil {
		return err
	}
	want, err := r.compileHere(sources)
	if err != nil {
		return err
	}
	without, err := r.compileUnmoved(sources, legacy)
	if err != nil {
		return err
	}
	if missing := unnamed(want, legacy); len(missing) > 0 {
		return fmt.Errorf("%w: no queue of the file replaces %q", migrate.ErrRefused, missing[0])
	}
	return r.with(ctx, want, legacy, func(ctx context.Context) error { return r.runner.Abort(ctx, without) })
}

// with does something about the migrations of legacy, under the lock.
func (r *migrator) with(ctx context.Context, want topology.Topology, legacy []string, do func(context.Context) error) error {
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
	r.runner.Progress = func(messages int64) (step, finish func()) {
		p := r.newProgress("moved", "messages", int(messages))
		return p.step, p.finish
	}
	if r.dryRun {
		return r.lookAhead(ctx)
	}
	lock, err := r.take(ctx, r.app, m, want.Name)
	if err != nil {
		return err
	}
	if lock != nil {
		m.Over(lock)
		defer func() {
			_ = lock.Unlock(topology.LockName(want.Name)) // if not, the end of the connection does it
			_ = lock.Close()
		}()
	}
	told := context.AfterFunc(ctx, func() {
		fmt.Fprintln(r.stderr, "stopping when what is under way is done; a second signal kills")
	})
	defer told()
	r.runner.Allowed = func(rights []plan.Right) error { return mayDo(ctx, m, lock, rights) }
	if !r.yes {
		if err := r.stand(ctx, m, want); err != nil {
			return err
		}
		if err := r.confirm(ctx); err != nil {
			return err
		}
	}
	err = do(ctx)
	switch {
	case ctx.Err() != nil && r.runner.Wrote():
		return unfinishedError{errors.New("interrupted; nothing is lost: run it again to continue")}
	case errors.Is(err, migrate.ErrWaiting):
		return waitingError{err}
	case err != nil && r.runner.Wrote():
		return unfinishedError{err}
	case err != nil:
		return err
	}
	return r.stand(ctx, m, want)
}

// lookAhead says what is ahead, and what refuses it.
func (r *migrator) lookAhead(ctx context.Context) error {
	state, err := r.runner.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	list := migrate.Outlooks(r.runner.Topology, state, r.runner.Legacy)
	for i := range list {
		if list[i].ByName, err = r.runner.ByName(ctx, list[i].Move); err != nil {
			return err
		}
	}
	if r.output == "markdown" {
		err = migrate.WritePages(r.stdout, r.runner.Topology, list)
	} else {
		err = migrate.WriteOutlooks(r.stdout, list)
	}
	if err != nil {
		return err
	}
	r.runner.Until = migrate.Check
	return r.runner.Run(ctx)
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
	return r.stand(ctx, m, want)
}

// stand reads where the migrations stand, and writes it.
func (r *migrator) stand(ctx context.Context, m *broker.Management, want topology.Topology) error {
	state, err := m.Inspect(ctx)
	if err != nil {
		return err
	}
	if r.output == "json" {
		return migrate.WriteStandingsJSON(r.stdout, want, state.VHost, migrate.Standings(want, state))
	}
	return migrate.WriteStandings(r.stdout, migrate.Standings(want, state))
}

// waitingError says that others must act first.
type waitingError struct{ error }

func (e waitingError) Unwrap() error { return e.error }
