package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// migrateCommand is the command migrate, and its subcommands.
type migrateCommand struct {
	app         *app
	lock        lockFlags
	runner      migrate.Runner
	until       string
	drain       string
	suffix      string
	match       string
	parallel    int
	dryRun, yes bool
	write       bool // edit the file
	allow       []string
	delayed     delayedFlags
	output      migrateOutput
}

func newMigrate(a *app) *cobra.Command {
	k := migrateCommand{app: a}
	c := &cobra.Command{
		Use:   "migrate [LEGACY...]",
		Short: "Move legacy queues to successors under live traffic",
		Long: `Move each legacy queue that the file lists as 'replaces' to its successor, the queue that
replaces it. Every message goes to exactly one of the two queues, while publishers publish
and consumers consume. migrate can be killed at any moment and run again, on any machine:
it reads from the broker which step is next.

  check     report every reason why a queue cannot be moved
  prepare   create the successors and their retry queues, without business bindings
  cutover   route new messages to the successors, with one policy update per queue
  drain     move the remaining messages, once no consumer reads the legacy queue
  retire    delete a legacy queue once it is empty, no message has arrived for --idle,
            no publisher is known to send to it by its name, and no other queue can
            dead-letter messages to it by its name

migrate prints these steps before it asks. It shows how many messages are moved, and Ctrl-C
prints what is left and how to continue or roll back.

A message that was published to the name of a legacy queue, through the default exchange,
shows that a publisher uses the name, however rarely. Then migrate keeps the queue and exits
with 2. --forward leaves a forwarder in its place. --allow drops-routing=LEGACY deletes the
queue or its forwarder, once no message has arrived for --idle: pass it after the publishers
have changed.

A queue of the file that RabbitMQ cannot change is replaced under its own name with --allow
replaces-queue=QUEUE, or replace: true in the file: what is routed to it waits in a hold
while it is emptied, deleted and declared again, and is then moved to it in order. Its
consumers get basic.cancel. If some do not subscribe again, migrate exits with 2; --allow
stops-consumers=QUEUE ends the replacement without them.

--match moves and replaces all queues of the file whose names match. With it, or with
--parallel, each queue is treated by itself: one that is refused, waits or fails stops no
other. A table in the end says what became of each: how many messages came to it, how many
of these may be doubled, how long messages waited in the hold, and how long after the
deletion the queue got messages again; a consumer that subscribes later waits longer. The exit
code is 0 if all are done, 2 if the others only wait, 4 if one was refused or failed and
anything was written, else 3 or 1. Run the same command again to go on.

--from-delayed replaces an exchange of the plugin for delayed messages by a delay of the file,
which the argument names if it has several: it checks that a processor reads the delay and
that its messages reach what is bound to the exchange, waits until the exchange holds nothing
on each node and no message has come for --idle, and deletes it.

For a queue that is named like a subcommand, write 'dlxctl migrate -- LEGACY...'.

Exit codes: 0 done, 1 failed and nothing was written, 2 waiting for publishers, consumers
or tiers: run it again, 3 refused, 4 some changes were written but not all, or a legacy
queue was deleted with its messages, and not by migrate, 130 interrupted before the
first write.`,
		Example:     "  dlxctl migrate --dry-run\n  dlxctl migrate --yes\n  dlxctl migrate invoices --until cutover --yes\n  dlxctl migrate --match '^orders\\.' --parallel 8 --yes\n  dlxctl migrate status",
		Annotations: map[string]string{outputsAnnotation: "text markdown json"},
		RunE:        k.run,
	}
	k.moveFlags(c.Flags())
	k.delayed.add(c.Flags())
	abort := &cobra.Command{
		Use: "abort [LEGACY...]", SuggestFor: []string{"rollback", "undo"},
		Short: "Roll back unfinished migrations",
		Long: `Route new messages to the legacy queues again, with one policy update per queue, move the
messages of the successors back, and delete the objects that migrate created. Messages
that wait in a tier return to the legacy queue: the return path stays until the tiers are
empty.

A migration is finished once its legacy queue is deleted. abort leaves finished migrations
alone; if an argument names one, it rolls back nothing.

A successor to which publishers have sent by its name is kept. Change the publishers, then
run abort again with --allow: what is sent to that name from then on is lost.

Exit codes: as migrate; 2 while messages wait in the tiers (run it again), or while such a
successor is kept; 3 if an argument names a finished migration.`,
		Example: "  dlxctl migrate abort --yes",
		RunE:    k.abort,
	}
	abort.Flags().BoolVar(&k.yes, "yes", false, "skip confirmation; required without a terminal")
	abort.Flags().DurationVar(&k.runner.Settle, "settle", 500*time.Millisecond,
		"pause between two steps, for the broker to settle")
	addWait(abort.Flags(), &k.runner.Wait, "how long to wait until the tiers are empty")
	k.allowFlag(abort.Flags(), "one successor (drops-routing=invoices.v2)")
	k.lock.add(abort.Flags())
	c.AddCommand(abort, &cobra.Command{ // or run would be taken for a legacy queue
		Use: "run", Hidden: true, Short: "Refused: is now migrate",
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New(
				"'dlxctl migrate run' is now 'dlxctl migrate'; for a queue named run, write 'dlxctl migrate -- run'")}
		},
	}, &cobra.Command{
		Use: "status", Short: "Show the progress of each migration", Args: noArguments,
		Long: "Show the next stage of each migration, and the bindings, messages and consumers that its\n" +
			"legacy queue still has. The user needs only the tag management.",
		Example:     "  dlxctl migrate status\n  dlxctl migrate status -o json",
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.status(c.Context()) },
	})
	return c
}

