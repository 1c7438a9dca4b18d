package try

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
)

const (
	// look is how often the run looks whether all messages have arrived.
	look = 20 * time.Millisecond
	// gap is how long the run waits at most for the copies of a message before it publishes the
	// next one: a queue with a length limit would refuse many at once.
	gap = time.Second
	// appID is the property app-id of the messages of trials.
	appID = "dlxctl try"
	// prefetch is that of the processor.
	prefetch = 256
	// grace is how long the processor finishes what is in flight.
	grace = 5 * time.Second
)

// run is the part of a trial in which messages flow.
type run struct {
	*Try
	trial    trial
	endpoint broker.Endpoint
	messages []*message

	mu        sync.Mutex
	byID      map[string]*message
	came      map[string]map[string][]seen // by message and queue
	published map[string]time.Time
	refused   map[string]string
	foreign   map[string]bool // queues that delivered a message which is not of the trial
	last      time.Time       // of a delivery or publish
}

func (t *Try) newRun(tr trial, endpoint broker.Endpoint, version string) *run {
	r := &run{
		Try: t, trial: tr, endpoint: endpoint, messages: tr.messages(version), byID: map[string]*message{},
		came: map[string]map[string][]seen{}, published: map[string]time.Time{}, refused: map[string]string{},
		foreign: map[string]bool{}, last: time.Now(),
	}
	for _, m := range r.messages {
		r.byID[m.id], r.came[m.id] = m, map[string][]seen{}
	}
	return r
}

// flow consumes, runs the processor, publishes, and returns once all messages have ended as
// predicted, or nothing more comes.
func (r *run) flow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	consuming, err := amqp.DialToConsume(ctx, r.endpoint)
	if err != nil {
		return err
	}
	defer consuming.Close()
	group, working := errgroup.WithContext(ctx)
	for _, q := range r.trial.topology.Queues {
		if isRead(trace.Stop{Role: q.Label.Role}) {
			group.Go(func() error {
				err := consuming.Serve(working, q.Name, func(d amqp091.Delivery) amqp.Answer { return r.deliver(q.Name, d) })
				return during(ctx, fmt.Sprintf("consume %s", text.Name(q.Name)), err)
			})
		}
	}
	if len(r.trial.topology.Backoffs) > 0 {
		p := processor.Processor{
			Topology: r.trial.topology, Endpoint: r.endpoint, Prefetch: prefetch, Grace: grace, Log: r.Log,
		}
		group.Go(func() error { return during(ctx, "processor", p.Run(working)) })
	}
	group.Go(func() error {
		defer stop()
		if err := r.publish(working); err != nil {
			return during(ctx, "publish", err)
		}
		return during(ctx, "wait", r.wait(working))
	})
	return group.Wait()
}

// during adds to an error what failed. Once ctx has ended, errors say no more than that.
func during(ctx context.Context, what string, err error) error {
	if err == nil || ctx.Err() != nil {
		return nil //nolint:nilerr // the caller looks at ctx
	}
	return fmt.Errorf("%s: %w", what, err)
}

// deliver notes a delivery, and says what the consumer does with it. A message that the trial did
// not publish gets no answer, so that it stays in its queue.
func (r *run) deliver(queue string, d amqp091.Delivery) amqp.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	m, known := r.byID[d.MessageId]
	if !known {
		r.foreign[queue] = true
		return amqp.Keep
	}
	s := seen{at: now, answered: now, exchange: d.Exchange, key: d.RoutingKey, headers: d.Headers}
	s.answer = m.answer(queue, len(r.came[m.id][queue])+1)
	r.came[m.id][queue] = append(r.came[m.id][queue], s)
	r.last = now
	return s.answer
}

