package processor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// stage is a virtual host to which a topology was applied.
type stage struct {
	target   brokertest.Target
	file     string
	topology topology.Compiled
	ch       *amqp091.Channel // publishes with confirms
	eyes     *amqp091.Channel // takes and looks
}

// newStage applies a topology to a fresh virtual host.
func newStage(tb testing.TB, file string) *stage {
	tb.Helper()
	return newStageOf(tb, spec.Source{Name: "topology.yaml", Data: []byte(file)},
		func(string) (string, bool) { return "", false })
}

// newStageOf does so with an environment.
func newStageOf(tb testing.TB, file spec.Source, lookup func(string) (string, bool)) *stage {
	tb.Helper()
	return newStageOn(tb, brokertest.VHost(tb), file, lookup)
}

// newStageOn does so in a virtual host that is there.
func newStageOn(tb testing.TB, target brokertest.Target, file spec.Source, lookup func(string) (string, bool)) *stage {
	tb.Helper()
	s := &stage{target: target, file: string(file.Data)}
	var err error
	if s.topology, _, err = spec.Load([]spec.Source{file}, lookup); err != nil {
		tb.Fatal(err)
	}
	s.apply(tb, s.topology)
	s.ch, s.eyes = s.target.Channel(tb), s.target.Channel(tb)
	if err := s.ch.Confirm(false); err != nil {
		tb.Fatal(err)
	}
	for _, l := range s.topology.Backoffs {
		s.leadInto(tb, l.FailedQueue)
	}
	return s
}

// leadInto makes an exchange by which a test puts messages into a failed queue under any
// routing key, also one that no work queue has.
func (s *stage) leadInto(tb testing.TB, failed string) {
	tb.Helper()
	ch := s.target.Channel(tb)
	brokertest.DeclareExchange(tb, ch, failed, amqp091.ExchangeFanout, nil)
	brokertest.Bind(tb, ch, failed, "", failed, nil)
}

// onNode applies a topology to a fresh virtual host of a node of the test's own.
func onNode(tb testing.TB, node *brokertest.Server, file string) *stage {
	tb.Helper()
	return newStageOn(tb, node.VHost(tb), spec.Source{Name: "topology.yaml", Data: []byte(file)},
		func(string) (string, bool) { return "", false })
}

// reconnect returns the stage new channels, after the broker was away.
func (s *stage) reconnect(tb testing.TB) {
	tb.Helper()
	s.ch, s.eyes = s.target.Channel(tb), s.target.Channel(tb)
	if err := s.ch.Confirm(false); err != nil {
		tb.Fatal(err)
	}
}

// apply makes the virtual host as want says, and checks that nothing is left.
func (s *stage) apply(tb testing.TB, want topology.Compiled) {
	tb.Helper()
	m := managementtest.Client(tb, s.target)
	for i := range 2 {
		state, err := m.Inspect(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		p := plan.Make(want, state, plan.Options{})
		if i == 1 && !p.Empty() {
			tb.Fatalf("after apply %d changes are left", len(p.Changes))
		}
		if err := apply.ExecuteWithReroutes(tb.Context(), m, want, p, 0, func(plan.Change) {}); err != nil {
			tb.Fatal(err)
		}
	}
}

func (s *stage) endpoint(tb testing.TB, target brokertest.Target) broker.Endpoint {
	tb.Helper()
	return managementtest.Endpoint(tb, target)
}

// processor returns a processor for the stage that logs to the test.
func (s *stage) processor(tb testing.TB) *processor.Processor {
	tb.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{tb}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return &processor.Processor{
		Topology: s.topology, Endpoint: s.endpoint(tb, s.target), Prefetch: prefetch,
		PrefetchBytes: 32 << 20, Grace: 10 * time.Second, Log: log,
	}
}

// testWriter writes to the log of a test.
type testWriter struct{ tb testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.tb.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// run starts a processor that ends with the test, and gives what stops it earlier.
func run(t *testing.T, p *processor.Processor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("processor: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// publish publishes and waits for the confirm.
func (s *stage) publish(tb testing.TB, exchange, key string, m amqp091.Publishing) {
	tb.Helper()
	brokertest.PublishConfirmed(tb, s.ch, exchange, key, m)
}

// take waits for a message and takes it, unacknowledged.
func (s *stage) take(tb testing.TB, queue string) amqp091.Delivery {
	tb.Helper()
	return brokertest.Take(tb, s.eyes, queue)
}

// bury waits for a dead letter and removes it. What the queue it lies in writes
// about this delivery is not looked at: 3.10 counts deliveries from zero.
func (s *stage) bury(tb testing.TB, queue string) amqp091.Delivery {
	tb.Helper()
	m := s.take(tb, queue)
	delete(m.Headers, "x-delivery-count")
	if err := m.Ack(false); err != nil {
		tb.Fatal(err)
	}
	return m
}

// reject lets a delivery fail.
func reject(t *testing.T, m amqp091.Delivery) {
	t.Helper()
	if err := m.Reject(false); err != nil {
		t.Fatal(err)
	}
}

// allEmpty waits until no queue of the topology holds anything.
func (s *stage) allEmpty(t *testing.T) {
	t.Helper()
	for _, q := range s.topology.Queues {
		brokertest.Eventually(t, q.Name+" to be empty", func() bool {
			got, ok, err := s.eyes.Get(q.Name, false)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				if err := got.Nack(false, true); err != nil {
					t.Fatal(err)
				}
			}
			return !ok
		})
	}
}

// untilEmpty runs a processor until every failed queue is empty.
func untilEmpty(tb testing.TB, p *processor.Processor) {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(tb.Context(), patience, errors.New("the processor did not come to an end"))
	defer cancel()
	p.UntilEmpty = true
	if err := p.Run(ctx); err != nil {
		tb.Fatal(err)
	}
	if ctx.Err() != nil {
		tb.Fatal(context.Cause(ctx))
	}
}

// quiet returns a logger for thousands of dead letters.
func (s *stage) quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
