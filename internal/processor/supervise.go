package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// RunAll runs processors side by side until ctx ends. The first that fails ends the
// others in good order. One that has nothing to process is left out, as its file may be that of
// another team. It fails if that is true of all.
func RunAll(ctx context.Context, processors []Processor) error {
	works := slices.ContainsFunc(processors, func(p Processor) bool { return p.hasWork() == nil })
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range processors {
		if err := p.hasWork(); err != nil && works {
			p.Log.InfoContext(ctx, "running without a topology", "reason", err)
			continue
		}
		group.Go(func() error { return p.Run(ctx) })
	}
	return group.Wait()
}

// watchTime is how often watched files are read. They are read, and not listened to:
// which events a mounted file gives depends on the mount.
const watchTime = time.Second

// Snapshot is what the files contain at one moment.
type Snapshot struct {
	// Content is the content of all files, with their names. It is only compared.
	Content string
	// Processors compiles that content. It is called again while it fails, as the content may name
	// other files: a schema, a password.
	Processors func() ([]Processor, error)
}

// Supervisor runs the processors of files that may change.
type Supervisor struct {
	// Read reads the files.
	Read func() (Snapshot, error)
	Log  *slog.Logger

	running []*worker
	active  *string       // the content in effect; nil before the first
	partly  bool          // some topologies have later content in effect than active
	tried   *Snapshot     // what was read last
	wanted  []Processor   // of tried
	err     error         // why tried cannot be used
	lacks   error         // why the broker cannot be used with all of wanted
	asked   time.Time     // when the broker was asked
	pause   time.Duration // before it is asked again; zero: it was not asked about tried
	logged  string        // the fault that was logged last
	failed  chan error    // why a processor ended by itself
}

// Run runs the processors of the files until ctx ends, and follows the files when they
// change. A topology that did not change is left alone. One that did is processed by its
// old processor until that has finished the messages in flight; then the new one begins, so
// no message is in flight twice. One without a backoff has an idle processor. Files that
// cannot be read, or a topology that is not on the broker yet, are logged once, and the old
// processors continue; that the change was undone is logged too.
func (s *Supervisor) Run(ctx context.Context) error {
	s.failed = make(chan error, 1)
	defer s.stop(func(*worker) bool { return true })
	if err := s.look(ctx); err != nil { // before anything runs, a fault is an error
		return err
	}
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case <-tick.C:
			if err := s.look(ctx); err != nil && err.Error() != s.logged {
				s.logged = err.Error()
				s.Log.ErrorContext(ctx, "files changed but cannot be used; keeping the previous ones", "error", err)
			}
		}
	}
}

// worker is a processor that runs.
type worker struct {
	Processor

	stop  context.CancelFunc
	ended chan struct{}
}

// run runs the processor. One without a backoff has nothing to consume, and waits for the next
// file: apply moves what is left in the failed queues of the previous one.
func (w *worker) run(ctx context.Context) error {
	if w.hasWork() == nil {
		return w.Run(ctx)
	}
	w.Monitor.Watch(w.Topology)
	w.Log.InfoContext(ctx, "idle until the file changes: no queue has a backoff")
	<-ctx.Done()
	return nil
}

// same reports whether p would do what w does.
func (w *worker) same(p Processor) bool {
	return w.Endpoint.VHost == p.Endpoint.VHost && reflect.DeepEqual(w.Topology, p.Topology)
}

// replacedBy reports whether p is the processor of the same topology.
func (w *worker) replacedBy(p Processor) bool {
	return w.Topology.Name == p.Topology.Name && w.Endpoint.VHost == p.Endpoint.VHost
}

