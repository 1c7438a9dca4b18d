// Package try is the test application for a topology file. In a virtual host of its own it applies
// the topology with shorter delays, publishes messages to each work queue whose consumers succeed,
// fail, crash and always fail, runs the processor, and compares what becomes of each message with
// what package trace predicts.
//
// A trial touches nothing of the user. By default it makes a scratch virtual host, and deletes it
// at the end, also after an error or an interrupt. A process that is killed leaves the virtual host
// behind. Its description tells what it is, so that [Host.Clean] finds it and deletes it.
package try

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// endTime is how long the end of a trial may take: the deletion of its virtual host.
const endTime = 2 * time.Minute

// Try is one trial of a topology.
type Try struct {
	Topology topology.Compiled
	// Endpoint is the broker. Its virtual host is not used, except with Given.
	Endpoint broker.Endpoint
	// Given says that the trial runs in the virtual host of Endpoint, which must be empty, and
	// empties it at the end. Otherwise the trial makes a virtual host.
	Given bool
	// Speed is by how much delays are divided. Zero: it is chosen.
	Speed int
	// Patience is how long to wait for a message after its time.
	Patience time.Duration
	// Log gets the lines of the processor. It must be set.
	Log *slog.Logger
	// Notice gets a line about what the trial makes and removes, and Progress how many messages
	// have ended. They must be set.
	Notice   func(line string)
	Progress func(done, messages int)
}

// Run tries the topology. An error says that the trial could not be made. Differences between what
// is predicted and what came are in the report, and are not an error. Whatever ends the run, also
// ctx, the virtual host of the trial is removed before Run returns. If that fails, the error is an
// [apply.UnfinishedError] that names the virtual host, and the report is that of the trial, if it
// was made.
func (t *Try) Run(ctx context.Context) (Report, error) {
	began := time.Now()
	tr := prepare(t.Topology, t.Speed)
	if len(tr.workQueues()) == 0 {
		return Report{}, errors.New("the topology names no queue to try; add one under `queues`")
	}
	h := Host{Endpoint: t.Endpoint, Notice: t.Notice, cluster: t.Topology.Cluster}
	begin := h.create
	if t.Given {
		begin = h.take
	}
	end, err := begin(ctx, tr.topology)
	if err != nil {
		return Report{}, err
	}
	session, err := apply.Open(h.Endpoint, tr.topology)
	var report Report
	if err == nil {
		report, err = t.in(ctx, session, tr, &h)
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	// What the trial has made must go, also if ctx has ended.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if failed := end(after, session); failed != nil {
		err = &apply.UnfinishedError{Err: errors.Join(err, failed)}
	}
	report.Took = time.Since(began)
	return report, err
}

// in tries a topology in the virtual host of a session.
func (t *Try) in(ctx context.Context, session *apply.Session, tr trial, h *Host) (Report, error) {
	if err := h.lock(ctx, session); err != nil {
		return Report{}, err
	}
	if err := applied(ctx, session); err != nil {
		return Report{}, err
	}
	state, err := session.Management.Inspect(ctx)
	if err != nil {
		return Report{}, err
	}
	r := t.newRun(tr, session.Endpoint, state.Version)
	if err := r.flow(ctx); err != nil || ctx.Err() != nil {
		return Report{}, errors.Join(err, ctx.Err())
	}
	report := r.report()
	report.Broker.Version = state.Version
	left, err := r.left(ctx)
	if err != nil {
		return Report{}, err
	}
	report.Differences = append(report.Differences, left...)
	report.count()
	return report, nil
}

// applied applies the topology of a session.
func applied(ctx context.Context, s *apply.Session) error {
	q := &quiet{}
	r := apply.Runner{Session: s, Reporter: q}
	// The virtual host was empty and is locked: the only messages in it are those of the trial. Its
	// consumers requeue by basic.reject.
	r.Options.Allow = plan.Allow(topology.Hazards()...)
	err := r.Run(ctx)
	if errors.Is(err, plan.ErrBlocked) || errors.Is(err, plan.ErrHazard) {
		var text strings.Builder
		if failed := planview.WriteText(&text, q.plan, planview.TextOptions{}); failed != nil {
			return failed
		}
		return fmt.Errorf("the topology cannot be applied to an empty virtual host:\n%s%w", text.String(), err)
	}
	return err
}

// quiet reports nothing of a run of apply, and consents to it.
type quiet struct{ plan plan.Plan }

func (q *quiet) Planned(p plan.Plan) error      { q.plan = p; return nil }
func (q *quiet) Confirm(context.Context) error  { return nil }
func (q *quiet) Result(string)                  {}
func (q *quiet) Notice(string)                  {}
func (q *quiet) Unprocessed([]plan.Unprocessed) {}
func (q *quiet) Progress(context.Context, int) (step, finish func()) {
	return func() {}, func() {}
}
