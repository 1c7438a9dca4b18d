package migrate_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The file before and after a queue that dlxctl made is replaced, as plan advises.
const managedFile = `
version: 1
name: shop
backoff: {standard: {tiers: [%s]}}
defaults: {backoff: standard}
exchanges: [{name: events}]
queues:
  - %s
`

const (
	managedBefore = `{name: old, type: classic, bindings: [{exchange: events, key: "order.#"}]}`
	managedAfter  = `{name: new, replaces: old, bindings: [{exchange: events, key: "order.#"}]}`
)

// apply makes the broker as a topology says, without consent to anything.
func (s *stage) apply(t *testing.T, want topology.Compiled) {
	t.Helper()
	p := plan.Make(want, s.inspect(t), plan.Options{})
	if err := plan.Check(p, nil); err != nil {
		t.Fatalf("%v: %v", err, p.Changes)
	}
	if err := apply.Execute(t.Context(), s.m, p, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
}

// managed returns a virtual host in which the file before was applied, and the stage of the file
// after.
func managed(t *testing.T, tier string) *stage {
	t.Helper()
	target := brokertest.VHost(t)
	before := newStageIn(t, target, fmt.Sprintf(managedFile, tier, managedBefore), "", nil)
	before.apply(t, before.want)
	return newStageIn(t, target, fmt.Sprintf(managedFile, tier, managedAfter), "", nil)
}

// deletions returns what plan wants to delete.
func (s *stage) deletions(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, c := range plan.Make(s.want, s.inspect(t), plan.Options{}).Changes {
		if c.Action == plan.Delete {
			out = append(out, string(c.Kind)+" "+c.Name)
		}
	}
	return out
}

// A queue that dlxctl made is replaced: an apply at any moment takes nothing from it while it
// exists, its rejected messages come back to its successor after the migration, and then its
// address goes.
func TestReplaceAGeneratedQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := managed(t, "15s")
	ch := s.target.Channel(t)
	publish := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := ch.Publish("events", "order.new", true, false,
				amqp091.Publishing{MessageId: fmt.Sprint(i), DeliveryMode: amqp091.Persistent}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.apply(t, s.want) // before migrate, as CI does after the merge
	if !s.exists(t, "old") {
		t.Fatal("apply has deleted the legacy queue")
	}
	publish(0, 10)
	s.rejectAll(t, "old", 10)
	brokertest.Eventually(t, "the failed queue to have them",
		func() bool { return s.inspect(t).Usage["shop.standard.failed"].Ready == 10 })
	r := s.runner(t)
	r.Until = migrate.Cutover
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.apply(t, s.want) // in the middle
	if d := s.deletions(t); len(d) > 0 {
		t.Errorf("after the cutover, plan wants to delete %v", d)
	}
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.apply(t, s.want) // afterwards, while messages wait
	// What the processor does with a failure of a queue that the file does not name: by its address.
	for range 10 {
		d, ok, err := ch.Get("shop.standard.failed", false)
		if err != nil || !ok || d.RoutingKey != "@old" {
			t.Fatalf("a failed message is %q, there is one: %t, %v", d.RoutingKey, ok, err)
		}
		m := amqp091.Publishing{
			MessageId: d.MessageId, DeliveryMode: amqp091.Persistent,
			Headers: amqp091.Table{"count": int64(1)},
		}
		if err := ch.Publish("shop.standard.dlx", "@old", true, false, m); err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(false); err != nil { // its copy waits in the tier; this channel publishes in order
			t.Fatal(err)
		}
	}
	brokertest.Eventually(t, "the tier to be counted",
		func() bool { return s.inspect(t).Usage["shop.standard.retry.15s"].Ready > 0 })
	s.apply(t, s.want)
	if got := s.collect(t, "new", 10); len(got) != 10 {
		t.Errorf("%d of 10 messages came back", len(got))
	}
	brokertest.Eventually(t, "the tiers to be empty", func() bool { return len(s.deletions(t)) > 0 })
	if d := cmp.Diff([]string{
		"binding shop.dead -> old.dead (@old)", "binding shop.return -> new (@old)",
		"queue old.dead",
	}, s.deletions(t)); d != "" {
		t.Errorf("then it wants to delete (-want +got):\n%s", d)
	}
	s.apply(t, s.want)
	if d := s.deletions(t); len(d) > 0 {
		t.Errorf("at last, plan wants to delete %v", d)
	}
}

// Rolled back, the queue has all that it had: its own retry queues above all, and the owner marks
// of its bindings.
func TestAbortWithAGeneratedQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := managed(t, "1s")
	before := s.target.Definitions(t)
	for _, until := range []migrate.Stage{migrate.Prepare, migrate.Drain} {
		r := s.runner(t)
		r.Until = until
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.abort(t, s.runner(t))
		if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
			t.Errorf("definitions after %s and abort (-before +after):\n%s", until, d)
		}
	}
}
