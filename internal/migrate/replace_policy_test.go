package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// policyStage is a stage whose file gives the queue new its dead-lettering by a policy, and whose
// broker has it as a classic queue of a service.
func policyStage(t *testing.T, backoff, more string) *stage {
	t.Helper()
	file := strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "    replaces: old\n", more, 1)
	file = strings.Replace(file, "{tiers: [100ms]}", backoff, 1)
	s := newStageIn(t, brokertest.VHost(t), file, "", nil)
	s.declares = "new"
	s.legacy(t, "classic", nil)
	return s
}

// The policy that gives a queue its dead-lettering comes with the new queue: else its failures
// would be dropped until the next apply.
func TestReplaceWithAPolicy(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := policyStage(t, "{tiers: [100ms]}", "    deadLetterBy: policy\n")
	if err := s.replacer(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replaced(t)
}

// The policy of the new queue leaves out what another team's policy sets for classic queues alone:
// RabbitMQ passes over a policy with a key that quorum queues do not know, and the failures would
// be dropped.
func TestReplaceUnderAPolicyForClassicQueues(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := policyStage(t, "{tiers: [100ms]}", "    deadLetterBy: policy\n")
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/lazy", map[string]any{
		"pattern": ".*", "apply-to": "queues", "definition": map[string]any{"queue-mode": "lazy"},
	})
	brokertest.Eventually(t, "the policy to be in effect", func() bool {
		return s.inspect(t).QueuePolicies["new"] == "lazy"
	})
	if err := s.replacer(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.replaced(t)
	if name := s.inspect(t).QueuePolicies["new"]; name != topology.PolicyName("shop", "new") {
		t.Errorf("the policy %q is in effect on the new queue", name)
	}
}

// A classic queue of a service is replaced by a quorum queue whose retries RabbitMQ counts, in one
// go and stopped at each step, while its consumer requeues each message once: no message is lost or
// doubled, and the policy needs its own consent.
func TestReplaceOntoNativeRetries(t *testing.T) {
	t.Parallel()
	if !brokertest.VHost(t).AtLeast("4.3") {
		t.Skip("RabbitMQ delays retries since 4.3")
	}
	for name, steps := range map[string][]string{"in one go": nil, "stopped": replaceSteps()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := policyStage(t, "{engine: native, tiers: [100ms, 200ms]}", "")
			before := s.target.Definitions(t)
			nack := topology.UncountedNack
			err := s.replacer(t).Run(t.Context())
			if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "--allow uncounted-nack=new") ||
				fmt.Sprint(before) != fmt.Sprint(s.target.Definitions(t)) {
				t.Errorf("without consent it returns %v, or has written", err)
			}
			stop := s.requeueOnce(t, "new")
			published := s.publish(t, 400*time.Millisecond)
			run := func(ctx context.Context, step string, cancel func()) error {
				r := s.replacer(t)
				r.Allow = append(r.Allow, plan.Consent{Hazard: nack, Object: "new"})
				said := r.Report
				r.Report = func(format string, args ...any) {
					said(format, args...)
					if step != "" && strings.HasPrefix(fmt.Sprintf(format, args...), step) {
						cancel()
					}
				}
				return r.Run(ctx)
			}
			for _, step := range steps {
				ctx, cancel := context.WithCancel(t.Context())
				if err := run(ctx, step, cancel); err != nil && ctx.Err() == nil {
					t.Fatalf("until %q: %v", step, err)
				}
				cancel()
			}
			if err := run(t.Context(), "", nil); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			s.allArrive(t, confirmed)
			stop()
			s.replaced(t)
		})
	}
}

// requeueOnce consumes as a service does that reconnects, and requeues each message at its first
// delivery.
func (s *stage) requeueOnce(t *testing.T, queue string) (stop func()) {
	t.Helper()
	return s.consuming(t, queue, consumer{prefetch: 100, on: func(d amqp091.Delivery) error {
		if !d.Redelivered {
			return d.Reject(true)
		}
		s.mu.Lock()
		s.seen[d.MessageId]++
		s.mu.Unlock()
		return d.Ack(false)
	}})
}