// moveFlags adds the flags of a run that moves queues.
func (k *migrateCommand) moveFlags(f *pflag.FlagSet) {
	f.StringVar(&k.until, "until", string(migrate.Retire), "last `STAGE` to run: check, prepare, cutover, drain or retire")
	f.BoolVar(&k.dryRun, "dry-run", false, "show the state of each queue and the next steps, and write nothing")
	f.StringVar(&k.suffix, "suffix", ".v2",
		"suffix of the successor's name, for a legacy queue that the file does not replace yet")
	f.BoolVar(&k.write, "write", false,
		"edit the file so that it replaces the named queues, add missing entries, and stop")
	f.StringVar(&k.match, "match", "",
		"also the queues of the file whose names match `REGEX`; with --write, those for which import proposes a successor")
	f.IntVar(&k.parallel, "parallel", 1,
		"how many queues to move at a time, each by itself; each takes up to 4 connections")
	f.BoolVar(&k.yes, "yes", false, "skip confirmation; required without a terminal")
	f.DurationVar(&k.runner.Settle, "settle", 500*time.Millisecond, "pause between two steps, for the broker to settle")
	f.StringVar(&k.drain, "drain", "idle", "when to move the remaining messages: idle (without consumers) or now")
	k.runner.Wait = 10 * time.Minute
	addWait(f, &k.runner.Wait, "how long to wait for publishers, consumers and tiers; true means no limit")
	f.DurationVar(&k.runner.Idle, "idle", 30*time.Second,
		"how long no message may have arrived before a legacy queue is deleted")
	f.BoolVar(&k.runner.Forward, "forward", false,
		"leave a forwarder in place of a legacy queue that publishers address by name")
	k.allowFlag(f, "one queue (drops-routing=invoices)")
	k.lock.add(f)
}

// allowFlag adds the flag that allows to delete a queue that publishers have addressed by name.
func (k *migrateCommand) allowFlag(f *pflag.FlagSet, one string) {
	f.StringSliceVar(&k.allow, "allow", nil,
		"allow a `HAZARD` for "+one+", or for all: drops-routing deletes it although publishers have sent to its name, replaces-queue replaces it under its name, stops-consumers ends that although consumers are missing, uncounted-nack lets RabbitMQ count its retries")
}

// mostParallel is how many queues may be moved at a time.
const mostParallel = 64

