package cmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

type applyCommand struct {
	app    *app
	plan   planFlags
	lock   lockFlags
	yes    bool
	wait   time.Duration // for retired tiers to be empty; zero does not wait
	settle time.Duration // between two steps of a changed backoff, or of a queue that is replaced
	// parallel is how many queues are replaced under their names at a time.
	parallel int
	command  *cobra.Command
	// question asks for confirmation.
	question string
	// process is the command that starts a processor. Empty: dlxctl process.
	process string
}

func newApply(a *app) *cobra.Command {
	k := applyCommand{app: a, question: "apply these changes?"}
	c := &cobra.Command{
		Use: "apply [PLAN]", SuggestFor: []string{"deploy", "up", "create"},
		Short: "Apply the topology to the broker",
		Long: `Show the plan, ask for confirmation, write the changes, and verify that the broker
matches the topology.

PLAN is a file from 'plan --save'. apply carries out exactly that plan, and refuses it if
the broker has changed since. PLAN holds the topology, --prune, --skip-blocked and
--allow. With PLAN, apply adds its own --allow, which without a name is for the objects
that PLAN shows with this hazard. It refuses -f, --overlay, --prune and --skip-blocked on
the command line, and ignores their environment variables. Without PLAN, apply plans the
topology files of -f.

apply writes nothing while a change is blocked, or has a hazard that neither --allow nor
'removed' in the file allows. --skip-blocked writes the other changes, and keeps what the
skipped objects need: their dead-letter queues and return paths.

apply creates objects in an order in which every message has a destination at each
moment, and deletes them in reverse order. If it is interrupted or fails, it prints what
is done and what is not; run it again to continue.

A queue that RabbitMQ cannot change is replaced under its own name, with --allow
replaces-queue=QUEUE or replace: true in the file, just as 'dlxctl migrate' does it: after
the other changes, --parallel at a time, and before those that need the new queue. One that
waits or fails stops no other, and a table in the end says what became of each. --allow
drops-routing=QUEUE replaces it although publishers send to its name, and --allow
stops-consumers=QUEUE ends that although consumers are missing.

Only one apply per topology runs at a time. A second one fails, and prints who holds the
lock.

Exit codes: 0 done, 1 failed and nothing was written, 2 all is written, but a queue that is
replaced waits for its consumers: run it again, 3 blocked, 4 some changes were written but
not all, 130 interrupted before the first write.`,
		Example:     "  dlxctl apply\n  dlxctl plan --save plan.json && dlxctl apply plan.json\n  dlxctl apply --yes -f topology/\n  dlxctl apply --yes --allow drops-routing=billing",
		Args:        planFile,
		Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE: func(c *cobra.Command, args []string) error {
			if err := k.plan.read(); err != nil {
				return err
			}
			if err := checkSavedFlags(c, args); err != nil {
				return err
			}
			var saved *planview.Saved
			if len(args) > 0 {
				read, err := readSaved(args[0])
				if err != nil {
					return err
				}
				saved = &read
				setSource(c.Flags(), read.Source)
			}
			if err := checkParallel(k.parallel); err != nil {
				return err
			}
			k.process, k.command = shellLine(c, "process"), c
			return k.run(c.Context(), saved)
		},
	}
	c.Flags().BoolVar(&k.yes, "yes", false, "skip confirmation; required without a terminal")
	c.Flags().DurationVar(&k.settle, "settle", 500*time.Millisecond,
		"pause between two steps of a changed backoff or a replaced queue, for the broker to settle")
	c.Flags().IntVar(&k.parallel, "parallel", 1,
		"how many queues to replace under their names at a time; each takes up to 4 connections")
	addWait(c.Flags(), &k.wait,
		"wait until retired tiers are empty, then delete them; --wait=10m gives up after 10m; also how long to wait for the consumers of replaced queues (without --wait 10m)").NoOptDefVal = "true"
	k.plan.add(c.Flags())
	k.lock.add(c.Flags())
	return c
}

// planFile refuses an argument that cannot be a saved plan.
func planFile(c *cobra.Command, args []string) error {
	if len(args) == 1 && !isYAML(args[0]) {
		if _, err := time.ParseDuration(args[0]); err == nil && c.Flags().Changed("wait") {
			return usageError{fmt.Errorf("%s would be read as a saved plan; write --wait=%s", args[0], args[0])}
		}
		if isFolder(args[0]) {
			return noArguments(c, args)
		}
		return nil
	}
	return noArguments(c, args)
}

// checkSavedFlags refuses flags on the command line that have no effect on a saved plan.
// It ignores their environment variables, which are set for more than one command.
func checkSavedFlags(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	for _, name := range []string{"file", "overlay", "prune", "skip-blocked"} {
		if c.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s has no effect on a saved plan; pass it to 'dlxctl plan --save %s' instead", name,
				text.ShellQuote(args[0]))}
		}
	}
	return nil
}