// publish publishes the messages one after the other: those that need the longest first, and those
// that crash consumers last, so that other messages do not wait for them.
func (r *run) publish(ctx context.Context) error {
	conn, err := amqp.Dial(ctx, r.endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := conn.Publisher(1)
	if err != nil {
		return err
	}
	for _, name := range []string{poison, nacked, failsTwice, refused, succeeds, crashes} {
		for _, m := range r.messages {
			if m.name != name {
				continue
			}
			if err := r.publishOne(ctx, p, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// publishOne publishes a message, and waits until its copies are delivered.
func (r *run) publishOne(ctx context.Context, p *amqp.Publisher, m *message) error {
	r.mu.Lock()
	r.published[m.id], r.last = time.Now(), time.Now()
	r.mu.Unlock()
	refused, err := p.PublishOne(ctx, m.way.exchange, m.way.key, amqp091.Publishing{
		MessageId: m.id, AppId: appID, DeliveryMode: amqp091.Persistent, Headers: amqp.Table(m.way.headers),
		ContentType: "text/plain", Body: []byte("dlxctl try: " + m.name),
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.refused[m.id] = refused
	r.mu.Unlock()
	return poll(ctx, gap, func() bool { return r.isDelivered(m) })
}

// isDelivered reports whether each queue that a message is predicted to reach got it. A queue with
// a length limit must have answered too: while its message comes back from a crash it may be full.
func (r *run) isDelivered(m *message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range m.predicted.Journeys {
		deliveries := 1
		if r.trial.hasLimit(j.Queue) && len(j.Stops) > 0 {
			deliveries += j.Stops[0].Returned
		}
		if len(r.came[m.id][j.Queue]) < deliveries {
			return false
		}
	}
	return true
}

// wait waits until all messages have ended as predicted, or nothing has come for longer than the
// longest delay and Patience.
func (r *run) wait(ctx context.Context) error {
	longest := time.Duration(0)
	for _, tier := range r.trial.tiers {
		longest = max(longest, tier.Tried)
	}
	r.Progress(0, len(r.messages))
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		done, last := r.progress()
		r.Progress(done, len(r.messages))
		if done == len(r.messages) || time.Since(last) > longest+r.Patience {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// progress returns how many messages have as many deliveries as predicted, and when the last
// delivery came.
func (r *run) progress() (done int, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		expected := map[string]int{}
		for _, j := range m.predicted.Journeys {
			for _, s := range steps(j) {
				expected[s.Queue]++
			}
		}
		complete := true
		for queue, n := range expected {
			complete = complete && len(r.came[m.id][queue]) >= n
		}
		if complete {
			done++
		}
	}
	return done, r.last
}

// poll waits until done reports true, for a limited time.
func poll(ctx context.Context, limit time.Duration, done func() bool) error {
	deadline := time.Now().Add(limit)
	timer := time.NewTicker(time.Millisecond)
	defer timer.Stop()
	for !done() && time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return nil
}

// left returns which queues still hold messages that no consumer sees. Messages on their way have
// some time to leave.
func (r *run) left(ctx context.Context) ([]string, error) {
	conn, err := amqp.Dial(ctx, r.endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var out []string
	err = poll(ctx, gap, func() bool {
		out = nil
		for _, q := range r.trial.topology.Queues {
			if isRead(trace.Stop{Role: q.Label.Role}) {
				continue
			}
			n, failed := conn.MessagesReady(q.Name)
			switch {
			case failed != nil:
				out = append(out, fmt.Sprintf("%s cannot be read: %v", text.Name(q.Name), failed))
			case n > 0:
				out = append(out, fmt.Sprintf("%s %s in %s", text.Count(n, "message"), text.Choose(n, "stays", "stay"),
					text.Name(q.Name)))
			}
		}
		return len(out) == 0
	})
	return out, err
}

// report compares everything.
func (r *run) report() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Report{
		Topology: r.trial.topology.Name, VHost: r.endpoint.VHost, Speed: r.trial.speed, Tiers: r.trial.tiers,
		Notes: r.trial.notes,
	}
	for _, m := range r.messages {
		if n := len(out.Queues); n == 0 || out.Queues[n-1].Name != m.queue {
			out.Queues = append(out.Queues, Queue{
				Name: m.queue, Exchange: m.way.exchange, Key: m.way.key, Headers: m.way.headers, Why: m.way.why,
			})
		}
		c := comparison{
			message: m, published: r.published[m.id], refused: r.refused[m.id], came: r.came[m.id], patience: r.Patience,
		}
		q := &out.Queues[len(out.Queues)-1]
		q.Messages = append(q.Messages, c.compare())
	}
	for _, queue := range slices.Sorted(maps.Keys(r.foreign)) {
		out.Differences = append(out.Differences, fmt.Sprintf("%s got a message that the trial did not publish; it is left there", text.Name(queue)))
	}
	return out
}
