// Package verify sends canaries through the live retry plane of a topology: messages of its own
// that wait in each tier, as failed messages do, and come back to a queue of its own. It checks
// that they come back, when, with which headers, and that processors move them. Where RabbitMQ does
// the retries, canaries fail in a queue of verify with the settings of a work queue.
//
// No canary reaches a work queue or a dead-letter queue. The exchanges of the plane route a message
// by the address of its work queue, @NAME. A canary has the address of the queue of verify, which
// is bound to these exchanges for the time of the run. Before a canary is sent, its path is
// computed from the objects of the broker (package route), and a canary that would not come back,
// or of which another queue would get a copy, is not sent.
package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// ErrInterrupted is wrapped by the error of Run when ctx ended while canaries were under way.
var ErrInterrupted = errors.New("interrupted")

// expiryMargin is how much longer the queue for canaries exists than verify waits for them.
const expiryMargin = 5 * time.Minute

// processorStart is how long after the start of verify a processor may need to subscribe: a
// processor that was started just before, or again after a change of its file.
const processorStart = 10 * time.Second

// Verifier verifies the retry plane of one topology.
type Verifier struct {
	Topology topology.Compiled
	Endpoint broker.Endpoint
	// Management reads the virtual host. It must be open.
	Management *management.Client
	// MaxWait is the longest delay of a tier that Run waits for.
	MaxWait time.Duration
	// Late is how long after its time a canary may come back and still be in time.
	Late time.Duration
	// Patience is how long after its time a canary is waited for, and how long a processor has to
	// take it.
	Patience time.Duration
	// TiersOnly leaves processors out.
	TiersOnly bool
	// Log gets a line when the canaries are sent. It must be set.
	Log *slog.Logger
}

// Run sends the canaries, waits until all are back or given up, and reports. What is wrong with the
// plane is in the report. The error says that the plane could not be verified: the broker is out of
// reach, the user lacks a right, ctx has ended, or there is no backoff.
//
// Its queue expires, wherever Run ends, and a canary in a tier leaves it with its delay. A canary
// that no processor has taken waits in the failed queue, as failed messages do. The processor that
// takes it later retries it, or puts it into the unroutable queue if the queue of verify has gone.
func (v *Verifier) Run(ctx context.Context) (Report, error) {
	report := Report{Topology: v.Topology.Name, VHost: v.Endpoint.VHost, OK: true}
	if !Verifiable(v.Topology) {
		return report, fmt.Errorf("the topology %q has no queue with a backoff: there is nothing to verify", v.Topology.Name)
	}
	run := strings.ToLower(rand.Text()[:10])
	home, bindings := homeObjects(v.Topology, run, v.expires())
	natives := v.natives(run)
	conn, err := amqp.Dial(ctx, v.endpoint("sends"))
	if err != nil {
		return report, err
	}
	defer conn.Close()
	if err := v.permit(ctx, conn, home.Name, natives); err != nil {
		return report, err
	}
	state, err := v.Management.Inspect(ctx)
	if err != nil {
		return report, err
	}
	s := newSurveyor(v.Topology, state, home, bindings, &report)
	canaries, err := v.prepare(ctx, conn, s, run)
	if err == nil {
		err = ctx.Err() // before anything is written, and before the report says what was not waited for
	}
	if err != nil {
		return report, err
	}
	group, flying := errgroup.WithContext(ctx)
	if len(canaries) > 0 {
		f := flight{verifier: v, report: &report, out: conn, home: home.Name, canaries: canaries}
		group.Go(func() error { return f.fly(flying, home, bindings) })
	}
	group.Go(func() error { return v.flyNatives(flying, state, natives) })
	if err := group.Wait(); err != nil && ctx.Err() != nil {
		return report, fmt.Errorf("%w; the queues %s* go away by themselves within %s, and the canaries in tiers with them; one that no processor has taken stays in the failed queue", ErrInterrupted,
			text.Name(home.Name), text.Took(max(v.expires(), 2*expiryMargin)))
	} else if err != nil {
		return report, err
	}
	for _, f := range natives {
		report.join(f.report)
	}
	v.blameChanges(ctx, state, &report)
	return report, nil
}

// Verifiable reports whether a topology has retries to verify.
func Verifiable(t topology.Compiled) bool { return len(t.Backoffs)+len(t.Native) > 0 }

// endpoint returns the broker, with a connection name by which operators recognize the connection.
func (v *Verifier) endpoint(purpose string) broker.Endpoint {
	e := v.Endpoint
	e.ConnectionName = "dlxctl verify " + v.Topology.Name + " " + purpose
	return e
}

// expires returns after how long without a consumer the queue for canaries goes away: later than
// the last canary comes to it.
func (v *Verifier) expires() time.Duration {
	longest := time.Duration(0)
	for _, b := range v.Topology.Backoffs {
		for _, tier := range b.Tiers {
			if tier.Delay <= v.MaxWait {
				longest = max(longest, tier.Delay)
			}
		}
	}
	return min(longest+2*v.Patience+expiryMargin, topology.MaxDelay)
}

