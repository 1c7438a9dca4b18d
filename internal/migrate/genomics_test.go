package migrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/plan"
)

// The legacy definitions of a real pipeline, with messages in every queue and
// traffic on every key: all its work queues are moved in one run, nothing is lost
// or doubled, then the plan is empty, and a message that always fails climbs its
// tiers in every queue.
func TestMigrateTheGenomicsPipeline(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	legacy, err := os.ReadFile("../../testdata/genomics/legacy.json")
	if err != nil {
		t.Fatal(err)
	}
	target.Call(t, "POST", "definitions/"+url.PathEscape(target.VHost), json.RawMessage(legacy))
	data, err := os.ReadFile("../../testdata/genomics/topology.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The tiers are short here, and each queue gets a new name.
	data = regexp.MustCompile(`\{TIER_\d:-\w+\}`).ReplaceAll(data, []byte(`{TIER:-50ms}`))
	data = regexp.MustCompile(`(?m)^  - \{name: ([a-z_.-]+)([,}].*)$`).ReplaceAllFunc(data, func(line []byte) []byte {
		m := regexp.MustCompile(`^  - \{name: ([a-z_.-]+)(.*)$`).FindSubmatch(line)
		if bytes.HasPrefix(m[1], []byte("sda")) {
			return line // an exchange
		}
		return fmt.Appendf(nil, "  - {name: %s.v2, replaces: %s%s", m[1], m[1], m[2])
	})
	s := newStageIn(t, target, string(data), "", nil)
	ch := target.Channel(t)
	var keys []string
	for _, b := range s.want.Bindings {
		if b.Source == "sda" {
			keys = append(keys, b.Key)
		}
	}
	if len(keys) != 14 || len(s.want.WorkQueues) != 16 {
		t.Fatalf("%d keys, %d work queues", len(keys), len(s.want.WorkQueues))
	}
	confirmed := map[string]bool{}
	var waits sync.WaitGroup
	for _, w := range s.want.WorkQueues { // what waits
		for i := range 50 {
			id := fmt.Sprintf("%s-%d", w.Replaces, i)
			if err := ch.PublishWithContext(t.Context(), "", w.Replaces, true, false,
				amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent}); err != nil {
				t.Fatal(err)
			}
			confirmed[id] = true
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	traffic := map[string]bool{}
	waits.Go(func() {
		s.through(ctx, func(ch *amqp091.Channel) error {
			if err := ch.Confirm(false); err != nil {
				return err
			}
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("traffic-%d", n)
				c, err := ch.PublishWithDeferredConfirm("sda", keys[n%len(keys)], true, false,
					amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent})
				if err != nil {
					return err
				}
				if c.Wait() {
					traffic[id] = true
				}
			}
			return nil
		})
	})
	r := s.runner(t)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	waits.Wait()
	for id := range traffic {
		confirmed[id] = true
	}
	for _, w := range s.want.WorkQueues {
		for id, n := range s.count(t, w.Name) {
			s.seen[id] += n
		}
		if s.exists(t, w.Replaces) {
			t.Errorf("%s is still there", w.Replaces)
		}
	}
	s.allArrive(t, confirmed)
	t.Logf("%d messages, %d of them while it ran", len(confirmed), len(traffic))

	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := plan.Make(s.want, state, plan.Options{}); len(p.Changes)+len(p.Drift) > 0 {
		var text bytes.Buffer
		_ = planview.WriteText(&text, p, planview.TextOptions{Verbose: true}) // to a buffer
		t.Errorf("the plan is not empty:\n%s", &text)
	}
	s.poison(t, keys)
}

// poison sends a message that always fails to each key, and finds it among the
// dead letters.
func (s *stage) poison(t *testing.T, keys []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	s.process(t)
	ch := s.target.Channel(t)
	for _, w := range s.want.WorkQueues {
		deliveries, err := ch.ConsumeWithContext(ctx, w.Name, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for d := range deliveries {
				_ = d.Reject(false) // it is dead-lettered
			}
		})
	}
	for _, key := range keys {
		if err := s.target.Channel(t).PublishWithContext(ctx, "sda", key, true, false,
			amqp091.Publishing{MessageId: key, DeliveryMode: amqp091.Persistent}); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range s.want.Bindings {
		if b.Source != "sda" {
			continue
		}
		dead := b.Destination + ".dead"
		for end := time.Now().Add(2 * time.Minute); ; {
			d, ok, err := ch.Get(dead, true)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				if d.MessageId != b.Key || d.Headers["retry-attempts"] != int64(4) {
					t.Errorf("%s holds %q with the headers %v", dead, d.MessageId, d.Headers)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s holds nothing", dead)
			}
			wait(t, 20*time.Millisecond)
		}
	}
}

// process runs the processor until stop, or the end of the test.
func (s *stage) process(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := processor.Processor{
		Topology: s.want, Endpoint: s.endpoint, Prefetch: 10, Grace: time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}