// checkParallel checks --parallel.
func checkParallel(n int) error {
	if n < 1 || n > mostParallel {
		return usageError{fmt.Errorf("--parallel is %d; write a number from 1 to %d", n, mostParallel)}
	}
	return nil
}

// read checks the flags. given says that --parallel is among them.
func (k *migrateCommand) read(given bool) error {
	stages := words(migrate.Stages())
	if err := checkParallel(k.parallel); err != nil {
		return err
	}
	switch {
	case !slices.Contains(stages, k.until):
		return usageError{fmt.Errorf("--until is %q; write %s", k.until, strings.Join(stages, ", "))}
	case k.suffix == "":
		return usageError{errors.New("--suffix is empty; write a suffix, because the successor needs another name")}
	case k.app.output == "markdown" && !k.dryRun:
		return usageError{errors.New("-o markdown needs --dry-run; pass both")}
	case k.drain != "idle" && k.drain != "now":
		return usageError{fmt.Errorf("--drain is %q; write idle or now", k.drain)}
	case k.runner.Settle < 0 || k.runner.Wait < 0 || k.runner.Idle <= 0:
		return usageError{errors.New("--settle and --wait must be 0s or more, and --idle more than 0s")}
	}
	if err := k.readAllowed(); err != nil {
		return err
	}
	k.runner.Until, k.runner.DrainNow = migrate.Stage(k.until), k.drain == "now"
	if k.match != "" || given {
		k.runner.Parallel = k.parallel
	}
	moves := !k.dryRun && !k.write && k.until != string(migrate.Check)
	if k.app.output == "json" && (k.runner.Parallel == 0 || !k.yes || !moves) {
		return usageError{errors.New(
			"-o json is for a run that moves queues: pass --match or --parallel, and --yes; 'dlxctl migrate status -o json' prints the progress")}
	}
	return nil
}

// readAllowed checks the values of --allow.
func (k *migrateCommand) readAllowed() error {
	for _, text := range k.allow {
		consent, err := plan.ParseConsent(text)
		hazards := []topology.Hazard{
			topology.DropsRouting, topology.ReplacesQueue, topology.StopsConsumers, topology.UncountedNack,
		}
		if err != nil || !slices.Contains(hazards, consent.Hazard) {
			return usageError{fmt.Errorf("--allow is %q; write %s=QUEUE, %s=QUEUE, %s=QUEUE or %s=QUEUE, the hazards of migrate", text,
				hazards[0], hazards[1], hazards[2], hazards[3])}
		}
		k.runner.Allow = append(k.runner.Allow, consent)
	}
	return nil
}

// checkAllowed refuses a value of --allow for another queue than those that the command may delete.
func (k *migrateCommand) checkAllowed(want topology.Compiled, what string, queues []string) error {
	for _, c := range k.runner.Allow {
		if c.Hazard != topology.DropsRouting && c.Object != "" && !slices.Contains(ownQueues(want), c.Object) {
			return usageError{fmt.Errorf("--allow names %q, which is not a queue of the file that dlxctl declares", c.Object)}
		}
		if c.Hazard == topology.DropsRouting && slices.Contains(ownQueues(want), c.Object) && k.replaces(want, c.Object) {
			continue
		}
		if c.Hazard == topology.DropsRouting && c.Object != "" && !slices.Contains(queues, c.Object) {
			return usageError{fmt.Errorf("--allow names %q, which is not a %s of the file; it may be: %s", c.Object, what,
				cmp.Or(strings.Join(queues, ", "), "none"))}
		}
	}
	return nil
}

