package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Outcome is what became of a queue in a run.
type Outcome string

// The outcomes. A queue that is stopped is in the middle: the next run goes on with it.
const (
	Done     Outcome = "done"
	Waiting  Outcome = "waiting"
	Refused  Outcome = "refused"
	Failed   Outcome = "failed"
	Stopped  Outcome = "stopped"
	NotBegun Outcome = "not begun"
)

// Result says what a run of several queues has done with one.
type Result struct {
	// Queue is the legacy queue, or the queue that is replaced under its name.
	Queue string `json:"queue"`
	// New is the successor. Empty: the queue is replaced under its name.
	New string `json:"successor,omitempty"`
	// Outcome is done, waiting, refused, failed, stopped or not begun. Done is up to the stage of
	// --until, and also a legacy queue that stays and forwards.
	Outcome Outcome `json:"outcome"`
	// Moved is how many messages came to the successor, or from the hold to the queue.
	Moved int64 `json:"moved"`
	// Doubled is how many of these may be doubled, at most.
	Doubled int64 `json:"doubledAtMost"`
	// Held is for how many seconds at most messages waited in the hold. Null: none did, or another run
	// began it.
	Held *jsondoc.Seconds `json:"heldSeconds"`
	// Pause is how many seconds after its deletion the queue got messages again. Null: this run has
	// not deleted it.
	Pause *jsondoc.Seconds `json:"pauseSeconds"`
	// Error says why the queue is not done.
	Error string `json:"error,omitempty"`

	lockLost bool // it failed, and the lock of the run was lost
}

// ResultDocument is what a run of several queues has done, as scripts read it.
type ResultDocument struct {
	Version  int    `json:"version"`
	Topology string `json:"topology"`
	VHost    string `json:"vhost"`
	// Queues are the queues of the run, in the order of the file. One that had nothing to do is left
	// out.
	Queues []Result `json:"queues"`
}

// unit is a queue that is moved by itself.
type unit struct {
	Move

	forwards bool   // its legacy queue forwards, and is to be retired
	down     string // the one of its queues whose node is down. Empty: none
	queue    Result // its queue and successor
}

// runEach moves each queue by itself, Parallel at a time. Results says what became of them.
func (r *Runner) runEach(ctx context.Context) error {
	units, err := r.units(ctx)
	if len(units) == 0 || r.Until == Check {
		return err
	}
	refused := err
	results, failed := make([]Result, len(units)), make([]error, len(units))
	for i, u := range units {
		results[i] = u.queue
	}
	step, finish := func() {}, func() {}
	if r.QueueProgress != nil {
		step, finish = r.QueueProgress(len(units))
	}
	for left := len(units) + 1; ; {
		r.pass(ctx, units, results, failed, step)
		again := 0
		for _, s := range results {
			if s.Outcome == NotBegun || s.lockLost {
				again++
			}
		}
		over := again == 0 || again >= left || ctx.Err() != nil // each pass must bring a queue to its end
		if over || !r.Management.LockLost() || !r.regainLock(ctx) {
			break
		}
		r.say("%s on", text.Count(again, "queue")+text.Choose(again, " goes", " go"))
		left = again
	}
	finish()
	for i, u := range units {
		r.measure(u, &results[i])
	}
	r.mu.Lock()
	r.results = results
	r.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if n := count(results, NotBegun); n > 0 {
		failed = append(failed, fmt.Errorf("%s not begun, because the lock was lost; run the command again to go on",
			text.Count(n, "queue")+text.Choose(n, " was", " were")))
	}
	return errors.Join(append(failed, refused, r.adviseOnFeeders(ctx))...)
}

// count returns how many queues have an outcome.
func count(list []Result, o Outcome) (n int) {
	for _, s := range list {
		if s.Outcome == o {
			n++
		}
	}
	return n
}