// prepare adds a row for each tier to the report, and returns the canaries to send. A backoff
// without tiers has no canaries: its objects and its processors are looked at.
func (v *Verifier) prepare(ctx context.Context, conn *amqp.Conn, s *surveyor, run string) ([]*canary, error) {
	var out []*canary
	ctx, cancel := context.WithTimeout(ctx, processorStart)
	defer cancel()
	if s.state.Alarm != "" {
		s.report.add(Problem{
			Name: topology.WarnAlarm, Text: "the broker accepts no messages, so no canary was sent: " + s.state.Alarm,
		})
	}
	for _, b := range v.Topology.Backoffs {
		first := len(s.report.Tiers)
		rows := v.rows(s.report, b)
		complete := s.missing(b) && s.state.Alarm == ""
		for _, tier := range s.report.Tiers[first:] {
			s.settings(b, topology.Tier{Delay: tier.Delay, Queue: tier.Queue})
		}
		if !complete {
			for _, row := range rows {
				s.report.Tiers[row].Result = NotSent
			}
			continue
		}
		processors, err := v.processors(ctx, conn, b, s.report)
		if err != nil {
			return nil, err
		}
		m := maker{
			topology: v.Topology, backoff: b, home: s.home.Name, work: worked(v.Topology, b), run: run,
		}
		alone, processed := m.make(time.Now())
		out = append(out, v.choose(s, alone, processed, rows, processors)...)
	}
	s.notApplied()
	return out, nil
}

// choose returns which canaries of a backoff to send, and notes in the rows of their tiers why
// others are not sent. The path into the failed queue is computed for all, also where no canary is
// waited for.
func (v *Verifier) choose(s *surveyor, alone, processed []*canary, rows map[string]int, processors bool) []*canary {
	var out []*canary
	for i, c := range alone {
		row := rows[c.tier.Queue]
		c.row, processed[i].row = row, row
		tier := &s.report.Tiers[row]
		returns := s.comesBack(c)
		isTaken := !v.TiersOnly && s.comesBack(processed[i])
		switch {
		case !returns:
			note(&tier.Result, NotSent)
			continue
		case c.tier.Delay > v.MaxWait:
			note(&tier.Result, NotWaitedFor)
			continue
		}
		out = append(out, c)
		switch {
		case v.TiersOnly:
		case !processors:
			note(&tier.Processor, NoProcessor)
		case !isTaken:
			note(&tier.Processor, NotSent)
		default:
			out = append(out, processed[i])
		}
	}
	return out
}

// note puts a result into a row, unless the row has a worse one of another attempt.
func note(shown *Result, r Result) {
	if r.worse(*shown) {
		*shown = r
	}
}

// rows adds a row for each tier of a backoff, and returns their indexes by their queues. Attempts
// with the same delay share a tier.
func (v *Verifier) rows(r *Report, b topology.Backoff) map[string]int {
	rows := map[string]int{}
	for i, tier := range b.Tiers {
		row, exists := rows[tier.Queue]
		if !exists {
			row = len(r.Tiers)
			rows[tier.Queue] = row
			r.Tiers = append(r.Tiers, Tier{Backoff: b.Name, Queue: tier.Queue, Delay: tier.Delay})
		}
		r.Tiers[row].Attempts = append(r.Tiers[row].Attempts, i+1)
	}
	return rows
}

// processors reports whether canaries are sent to the processors of a backoff. Without a consumer
// they are not: they would only wait in the failed queue.
// A processor that begins at the same time is waited for until ctx ends.
func (v *Verifier) processors(ctx context.Context, conn *amqp.Conn, b topology.Backoff, r *Report) (bool, error) {
	if v.TiersOnly {
		return false, nil
	}
	tick := time.NewTicker(processorStart / 20)
	defer tick.Stop()
	waiting := false
	n, err := conn.ConsumersOf(b.FailedQueue)
	for ; n == 0 && err == nil && ctx.Err() == nil; n, err = conn.ConsumersOf(b.FailedQueue) {
		if !waiting {
			waiting = true
			v.Log.InfoContext(ctx, "waiting for a processor", "queue", b.FailedQueue, "at_most", processorStart.String())
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if errors.Is(err, broker.ErrRefused) {
		return true, nil // the canary will show it
	}
	if err != nil {
		return false, fmt.Errorf("count the consumers of %s: %w", b.FailedQueue, err)
	}
	if n == 0 {
		r.add(Problem{Name: topology.WarnNoProcessor, Backoff: b.Name, Queue: b.FailedQueue, Text: fmt.Sprintf(
			"no processor is consuming %s, so failed messages are not retried; run 'dlxctl process'", text.Name(b.FailedQueue))})
	}
	return n > 0, nil
}

// blameChanges adds a problem before the others if the plane has changed while canaries were under
// way: then that may be the cause.
func (v *Verifier) blameChanges(ctx context.Context, before topology.State, r *Report) {
	if len(r.Problems) == 0 {
		return
	}
	after, err := v.Management.Inspect(ctx)
	if err != nil {
		return // what was found out is worth more than its cause
	}
	if !reflect.DeepEqual(v.plane(before), v.plane(after)) {
		r.Problems = slices.Insert(r.Problems, 0, Problem{
			Name: "changed",
			Text: "exchanges, queues, bindings or policies changed while verify ran, which may explain what follows; run verify again",
		})
	}
}

// plane returns what matters for canaries: what begins with the name of the topology, all bindings
// from there, and all policies.
func (v *Verifier) plane(state topology.State) topology.Topology {
	own := func(name string) bool {
		return strings.HasPrefix(name, v.Topology.Name+".") && !strings.HasPrefix(name, topology.VerifyName(v.Topology.Name, ""))
	}
	out := topology.Topology{Policies: slices.Concat(state.Have.Policies, state.OperatorPolicies)}
	for _, e := range state.Have.Exchanges {
		if own(e.Name) {
			out.Exchanges = append(out.Exchanges, e)
		}
	}
	for _, q := range state.Have.Queues {
		if own(q.Name) && !q.Exclusive {
			out.Queues = append(out.Queues, q)
		}
	}
	for _, b := range state.Have.Bindings {
		if own(b.Source) && !strings.HasPrefix(b.Destination, topology.VerifyName(v.Topology.Name, "")) {
			out.Bindings = append(out.Bindings, b)
		}
	}
	out.Sort()
	return out
}
