package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/processor"
	"github.com/dlxctl/dlxctl/spec"
)

// watchTime is how often watched files are read. They are read, and not
// listened to: what a mounted file tells of its changes depends on the mount.
const watchTime = time.Second

// watch runs p for each topology of the files of -f, and goes on with what they
// say whenever they change. A topology that did not change is left alone. One that
// did is worked off by its old processor until that has finished what is in
// flight; then the new one begins, so nothing is in flight twice. What cannot be
// read, or is not on the broker yet, is told once, and the old goes on.
func (a *app) watch(ctx context.Context, p processor.Processor) error {
	if slices.Contains(a.files, "-") {
		return usageError{errors.New("--watch cannot watch stdin: give a file")}
	}
	w := &watcher{app: a, template: p, failed: make(chan error, 1)}
	defer w.stop(nil)
	if err := w.look(ctx); err != nil { // before anything runs, a fault is an error
		return err
	}
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.failed:
			return err
		case <-tick.C:
			if err := w.look(ctx); err != nil && err.Error() != w.said {
				w.said = err.Error()
				a.log().ErrorContext(ctx, "the files changed, and the old ones stay in force", "error", err)
			}
		}
	}
}

// watcher runs the processors of files that may change.
type watcher struct {
	app      *app
	template processor.Processor
	running  []*worker
	read     []spec.Source // what is in force
	tried    []spec.Source // what was read last
	wanted   []processor.Processor
	err      error      // what is wrong with tried
	said     string     // the fault that was told last
	failed   chan error // why a processor ended by itself
}

// worker is a processor that runs.
type worker struct {
	processor.Processor

	stop  context.CancelFunc
	ended chan struct{}
}

// same reports whether p would do what w does.
func (w *worker) same(p processor.Processor) bool {
	return w.Endpoint.VHost == p.Endpoint.VHost && reflect.DeepEqual(w.Topology, p.Topology)
}

// same reports whether two lots of files say the same.
func same(a, b []spec.Source) bool {
	return slices.EqualFunc(a, b, func(a, b spec.Source) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) })
}

// look reads the files and brings the processors in line with them. After an
// error they are as they were.
func (w *watcher) look(ctx context.Context) error {
	sources, err := w.app.sources(w.app.files...)
	if err != nil {
		return err
	}
	if w.tried == nil || !same(sources, w.tried) {
		w.tried = sources
		w.wanted, w.err = w.app.processors(w.template)
	}
	if w.err != nil {
		return w.err
	}
	if w.read != nil && same(sources, w.read) {
		w.said = ""
		return nil
	}
	fresh := slices.DeleteFunc(slices.Clone(w.wanted), func(p processor.Processor) bool {
		return slices.ContainsFunc(w.running, func(r *worker) bool { return r.same(p) })
	})
	if w.read != nil {
		for _, p := range fresh {
			if err := p.Check(ctx); err != nil {
				return fmt.Errorf("topology %q: %w", p.Topology.Name, err)
			}
		}
		w.app.log().InfoContext(ctx, "the files changed, and are in force", "topologies_changed", len(fresh))
	}
	w.read, w.said = sources, ""
	w.stop(w.wanted)
	for _, p := range fresh {
		w.start(ctx, p)
	}
	return nil
}

// start runs a processor.
func (w *watcher) start(ctx context.Context, p processor.Processor) {
	ctx, stop := context.WithCancel(ctx)
	r := &worker{Processor: p, stop: stop, ended: make(chan struct{})}
	w.running = append(w.running, r)
	go func() {
		defer close(r.ended)
		if err := r.Run(ctx); err != nil {
			select {
			case w.failed <- err:
			default: // another one was first
			}
		}
	}()
}

// stop ends the processors that do nothing of what is wanted, and waits until they
// have finished what is in flight. The broker delivers the rest to the next.
func (w *watcher) stop(wanted []processor.Processor) {
	var stopped []*worker
	w.running = slices.DeleteFunc(w.running, func(r *worker) bool {
		if slices.ContainsFunc(wanted, r.same) {
			return false
		}
		r.stop()
		stopped = append(stopped, r)
		return true
	})
	for _, r := range stopped {
		<-r.ended
	}
}