// pass moves the queues that are not begun, and those whose lock was lost. No change of the broker
// is under way when it returns. A successor is replaced under its name once its own migration has
// ended: both would bind it at the same time, and messages would come to it and to its hold.
func (r *Runner) pass(ctx context.Context, units []unit, results []Result, failed []error, step func()) {
	var group errgroup.Group // without a context: a queue that fails stops no other
	group.SetLimit(r.Parallel)
	migrations := map[string]chan struct{}{} // by successor; each is closed when that migration has ended
	for i, u := range units {
		if results[i].Outcome != NotBegun && !results[i].lockLost {
			continue
		}
		before, done := migrations[u.Legacy], make(chan struct{})
		migrations[u.New] = done
		group.Go(func() error {
			defer close(done)
			if before != nil {
				<-before // it has begun: units has the migration of a queue before its replacement
			}
			if ended := ctx.Err() != nil || r.Management.LockLost(); ended {
				return nil
			}
			failed[i] = r.patiently(ctx, u.Move, func() error { return r.runOne(ctx, u) })
			results[i].conclude(failed[i], ctx.Err() != nil)
			results[i].lockLost = failed[i] != nil && r.Management.LockLost() && results[i].Outcome != Stopped
			if results[i].Outcome != Stopped && !results[i].lockLost {
				step()
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return nil
}

// units returns the queues of a run, in the order of the file. Its error, ErrRefused, names those
// that are refused.
func (r *Runner) units(ctx context.Context) ([]unit, error) {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	state = r.Management.AskConsumers(ctx, state, management.UnknownConsumers(state)) // an unknown number blocks
	r.leftOut = state.Down
	units := r.down(state)
	for _, m := range unfinishedMoves(r.Topology, state) {
		f := m.find(state)
		forwards := f.legacy && f.forwarder != nil
		switch {
		case len(r.Legacy) > 0 && !slices.Contains(r.Legacy, m.Legacy):
		case slices.Contains(state.Down, m.Legacy), slices.Contains(state.Down, m.New):
		case forwards && !r.retires():
			r.say("%s forwards to %s", m.Legacy, m.New)
		default:
			units = append(units, unit{m, forwards, "", Result{Queue: m.Legacy, New: m.New, Outcome: NotBegun}})
		}
	}
	for _, m := range r.replacements(state) {
		if slices.Contains(state.Down, m.Legacy) {
			continue
		}
		units = append(units, unit{m, false, "", Result{Queue: m.Legacy, Outcome: NotBegun}})
	}
	places := map[string]int{}
	for i, q := range r.Topology.Queues {
		places[q.Name] = i
	}
	slices.SortStableFunc(units, func(a, b unit) int {
		return cmp.Compare(places[cmp.Or(a.queue.New, a.Legacy)], places[cmp.Or(b.queue.New, b.Legacy)])
	})
	var all []string
	var rights []plan.Right
	for i, u := range units {
		why, err := r.refusals(ctx, u, state)
		if err != nil {
			return nil, err
		}
		if len(why) > 0 {
			units[i].queue.Outcome, units[i].queue.Error = Refused, strings.Join(why, "; ")
			all = append(all, why...)
		} else {
			rights = append(rights, r.unitRights(u, state)...)
		}
	}
	if r.CheckRights != nil && len(rights) > 0 {
		if err := r.CheckRights(sorted(rights)); err != nil {
			return nil, err
		}
	}
	if len(all) > 0 {
		err = refusedFor(all)
	}
	return units, err
}

// down returns the queues of a run whose node is down: what they need is not known.
func (r *Runner) down(state topology.State) []unit {
	var out []unit
	for _, m := range allMoves(r.Topology) {
		named := len(r.Legacy) == 0 || slices.Contains(r.Legacy, m.Legacy)
		for _, name := range []string{m.Legacy, m.New} {
			if named && slices.Contains(state.Down, name) {
				out = append(out, unit{m, false, name, Result{Queue: m.Legacy, New: m.New, Outcome: NotBegun}})
				break
			}
		}
	}
	for _, q := range r.Topology.Queues {
		due := r.mayReplace(q.Name) || slices.Contains(r.Legacy, q.Name)
		if due && q.Label.Role == topology.RoleWork && slices.Contains(state.Down, q.Name) {
			m := replacementOf(r.Topology.Name, q.Name)
			out = append(out, unit{m, false, q.Name, Result{Queue: q.Name, Outcome: NotBegun}})
		}
	}
	return out
}

// refusedFor returns the error of queues that are refused.
func refusedFor(why []string) error {
	return fmt.Errorf("%w:\n  %s", ErrRefused, strings.Join(why, "\n  "))
}

// unitRights returns the rights that a queue needs.
func (r *Runner) unitRights(u unit, state topology.State) []plan.Right {
	if u.replaces() {
		return r.replacementRights(state, []Move{u.Move})
	}
	return append(rightsOf(r.Topology, state, []Move{u.Move}), proofRights(state, []Move{u.Move})...)
}

// refusals returns why a queue cannot be moved in a state. None: it can.
func (r *Runner) refusals(ctx context.Context, u unit, state topology.State) ([]string, error) {
	switch {
	case u.down != "":
		return []string{u.Legacy + ": " + nodeDown(u.down)}, nil
	case u.forwards:
		return u.elsewhere(state), nil
	case !u.replaces():
		return u.reasons(r.Topology, state), nil
	case r.Unlocked:
		return []string{u.Legacy + ": " + needsLock}, nil
	case !r.differs(u.Move, state) && u.find(state).successor:
		return nil, nil // it only goes on
	default:
		return r.unreplaceable(ctx, u.Move, state)
	}
}

// runOne moves one queue. Since the check of all, minutes may have passed.
func (r *Runner) runOne(ctx context.Context, u unit) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	state = r.Management.AskConsumers(ctx, state, management.UnknownConsumers(state))
	why, err := r.refusals(ctx, u, state)
	switch {
	case err != nil:
	case len(why) > 0:
		err = refusedFor(why)
	case u.replaces():
		err = r.replace(ctx, u.Move)
	case u.forwards:
		err = r.move(ctx, state, nil, []Move{u.Move})
	default:
		err = r.move(ctx, state, []Move{u.Move}, nil)
	}
	if err != nil && !errors.Is(err, ErrWaiting) && !errors.Is(err, ErrRefused) {
		err = fmt.Errorf("%s: %w", u.Legacy, err)
	}
	return err
}

// conclude notes how a queue ended. interrupted says that the run was asked to stop.
func (s *Result) conclude(err error, interrupted bool) {
	switch {
	case err == nil:
		s.Outcome, s.Error = Done, ""
		return
	case errors.Is(err, ErrVanished), errors.Is(err, ErrDisturbed):
		s.Outcome = Failed
	case interrupted:
		s.Outcome = Stopped
		return
	case errors.Is(err, ErrWaiting):
		s.Outcome = Waiting
	case errors.Is(err, ErrRefused):
		s.Outcome = Refused
	default:
		s.Outcome = Failed
	}
	s.Error = err.Error()
}

// tally is what a run has done with a queue that it replaces under its name.
type tally struct {
	moved, doubled int64 // from the hold to the queue, and how many of these may be doubled
	// parked is when messages began to go to the hold, gone when the queue was deleted, and flows when
	// the queue had a message again, or the switch led there again. Zero: not in this run.
	parked, gone, flows time.Time
	// failed is when the broker last failed to declare the hold. Zero: it did not.
	failed time.Time
	// declared says that this run has declared the queue, and that the broker has said so; deleted
	// that it was deleted before, by this run or maybe by an earlier one.
	declared, deleted bool
	// held says that the hold was created, or found, since replace began.
	held bool
}

// firstOf returns the first of two times. A zero time is none.
func firstOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// note changes the tally of a queue.
func (r *Runner) note(m Move, change func(*tally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[m.Legacy]
	if t == nil {
		t = &tally{}
		r.tallies[m.Legacy] = t
	}
	change(t)
}

// tallyOf returns the tally of a queue. It is zero before the run begins.
func (r *Runner) tallyOf(m Move) tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tallies[m.Legacy]; t != nil {
		return *t
	}
	return tally{}
}

// measure notes in the result of a queue how many messages were moved, and how long they waited.
func (r *Runner) measure(u unit, s *Result) {
	if !u.replaces() {
		if h := r.moverOf(u.Legacy, u.New); h != nil {
			s.Moved = h.moved.Load()
			s.Doubled = min(h.doubled, s.Moved)
		}
		return
	}
	t := r.tallyOf(u.Move)
	s.Moved, s.Doubled = t.moved, min(t.doubled, t.moved)
	since := func(began time.Time) *jsondoc.Seconds {
		if began.IsZero() || t.flows.Before(began) {
			return nil
		}
		return new(jsondoc.Seconds(t.flows.Sub(began)))
	}
	s.Held, s.Pause = since(t.parked), since(t.gone)
}

// Results returns what became of the queues of a run with Parallel, in the order of the file.
func (r *Runner) Results() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.results)
}

// WriteResults writes a table of what became of the queues of a run, and a line about all of them.
func WriteResults(w io.Writer, list []Result, took time.Duration, width int) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, None)
		return err
	}
	seconds := func(s *jsondoc.Seconds) string {
		if s == nil {
			return "-"
		}
		return text.Took(time.Duration(*s))
	}
	table := text.Table{Whole: []int{0}, Numbers: 4}
	table.Add(nil, "QUEUE", "SUCCESSOR", "RESULT", "MOVED", "DOUBLED", "HELD", "PAUSE")
	moved := int64(0)
	var pauses []time.Duration
	for _, s := range list {
		successor := "same name"
		if s.New != "" {
			successor = text.Name(s.New)
		}
		table.Add(nil, text.Name(s.Queue), successor, string(s.Outcome), text.Grouped(s.Moved), text.Grouped(s.Doubled),
			seconds(s.Held), seconds(s.Pause))
		moved += s.Moved
		if s.Pause != nil {
			pauses = append(pauses, time.Duration(*s.Pause))
		}
	}
	if err := table.Write(w, width); err != nil {
		return err
	}
	var parts []string
	for _, o := range []Outcome{Done, Waiting, Refused, Failed, Stopped, NotBegun} {
		if n := count(list, o); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", text.Grouped(int64(n)), o))
		}
	}
	line := fmt.Sprintf("%s in %s: %s; this run moved %s", text.Count(len(list), "queue"), text.Took(took),
		strings.Join(parts, ", "), messages(moved))
	if len(pauses) > 0 {
		slices.Sort(pauses)
		line += fmt.Sprintf("; a deleted queue got messages again after %s (median), %s at most",
			text.Took(pauses[len(pauses)/2]), text.Took(pauses[len(pauses)-1]))
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// Unbegun corrects, of a run that was interrupted, the results of queues that were only looked at,
// or that have come to their end.
func (r *Runner) Unbegun(ctx context.Context) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	stages := map[string]Stage{}
	for _, s := range Statuses(r.Topology, state) {
		stages[s.Legacy] = s.Stage
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.results {
		m := Move{Topology: r.Topology.Name, Legacy: s.Queue, New: s.New}
		stage, left := stages[s.Queue]
		begun := stage != Prepare
		if s.New == "" {
			m = replacementOf(r.Topology.Name, s.Queue)
			left, begun = r.differs(m, state), false
		}
		switch begun = begun || m.find(state).successor; {
		case s.Outcome != Stopped:
		case !left && (s.New != "" || !begun):
			r.results[i].Outcome = Done
		case !begun:
			r.results[i].Outcome = NotBegun
		}
	}
	return nil
}
