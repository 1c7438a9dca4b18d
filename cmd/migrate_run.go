package cmd

import (
	"context"
	"errors"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// migrateAction is what a command does with migrations.
type migrateAction struct {
	// confirm shows what run does, and asks. It reports false if there is nothing to do.
	confirm func(context.Context, *apply.Session, topology.State) (bool, error)
	run     func(context.Context) error
	// wrote says that the command has written something before, and skips that the command does not
	// fail over a queue that is refused.
	wrote, skips bool
	// onward and back say how to continue after an interruption, and how to go back, if there is a
	// way.
	onward string
	back   func() string
	// none is what to print if nothing is left to do, and nothing was done.
	none string
}

// runUnderLock runs an action on the migrations of legacy, under the lock, once the user has
// agreed.
func (k *migrateCommand) runUnderLock(ctx context.Context, want topology.Compiled, legacy []string,
	action migrateAction,
) error {
	s, err := k.app.conn.open(want)
	if err != nil {
		return err
	}
	defer s.Close()
	k.attach(ctx, s, "migrate")
	k.runner.Legacy = legacy
	if k.dryRun {
		k.runner.CheckRights = nil // what it may write is asked before it writes
		return k.dryRunAll(ctx, s)
	}
	if err := k.lock.lockSession(ctx, k.app, s, "migrate"); err != nil {
		return err
	}
	defer k.app.announceStop(ctx)()
	if !k.yes {
		state, err := s.Inspect(ctx)
		if err != nil {
			return err
		}
		if more, err := action.confirm(ctx, s, state); !more || err != nil {
			return err
		}
	}
	err = k.carryOut(ctx, s, action)
	switch {
	case err != nil, len(k.runner.Results()) > 0:
		return err
	case k.app.output == "json":
		return k.writeResults(s, 0)
	case k.runner.Finished():
		return nil // Run has printed it
	case k.runner.Until == migrate.Check:
		_, _, err := k.preview(ctx, s)
		return err
	case k.runner.Wrote():
		return k.writeStatus(ctx, s, "") // it has printed what it did
	default:
		return k.writeStatus(ctx, s, action.none)
	}
}

// attach makes the runner work with the session of a command, which others see as the holder of the
// lock.
func (k *migrateCommand) attach(ctx context.Context, s *apply.Session, command string) {
	k.output.app = k.app
	r := &k.runner
	r.Topology, r.Management, r.Endpoint, r.Unlocked = s.Topology, s.Management, s.Endpoint, !k.lock.wanted
	r.Report, r.Progress, r.QueueProgress = k.output.report, k.output.progress, k.output.queueProgress
	r.CheckRights = func(rights []plan.Right) error { return s.CheckRights(ctx, rights) }
	if k.lock.wanted {
		// The broker frees the lock once what was under way on the connection has ended.
		again := lockFlags{wanted: true, timeout: max(k.lock.timeout, time.Minute)}
		r.Relock = func(ctx context.Context) error { return again.lockSession(ctx, k.app, s, command) }
	}
}

// carryOut runs an action. If it treats each queue by itself, carryOut writes what became of them.
func (k *migrateCommand) carryOut(ctx context.Context, s *apply.Session, action migrateAction) error {
	began := time.Now()
	err := action.run(ctx)
	if len(k.runner.Results()) > 0 {
		return k.explainEach(ctx, s, err, time.Since(began), action)
	}
	if err != nil {
		return k.explain(ctx, err, action)
	}
	return nil
}

// wrote reports whether the command has written anything.
func (k *migrateCommand) wrote(a migrateAction) bool { return a.wrote || k.runner.Wrote() }

// explain returns the error of a run that did not come to its end, such that exitCode knows its
// code.
func (k *migrateCommand) explain(ctx context.Context, err error, action migrateAction) error {
	switch {
	case errors.Is(err, migrate.ErrVanished), errors.Is(err, migrate.ErrDisturbed):
		return &apply.UnfinishedError{Err: err}
	case ctx.Err() != nil && k.wrote(action):
		return &apply.UnfinishedError{Err: k.interrupted(ctx, err, action)}
	case errors.Is(err, migrate.ErrWaiting):
		return err
	case k.wrote(action):
		return &apply.UnfinishedError{Err: err}
	default:
		return err
	}
}