// look reads the files and brings the processors in line with them. After an error those of the
// topologies that cannot be used are as they were.
func (s *Supervisor) look(ctx context.Context) error {
	files, err := s.Read()
	if err != nil {
		return err
	}
	another := s.tried == nil || files.Content != s.tried.Content
	if another {
		s.tried, s.pause = &files, 0
	}
	if another || s.err != nil {
		s.wanted, s.err = s.tried.Processors()
	}
	if s.err != nil {
		return s.err
	}
	if s.active != nil && files.Content == *s.active && !s.partly {
		if s.logged != "" {
			s.Log.InfoContext(ctx, "files are as they were before the error, and stay in effect")
		}
		s.logged = ""
		return nil
	}
	fresh := slices.DeleteFunc(slices.Clone(s.wanted), func(p Processor) bool {
		return slices.ContainsFunc(s.running, func(w *worker) bool { return w.same(p) })
	})
	return s.use(ctx, files.Content, fresh)
}

// use runs those of fresh that can run now, in place of the processors of the same topologies. Only
// once all can, it ends the processors of topologies that the files no longer have: one of those
// that wait may be the same topology under another name.
func (s *Supervisor) use(ctx context.Context, content string, fresh []Processor) error {
	var waiting error
	if s.active != nil {
		fresh, waiting = s.usable(ctx, fresh)
	}
	switch {
	case waiting == nil:
		if s.active != nil {
			s.Log.InfoContext(ctx, "files changed and are in effect", "topologies_changed", len(fresh))
		}
		s.active, s.partly, s.logged = &content, false, ""
		s.stop(func(w *worker) bool { return !slices.ContainsFunc(s.wanted, w.same) })
	case len(fresh) > 0:
		s.Log.InfoContext(ctx, "files changed and are partly in effect", "topologies_changed", len(fresh))
		s.partly = true
		s.stop(func(w *worker) bool { return slices.ContainsFunc(fresh, w.replacedBy) })
	}
	for _, p := range fresh {
		p.Monitor.Replaced()
		s.start(ctx, p)
	}
	return waiting
}

// usable returns those of fresh that can run now, and why the others cannot. One team's topology
// does not wait for the apply of another. It asks the broker with pauses, as an apply may come days
// later.
func (s *Supervisor) usable(ctx context.Context, fresh []Processor) ([]Processor, error) {
	if s.pause > 0 && time.Since(s.asked) < s.pause {
		return nil, s.lacks
	}
	var out []Processor
	var waiting []error
	for _, p := range fresh {
		err := s.recounts(p)
		if err == nil {
			err = p.Check(ctx)
		}
		if err == nil {
			out = append(out, p)
		} else {
			waiting = append(waiting, fmt.Errorf("topology %q: %w", p.Topology.Name, err))
		}
	}
	s.lacks = errors.Join(waiting...)
	s.asked, s.pause = time.Now(), min(max(2*s.pause, firstLook), longestLook)
	return out, s.lacks
}

// recounts fails if p has another count header than its running processor. Nothing that the broker
// can be asked for shows by which header it chooses tiers, and plan.Make blocks the change while a
// processor runs: with another one than the broker's, all messages end in the unroutable queue.
func (s *Supervisor) recounts(p Processor) error {
	for _, w := range s.running {
		old, t := w.Topology, p.Topology
		if w.replacedBy(p) && old.CountHeader != t.CountHeader &&
			len(old.Backoffs) > 0 && len(t.Backoffs) > 0 {
			return fmt.Errorf("countHeader changes from %s to %s while a processor runs; "+
				"stop the processors, run 'dlxctl apply', and start them with the new file", old.CountHeader, t.CountHeader)
		}
	}
	return nil
}

func (s *Supervisor) start(ctx context.Context, p Processor) {
	ctx, stop := context.WithCancel(ctx)
	w := &worker{Processor: p, stop: stop, ended: make(chan struct{})}
	s.running = append(s.running, w)
	go func() {
		defer close(w.ended)
		if err := w.run(ctx); err != nil {
			select {
			case s.failed <- err:
			default: // another one was first
			}
		}
	}()
}

// stop ends the processors of which done is true, and waits until they have finished
// the messages in flight. The broker delivers the others to the next processor.
func (s *Supervisor) stop(done func(*worker) bool) {
	var stopped []*worker
	s.running = slices.DeleteFunc(s.running, func(w *worker) bool {
		if !done(w) {
			return false
		}
		w.stop()
		stopped = append(stopped, w)
		return true
	})
	for _, w := range stopped {
		<-w.ended
	}
}
