package broker_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Whoever has lost the lock writes nothing more, over HTTP neither: another may hold
// it by now.
func TestNothingIsWrittenWithoutTheLock(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	m := manage(t, target)
	policy := topology.Policy{
		Name: "dlxctl.shop.queue.mail", Pattern: "^mail$", ApplyTo: "queues", Priority: 1, Definition: topology.Arguments{"max-length": int64(10)},
	}
	exchange, queue := topology.Exchange{Name: "events", Type: "topic", Durable: true}, topology.Queue{Name: "mail", Durable: true}
	apply(t, m, policy, exchange, queue)

	through, cut := throughCut(t, target)
	conn := dial(t, through)
	lock := topology.LockName("shop")
	if err := conn.Lock(lock); err != nil {
		t.Fatal(err)
	}
	m.Over(conn)
	longer := policy
	longer.Definition = topology.Arguments{"max-length": int64(20)}
	apply(t, m, longer) // with the lock

	cut()
	soon(t, "the end of the connection to be noticed", conn.Closed)
	soon(t, "another to take the lock", func() bool {
		other, err := broker.Dial(t.Context(), endpoint(t, target))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Close() })
		return other.Lock(lock) == nil
	})
	before := target.Definitions(t)
	for name, c := range map[string]plan.Change{
		"create a policy":     {Action: plan.Create, After: policy},
		"delete a policy":     {Action: plan.Delete, Before: longer},
		"create an exchange":  {Action: plan.Create, After: topology.Exchange{Name: "more", Type: "topic", Durable: true}},
		"replace an exchange": {Action: plan.Replace, Before: exchange, After: topology.Exchange{Name: "events", Type: "fanout", Durable: true}},
		"create a queue":      {Action: plan.Create, After: topology.Queue{Name: "more", Durable: true}},
		"delete a queue":      {Action: plan.Delete, Before: queue},
	} {
		told(t, m.Apply(t.Context(), c), broker.ErrUnreachable, "the AMQP connection to amqp://"+amqpHost(t, through)+" ended: the lock was lost with it")
		if d := cmp.Diff(before, target.Definitions(t)); d != "" {
			t.Fatalf("%s without the lock (-before +after):\n%s", name, d)
		}
	}
}

// soon polls until ok, or fails.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// throughCut gives a target whose AMQP connections can be cut.
func throughCut(t *testing.T, target brokertest.Target) (brokertest.Target, context.CancelFunc) {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	backend := amqpHost(t, target)
	forward := func(client net.Conn) {
		server, err := new(net.Dialer).DialContext(ctx, "tcp", backend)
		if err != nil {
			_ = client.Close()
			return
		}
		end := func() { _, _ = client.Close(), server.Close() }
		context.AfterFunc(ctx, end)
		go func() { _, _ = io.Copy(client, server); end() }() // until it is cut, or one side ends
		_, _ = io.Copy(server, client)
		end()
	}
	address := listen(t, func(client net.Conn) { go forward(client) })
	target.URL = strings.Replace(target.URL, backend, strings.TrimPrefix(address, "http://"), 1)
	return target, cut
}
