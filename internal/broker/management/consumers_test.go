package management_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// typed creates a queue of each type, and returns them by type.
func typed(t *testing.T, m *management.Client) map[string]topology.Queue {
	t.Helper()
	out := map[string]topology.Queue{}
	for _, kind := range []string{topology.Classic, topology.Quorum, topology.Stream} {
		out[kind] = topology.Queue{Name: kind, Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: kind}}
		apply(t, m, out[kind])
	}
	return out
}

// consume consumes as the administrator, on a channel of its own.
func consume(t *testing.T, target brokertest.Target, queue string) *amqp091.Channel {
	t.Helper()
	ch := target.Channel(t)
	brokertest.Consume(t, ch, queue, 10) // a stream takes a limit for granted
	return ch
}

// knows waits until the usage of each queue satisfies is.
func knows(t *testing.T, m *management.Client, is func(topology.Usage) bool, queues ...string) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var usage map[string]topology.Usage
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		s, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		usage = s.Usage
		n := 0
		for _, name := range queues {
			if is(usage[name]) {
				n++
			}
		}
		if n == len(queues) {
			return
		}
	}
	t.Fatalf("it never came to that: %+v", usage)
}

// The consumers of other users count for every user: the tag management is enough.
func TestConsumersOfAllUsersCount(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	m := manage(t, target)
	typed(t, m)
	for _, kind := range []string{topology.Classic, topology.Quorum, topology.Stream} {
		consume(t, target, kind)
	}
	knows(t, m, func(u topology.Usage) bool { return u.Consumers == 1 && !u.ConsumersUnknown }, topology.Classic,
		topology.Quorum, topology.Stream)
}

// There are no statistics of a new queue yet: it is asked itself, and where that is not possible,
// its consumers are unknown, not none.
func TestConsumersOfNewQueuesAreAskedFor(t *testing.T) {
	t.Parallel()
	var target brokertest.Target
	var m *management.Client
	var s topology.State
	// Statistics may come before the queues are inspected; then other queues are tried.
	for attempt := 0; ; attempt++ {
		target = brokertest.VHost(t)
		m = manage(t, target)
		typed(t, m)
		consume(t, target, topology.Classic)
		consume(t, target, topology.Quorum)
		var err error
		if s, err = m.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		unknown := management.UnknownConsumers(s)
		if slices.Contains(unknown, topology.Classic) && slices.Contains(unknown, topology.Quorum) {
			break
		}
		if attempt == 9 {
			t.Fatal("the broker always had statistics of the new queues: this proves nothing")
		}
	}
	s = m.AskConsumers(t.Context(), s, management.UnknownConsumers(s))
	for _, name := range []string{topology.Classic, topology.Quorum} {
		if u := s.Usage[name]; u.Consumers != 1 || u.ConsumersUnknown {
			t.Errorf("%s: %+v", name, u)
		}
	}

	user := target.Tool(t)
	mute, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() }) // no server answers there meanwhile
	var dials atomic.Int32
	go func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	c := broker.Config{
		URL: "amqp://" + user.Username + ":" + user.Password + "@" + mute.Addr().String() + "/",
		API: target.API, VHost: target.VHost,
	}
	blind := resolve(t, c)
	// The first time the AMQP port is tried, and not again. Statistics may come before the queue is
	// inspected; then another queue is tried.
	var late []string
	for looks := 0; looks < 2; {
		name := fmt.Sprintf("late%d", len(late))
		late = append(late, name)
		if len(late) > 10 {
			t.Fatal("the broker always had statistics of the new queues: this proves nothing")
		}
		apply(t, m, topology.Queue{
			Name: name, Durable: true,
			Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
		})
		var err error
		before := dials.Load()
		if s, err = blind.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		unknown := management.UnknownConsumers(s)
		if !slices.Contains(unknown, name) {
			continue
		}
		s = blind.AskConsumers(t.Context(), s, unknown)
		looks++
		if n := dials.Load() - before; looks == 1 && n == 0 || looks == 2 && n > 0 {
			t.Errorf("look %d: the AMQP port was tried %d times", looks, n)
		}
		if u := s.Usage[name]; !u.ConsumersUnknown {
			t.Errorf("look %d without AMQP: %+v", looks, u)
		}
	}
	knows(t, blind, func(u topology.Usage) bool { return !u.ConsumersUnknown && u.Consumers == 0 }, late...)
}

// A queue in use is not deleted without the hazard, however recently its consumer started, for a
// user who cannot see the consumers of other users.
func TestAQueueWithAConsumerIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, way := range bothWays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := typed(t, way.m)
			knows(t, way.m, func(u topology.Usage) bool { return !u.ConsumersUnknown }, topology.Classic, topology.Quorum,
				topology.Stream)
			for _, kind := range []string{topology.Classic, topology.Quorum, topology.Stream} {
				consume(t, way.Target, kind)
			}
			for kind, q := range queues {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					c := plan.Change{Action: plan.Delete, Before: q}
					if kind == topology.Stream {
						c.Hazards = []topology.Hazard{topology.LosesMessages}
					}
					if err := way.m.Apply(t.Context(), c); !errors.Is(err, broker.ErrRefused) {
						t.Errorf("deleted under a consumer: %v", err)
					}
					c.Hazards = append(c.Hazards, topology.StopsConsumers)
					if err := way.m.Apply(t.Context(), c); err != nil {
						t.Errorf("with its hazard: %v", err)
					}
				})
			}
		})
	}
}