func (k *migrateCommand) run(c *cobra.Command, legacy []string) error {
	if err := k.read(c.Flags().Changed("parallel")); err != nil {
		return err
	}
	switch given := c.Flags().Changed("from-delayed"); {
	case given && k.delayed.exchange != "":
		return k.fromDelayed(c, legacy)
	case given:
		return usageError{errors.New("--from-delayed is empty; write the name of an exchange")}
	case len(k.delayed.nodes) > 0:
		return usageError{errors.New("--node-api needs --from-delayed; pass both")}
	}
	sources, err := k.app.files().read() // once: one may be stdin
	if err != nil {
		return meantCommand(c, legacy, err)
	}
	want, err := k.app.files().compile(sources)
	if err != nil {
		return err
	}
	named := legacy
	if legacy, err = k.matching(sources, want, named); err != nil {
		return err
	}
	asked := legacy
	if !k.write {
		asked = named // what matches is in the file
	}
	missing, err := k.unknown(c.Context(), want, asked)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return meantCommand(c, missing, k.propose(c.Context(), sources, want, missing))
	}
	if err := k.checkAllowed(want, "legacy queue", legacyQueues(want)); err != nil {
		return err
	}
	if k.write {
		return usageError{errors.New("--write is for queues that the file does not replace yet; name such a queue")}
	}
	action := migrateAction{
		confirm: k.confirmMoves, run: k.runner.Run,
		none:   migrate.None,
		onward: "to continue: " + commandLine(c, named, k.consent()...),
		back:   func() string { return k.backLine(c, legacy) },
	}
	return k.runUnderLock(c.Context(), want, legacy, action)
}

// meantCommand adds to err that an unknown queue name may be a misspelled subcommand.
func meantCommand(c *cobra.Command, names []string, err error) error {
	if c.ArgsLenAtDash() >= 0 {
		return err // what is behind -- is meant as it is
	}
	for _, name := range names {
		for _, command := range []string{"status", "abort"} {
			if err != nil && topology.DidYouMean(name, []string{command}, "") != "" {
				return fmt.Errorf("%w; or did you mean 'dlxctl migrate %s'?", err, command)
			}
		}
	}
	return err
}

// abort rolls back migrations.
func (k *migrateCommand) abort(c *cobra.Command, legacy []string) error {
	if err := k.readAllowed(); err != nil {
		return err
	}
	sources, err := k.app.files().read() // once: one may be stdin
	if err != nil {
		return err
	}
	want, err := k.app.files().compile(sources)
	if err != nil {
		return err
	}
	missing, err := k.unknown(c.Context(), want, legacy)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: no queue of the file replaces %q", migrate.ErrRefused, missing[0])
	}
	var successors []string
	for _, w := range want.WorkQueues {
		if w.Replaces != "" {
			successors = append(successors, w.Name)
		}
	}
	if err := k.checkAllowed(want, "successor", successors); err != nil {
		return err
	}
	without := func(aborted []string) (topology.Compiled, error) {
		return k.app.files().compileWithout(sources, aborted)
	}
	action := migrateAction{
		confirm: k.confirmAbort, none: "nothing to roll back: no migration is unfinished",
		run:    func(ctx context.Context) error { return k.runner.Abort(ctx, without) },
		onward: "to continue: " + commandLine(c, legacy, k.consent()...),
		back:   func() string { return "to migrate after all: " + k.forwardLine(c, legacy) },
	}
	return k.runUnderLock(c.Context(), want, legacy, action)
}

// mostAsked is how many queues a question names. The preview above it names all.
const mostAsked = 20

// replaceQuestion asks whether to replace queues under their names.
func replaceQuestion(queues []string) string {
	return topology.Printable("replace " + text.FirstOf(queues, mostAsked) + " under the same name?")
}

// confirmMoves shows the migrations of a run and asks for consent. It reports false if there
// are none.
func (k *migrateCommand) confirmMoves(ctx context.Context, s *apply.Session, _ topology.State) (bool, error) {
	if k.runner.Until == migrate.Check {
		return true, nil // it writes nothing
	}
	list, replaced, err := k.preview(ctx, s)
	if err != nil || len(list)+len(replaced) == 0 {
		return false, err
	}
	if len(list) == 0 {
		return true, k.app.ask(ctx, replaceQuestion(replaced))
	}
	var moves, names []string
	for _, o := range list {
		moves, names = append(moves, o.Legacy+" to "+o.New), append(names, o.Legacy)
	}
	question := "move " + text.FirstOf(moves, mostAsked) + " and delete " + text.FirstOf(names, mostAsked) + " at the end?"
	if len(replaced) > 0 {
		question = "replace " + text.FirstOf(replaced, mostAsked) + " under the same name, and " + question
	}
	if k.runner.Until != migrate.Retire {
		question = fmt.Sprintf("move %s, up to the stage %s?", text.FirstOf(moves, mostAsked), k.runner.Until)
	}
	return true, k.app.ask(ctx, topology.Printable(question))
}