// setSource sets the flags to what a saved plan was made from, for the commands that apply prints.
// A flag that has that value already, by default or by its environment variable, is not printed.
func setSource(flags *pflag.FlagSet, s planview.Source) {
	for name, values := range map[string][]string{"file": s.Files, "overlay": s.Overlays} {
		f := flags.Lookup(name)
		if list, ok := f.Value.(pflag.SliceValue); ok && len(values) > 0 && !slices.Equal(list.GetSlice(), values) {
			f.Changed = list.Replace(values) == nil
		}
	}
	if f := flags.Lookup("vhost"); s.VHost != "" && f.Value.String() == "" {
		f.Changed = f.Value.Set(s.VHost) == nil
	}
}

// run applies a saved plan, or the files.
func (k *applyCommand) run(ctx context.Context, saved *planview.Saved) error {
	r := apply.Runner{Options: k.plan.options, Asks: !k.yes, Settle: k.settle, Wait: k.wait}
	want, conn, err := k.wanted(saved, &r)
	if err != nil {
		return err
	}
	if r.Session, err = conn.open(want); err != nil {
		return err
	}
	return k.carry(ctx, &r, r.Run)
}

// carry runs r under the lock of its topology, and closes its session.
func (k *applyCommand) carry(ctx context.Context, r *apply.Runner, run func(context.Context) error) error {
	defer r.Session.Close()
	command := "apply"
	if r.Options.Destroy {
		command = "destroy"
	}
	if err := k.lock.lockSession(ctx, k.app, r.Session, command); err != nil {
		return err
	}
	files := r.Saved == nil && !r.Options.Destroy
	show := &reporter{k: k, files: files, forget: func() bool { return true }}
	defer func() { show.forget() }()
	r.Reporter = show
	if k.command != nil { // it is none for destroy, which wants no queue
		r.Replacer = k.replacer(ctx, r, show)
	}
	return run(ctx)
}

// wanted returns the topology to apply and its broker: those of a saved plan, with its options, or
// of the files.
func (k *applyCommand) wanted(saved *planview.Saved, r *apply.Runner) (topology.Compiled, connection, error) {
	if saved == nil {
		t, err := k.app.files().load()
		return t, k.app.conn, err
	}
	allow := saved.Narrowed(r.Options.Allow)
	k.noteUnshown(r.Options.Allow, allow)
	k.plan.allow = text.Each(allow, plan.Consent.String) // what is noted of the plan is about these
	saved.Options.Allow = append(saved.Options.Allow, allow...)
	r.Saved, r.Options = saved, saved.Options
	return saved.Want, k.app.conn.in(saved.VHost), nil
}

// noteUnshown notes which of the given consents for every change allow nothing, as the saved plan
// showed no change with such a hazard.
func (k *applyCommand) noteUnshown(given, narrowed []plan.Consent) {
	for _, g := range given {
		if !slices.ContainsFunc(narrowed, func(n plan.Consent) bool { return n.Hazard == g.Hazard }) {
			fmt.Fprintf(k.app.stderr, "note: %s allows nothing: the saved plan shows no change with this hazard\n", g.Flag())
		}
	}
}

func readSaved(path string) (planview.Saved, error) {
	f, err := os.Open(path)
	if err != nil {
		return planview.Saved{}, fmt.Errorf("read %s: %w", path, reason(err))
	}
	defer f.Close()
	saved, err := planview.ReadSaved(f)
	if err = cmp.Or(err, saved.CheckVersion(Version())); err != nil {
		return planview.Saved{}, fmt.Errorf("%s: %w", path, err)
	}
	return saved, nil
}

// reporter shows a run of apply: results on stdout, the rest on stderr.
type reporter struct {
	k       *applyCommand
	files   bool        // what is applied are the files
	planned plan.Plan   // what was shown
	forget  func() bool // the notice of Ctrl-C, which holds from the first write to the end of the run
}

// Planned shows the plan.
func (r *reporter) Planned(p plan.Plan) error {
	r.planned = p
	if !p.Empty() && r.k.app.output == "text" {
		p.Unprocessed = nil // the last line of the run says it
	}
	if err := r.k.app.show(p, r.k.plan.verbose, r.k.process); err != nil {
		return err
	}
	r.k.plan.note(r.k.app, p)
	if r.files {
		r.k.app.noteOverlay(p)
	}
	return nil
}

// Confirm asks, unless --yes is given.
func (r *reporter) Confirm(ctx context.Context) error {
	if r.k.yes {
		return nil
	}
	return r.k.ask(ctx, r.planned)
}

// Progress shows how many of the changes are written.
func (r *reporter) Progress(ctx context.Context, changes int) (step, finish func()) {
	r.forget()
	r.forget = r.k.app.announceStop(ctx)
	p := r.k.app.newProgress("applied", "changes", changes)
	return p.step, p.finish
}

// Result prints a line, if the output is text.
func (r *reporter) Result(line string) {
	if r.k.app.output == "text" {
		fmt.Fprintln(r.k.app.stdout, line)
	}
}

// Unprocessed prints the line that says which failed queues no processor consumes.
func (r *reporter) Unprocessed(list []plan.Unprocessed) {
	if line := planview.ProcessorLine(r.k.app.style(), list, r.k.process); line != "" {
		r.Result(line)
	}
}

// Notice prints a line on stderr.
func (r *reporter) Notice(line string) { fmt.Fprintln(r.k.app.stderr, line) }
