package processor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/topology"
)

// nextFile is between the files of two topologies.
const nextFile = "\n---\n"

// supervise runs the processor of a file that may change until the test ends. Several files have
// one each.
func (s *stage) supervise(t *testing.T, p *processor.Processor) (replace func(file string)) {
	t.Helper()
	var content atomic.Pointer[string]
	content.Store(&s.file)
	supervisor := processor.Supervisor{Log: p.Log, Read: func() (processor.Snapshot, error) {
		file := *content.Load()
		return processor.Snapshot{Content: file, Processors: func() (all []processor.Processor, err error) {
			for topology := range strings.SplitSeq(file, nextFile) {
				next := *p
				if next.Topology, err = compile(topology); err != nil {
					return nil, err
				}
				all = append(all, next)
			}
			return all, nil
		}}, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(file string) { content.Store(&file) }
}

// keeps waits until a changed file is refused for a reason.
func (j *journal) keeps(t *testing.T, why string) {
	t.Helper()
	brokertest.Eventually(t, "the previous file to stay in effect", func() bool {
		if lines := j.with("files changed and are in effect"); len(lines) > 0 {
			t.Fatal(lines)
		}
		return len(j.with("keeping the previous ones")) > 0
	})
	if lines := j.with("keeping the previous ones"); !strings.Contains(lines[0], why) {
		t.Errorf("the log says %q", lines)
	}
}

// A watched file with another count header is in effect only where no processor runs: the broker
// still chooses tiers by the previous one. Messages that wait, and new ones, end as dead letters.
func TestAWatchedCountHeaderChanges(t *testing.T) {
	t.Parallel()
	s := newStage(t, tiersOf(topology.Quorum, "[1s, 50ms]"))
	p := s.processor(t)
	p.Monitor = monitor.New("test")
	log := listen(t, p)
	replace := s.supervise(t, p)
	rejectAll(t, s, "work")
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "waits"})
	brokertest.Eventually(t, "a retry", func() bool { return p.Monitor.Totals().Retried > 0 })
	replace(strings.Replace(s.file, "name: shop", "name: shop\ncountHeader: tries", 1))
	log.keeps(t, "countHeader changes from count to tries")
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "new"})
	for _, m := range s.buried(t, 2) {
		if m.Headers["count"] != int32(-1) || m.Headers["retry-attempts"] != int64(3) {
			t.Errorf("%s is dead with %v", m.MessageId, m.Headers)
		}
	}
	s.allEmpty(t)
}

// A watched file that gives a match a dead-letter queue which is not there is not in effect before
// it is applied: dead letters go where the previous file says, and then where the new one does.
func TestAWatchedMatchHasAnotherDeadLetterQueue(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	s.declare(t, "svc.mine", topology.Quorum, nil, "events")
	p := s.processor(t)
	log := listen(t, p)
	replace := s.supervise(t, p)
	rejectAll(t, s, "svc.mine")
	next := strings.Replace(matchFile, "external: true", "external: true, dead: {queue: graveyard}", 1)
	replace(next)
	log.keeps(t, "no queue 'graveyard'")
	s.publish(t, "", "svc.mine", amqp091.Publishing{MessageId: "before"})
	if m := s.bury(t, "shop.dead"); m.MessageId != "before" {
		t.Errorf("shop.dead has %s", m.MessageId)
	}
	s.change(t, mustCompile(t, next))
	log.says(t, "files changed and are in effect")
	s.publish(t, "", "svc.mine", amqp091.Publishing{MessageId: "after"})
	if m := s.bury(t, "graveyard"); m.MessageId != "after" {
		t.Errorf("graveyard has %s", m.MessageId)
	}
	s.untilNothingIn(t, "shop.unroutable")
}

// A change of one topology is in effect, and can be undone, while that of another waits for its
// apply.
func TestATopologyWaitsForItsOwnApply(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, tiersOf(topology.Quorum, "[1h]"))
	p := s.processor(t)
	log := listen(t, p)
	shop := s.file
	const mail = "version: 1\nname: mail\nbackoff: {quick: {tiers: [1s]}}\nqueues: [{name: news, backoff: none}]\n"
	s.file = shop + nextFile + mail
	replace := s.supervise(t, p)
	rejectAll(t, s, "work")
	replace(strings.Replace(shop, "[1h]", "[1h], retryOn: [expired]", 1) + nextFile +
		strings.Replace(mail, "none", "quick", 1))
	log.says(t, `keeping the previous ones" error="topology \"mail\": `)
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "not retried"})
	s.buried(t, 1)
	replace(s.file)
	log.says(t, `files changed and are in effect" topologies_changed=1`)
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "retried"})
	brokertest.Eventually(t, "a retry", func() bool { return s.ready(t, "shop.quick.retry.1h") == 1 })
}

// Files that could not be used because of another file, such as a password or a schema, take effect
// once that is mended, though they are the same. What is wrong is logged once.
func TestAMendedFileTakesEffect(t *testing.T) {
	t.Parallel()
	var read, mended atomic.Bool
	files := func() (processor.Snapshot, error) {
		if !read.Swap(true) {
			return processor.Snapshot{Content: "old", Processors: func() ([]processor.Processor, error) { return nil, nil }}, nil
		}
		return processor.Snapshot{Content: "new", Processors: func() ([]processor.Processor, error) {
			if !mended.Load() {
				return nil, errors.New("orders.pb is missing")
			}
			return nil, nil
		}}, nil
	}
	log := &journal{}
	s := processor.Supervisor{Read: files, Log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	log.says(t, "orders.pb is missing")
	mended.Store(true)
	log.says(t, "files changed and are in effect")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if lines := log.with("orders.pb is missing"); len(lines) != 1 {
		t.Errorf("it is logged %d times", len(lines))
	}
}