// confirmAbort is confirmMoves for an abort.
func (k *migrateCommand) confirmAbort(ctx context.Context, _ *apply.Session, state topology.State) (bool, error) {
	moves, stays, err := migrate.Abortable(k.runner.Topology, state, k.runner.Legacy)
	if err != nil {
		return false, err
	}
	replaced, unable := migrate.Rollbacks(k.runner.Topology, state, k.runner.Legacy)
	if len(moves)+len(replaced) == 0 {
		for _, line := range slices.Concat(stays, unable) {
			fmt.Fprintln(k.app.stdout, topology.Printable(line))
		}
		return false, migrate.NotInFile(k.runner.Topology, state, k.runner.Legacy)
	}
	if err := migrate.WriteRollbacks(k.app.stdout, state, moves); err != nil {
		return false, err
	}
	var back, names []string
	for _, m := range moves {
		back, names = append(back, m.New+" back to "+m.Legacy), append(names, m.New)
	}
	for _, m := range replaced {
		back, names = append(back, "the hold of "+m.Legacy+" back to it"), append(names, "the hold of "+m.Legacy)
	}
	question := "move " + strings.Join(back, ", ") + " and delete " + strings.Join(names, ", ") + " at the end?"
	return true, k.app.ask(ctx, topology.Printable(question))
}

// dryRunAll shows the next steps, and the reasons that refuse them.
func (k *migrateCommand) dryRunAll(ctx context.Context, s *apply.Session) error {
	if _, _, err := k.preview(ctx, s); err != nil {
		return err
	}
	return k.runner.Check(ctx)
}

// preview writes the next steps of the migrations, and of queues that are replaced under their
// names.
func (k *migrateCommand) preview(ctx context.Context, s *apply.Session) (
	list []migrate.Preview, replaced []string, err error,
) {
	state, err := s.Inspect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if list, err = k.runner.Previews(ctx, state); err != nil {
		return nil, nil, err
	}
	if k.app.output == "markdown" {
		return list, nil, migrate.WritePages(k.app.stdout, k.runner.Topology, list)
	}
	if replaced, err = k.runner.Replacements(ctx, state, k.app.stdout); err != nil || len(list) == 0 && len(replaced) > 0 {
		return list, replaced, err
	}
	return list, replaced, k.runner.WritePreviews(k.app.stdout, state, list)
}

// status writes the progress of each migration.
func (k *migrateCommand) status(ctx context.Context) error {
	want, err := k.app.files().load()
	if err != nil {
		return err
	}
	s, err := k.app.conn.open(want)
	if err != nil {
		return err
	}
	defer s.Close()
	return k.writeStatus(ctx, s, migrate.None)
}

// writeStatus reads the progress of the migrations, and writes it, or none if there are none.
func (k *migrateCommand) writeStatus(ctx context.Context, s *apply.Session, none string) error {
	state, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	list, err := migrate.ReadStatuses(ctx, s.Management, s.Topology, state)
	if err != nil {
		return err
	}
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, migrate.StatusDocument{
			Version: 1, Topology: s.Topology.Name, VHost: state.VHost, Migrations: list,
			Replacing: migrate.Unfinished(s.Topology, state), Stray: migrate.Stray(s.Topology, state),
			StrayMoves: text.Each(plan.StrayMoves(s.Topology, state), func(m plan.StrayMove) string { return m.Legacy }),
		})
	}
	return migrate.WriteStatuses(k.app.stdout, s.Topology, state, list, none)
}