// A consumer that has just stopped does not keep its queue from being deleted: the deletion waits
// until the statistics no longer show the consumer.
func TestAQueueIsDeletedAfterItsConsumerStopped(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	m := manage(t, target)
	q := topology.Queue{Name: "q", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum}}
	apply(t, m, q)
	ch := consume(t, target, "q")
	knows(t, m, func(u topology.Usage) bool { return u.Consumers == 1 && !u.ConsumersUnknown }, "q")
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	look := target.Channel(t)
	for seen := 1; seen > 0; { // the queue hears of it a moment later
		found, err := look.QueueDeclarePassive("q", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen = found.Consumers
	}
	if err := m.Apply(t.Context(), plan.Change{Action: plan.Delete, Before: q}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// deskSends creates an exchange as a run of a desk has it, and returns a binding by which the run
// sends to a queue.
func deskSends(t *testing.T, m *management.Client) (to func(queue string) topology.Binding) {
	t.Helper()
	sends := topology.HoldName("shop", "r1") + ".to.0"
	mark := topology.Arguments{topology.ArgManagedBy: topology.DeskMark("shop")}
	apply(t, m, topology.Exchange{Name: sends, Type: topology.Fanout, Durable: true, Arguments: mark})
	return func(queue string) topology.Binding {
		return topology.Binding{Source: sends, Destination: queue, DestinationType: topology.ToQueue, Arguments: mark}
	}
}

// A queue to which a run of a desk sends through an exchange of its own is not deleted, whatever
// the hazard.
func TestAQueueThatADeskSendsToIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, way := range bothWays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bound := deskSends(t, way.m)
			for kind, q := range typed(t, way.m) {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					b := bound(q.Name)
					apply(t, way.m, b)
					c := plan.Change{Action: plan.Delete, Before: q, Hazards: []topology.Hazard{
						topology.LosesMessages, topology.StopsConsumers,
					}}
					if err := way.m.Apply(t.Context(), c); !errors.Is(err, broker.ErrRefused) ||
						!strings.Contains(err.Error(), "dlxctl desk run return r1") {
						t.Errorf("deleted while a run of the desk sends to it: %v", err)
					}
					remove(t, way.m, b)
					if err := way.m.Apply(t.Context(), c); err != nil {
						t.Errorf("after its end: %v", err)
					}
				})
			}
		})
	}
}

// A plan that shows a queue to a person, and deletes it, unbinds it from a run of a desk before it
// looks whether the queue is empty: what the run has sent keeps the queue, and what it sends then
// comes back to it.
func TestAQueueIsUnboundFromADeskFirst(t *testing.T) {
	t.Parallel()
	for name, way := range bothWays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bound, queues := deskSends(t, way.m), typed(t, way.m)
			for _, kind := range []string{topology.Classic, topology.Quorum} {
				ch, b := way.Confirming(t), bound(kind)
				apply(t, way.m, b)
				returned := ch.NotifyReturn(make(chan amqp091.Return, 1))
				send := func() (back bool) {
					t.Helper()
					c, err := ch.PublishWithDeferredConfirm(b.Source, "", true, false, amqp091.Publishing{})
					if err != nil || !c.Wait() {
						t.Fatalf("not confirmed: %v", err)
					}
					return len(returned) > 0
				}
				if send() {
					t.Fatalf("%s is not bound", kind)
				}
				c := plan.Change{Action: plan.Delete, Before: queues[kind], Stake: &topology.Usage{}}
				if err := way.m.Apply(t.Context(), c); !errors.Is(err, broker.ErrRefused) {
					t.Errorf("a %s queue with a message is deleted: %v", kind, err)
				}
				if !send() {
					t.Errorf("the run still sends to the %s queue", kind)
				}
				if _, err := ch.QueuePurge(kind, false); err != nil {
					t.Fatal(err)
				}
				brokertest.Eventually(t, "the empty queue to be deleted", func() bool { // counts are late
					return way.m.Apply(t.Context(), c) == nil
				})
			}
		})
	}
}

// A node that accepts a connection and then answers late, as a busy one does, is waited for.
func TestABusyNodeIsAskedOverAMQP(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	slow := brokertest.NewFilter(t, target, func(client, server net.Conn) {
		<-time.After(4 * time.Second) // longer than connecting over the network may take
		_, _ = io.Copy(server, client)
	})
	if _, err := manage(t, slow).Connection(t.Context()); err != nil {
		t.Error(err)
	}
}

// On a broker that keeps no statistics, a quorum queue is asked itself: it is deleted if it is
// empty and unused, and stays with a consumer or a message. One that may have messages stays too:
// its leader is not made to answer.
func TestAQuorumQueueIsDeletedWithoutStatistics(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	node.Eval(t, "ok = application:set_env(rabbitmq_management_agent, disable_metrics_collector, true).")
	target := node.VHost(t)
	m, ch := manage(t, target), target.Confirming(t)
	if all, err := m.AllSubscribers(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("the subscribers are %v: %v", all, err)
	}
	fill := func(queue string) { brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{}) }
	for name, tc := range map[string]struct {
		with    func(queue string)
		hazards []topology.Hazard
		refused string // empty: it is deleted
	}{
		"empty":    {with: func(string) {}},
		"consumed": {func(queue string) { consume(t, target, queue) }, nil, "the queue has 1 consumer"},
		"filled":   {fill, nil, "the queue holds 1 message"},
		"allowed": {
			fill, []topology.Hazard{topology.LosesMessages}, "statistics do not report whether the queue has consumers",
		},
	} {
		q := topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum}}
		apply(t, m, q)
		tc.with(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := m.Apply(t.Context(), plan.Change{Action: plan.Delete, Before: q, Hazards: tc.hazards})
			if tc.refused == "" && err != nil ||
				tc.refused != "" && (!errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("delete: %v", err)
			}
			if _, err := target.Channel(t).QueueDeclarePassive(name, true, false, false, false, nil); (err != nil) !=
				(tc.refused == "") {
				t.Errorf("look for it: %v", err)
			}
		})
	}
}
