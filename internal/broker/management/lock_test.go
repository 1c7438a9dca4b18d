package management_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A process that has lost the lock writes nothing more, not over HTTP either: another process may
// hold the lock by now.
func TestNothingIsWrittenWithoutTheLock(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	m := manage(t, target)
	policy := topology.Policy{
		Name: "dlxctl.shop.queue.mail", Pattern: "^mail$", ApplyTo: "queues", Priority: 1,
		Definition: topology.Arguments{"max-length": int64(10)},
	}
	exchange, queue := topology.Exchange{Name: "events", Type: "topic", Durable: true},
		topology.Queue{Name: "mail", Durable: true}
	apply(t, m, policy, exchange, queue)

	through, proxy := brokertest.NewProxy(t, target)
	conn := dial(t, through)
	lock := topology.LockName("shop")
	if err := conn.Lock(lock); err != nil {
		t.Fatal(err)
	}
	m.UseAMQP(conn)
	longer := policy
	longer.Definition = topology.Arguments{"max-length": int64(20)}
	apply(t, m, longer) // with the lock

	proxy.Shut()
	brokertest.Eventually(t, "the end of the connection to be noticed", conn.Closed)
	brokertest.Eventually(t, "another to take the lock", func() bool {
		other, err := amqp.Dial(t.Context(), endpoint(t, target))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Close() })
		return other.Lock(lock) == nil
	})
	before := target.Definitions(t)
	for name, c := range map[string]plan.Change{
		"create a policy":    {Action: plan.Create, After: policy},
		"delete a policy":    {Action: plan.Delete, Before: longer},
		"create an exchange": {Action: plan.Create, After: topology.Exchange{Name: "more", Type: "topic", Durable: true}},
		"replace an exchange": {
			Action: plan.Replace, Before: exchange,
			After: topology.Exchange{Name: "events", Type: "fanout", Durable: true},
		},
		"create a queue": {Action: plan.Create, After: topology.Queue{Name: "more", Durable: true}},
		"delete a queue": {Action: plan.Delete, Before: queue},
	} {
		checkError(t, m.Apply(t.Context(), c), broker.ErrUnreachable,
			"the AMQP connection to amqp://"+amqpHost(t, through)+" ended: the lock was lost with it")
		if d := cmp.Diff(before, target.Definitions(t)); d != "" {
			t.Fatalf("%s without the lock (-before +after):\n%s", name, d)
		}
	}
}
