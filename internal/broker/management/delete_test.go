package management_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// way is a broker that is managed over HTTP alone, or with an AMQP connection.
type way struct {
	brokertest.Target

	m *management.Client
}

func bothWays(t *testing.T) map[string]way {
	t.Helper()
	ways := map[string]way{}
	for _, name := range []string{"HTTP", "AMQP"} {
		target := brokertest.VHost(t)
		ways[name] = way{target, manage(t, target)}
	}
	over := ways["AMQP"]
	over.m.UseAMQP(dial(t, over.Target))
	return ways
}

func TestAppliedObjectsCanBeDeleted(t *testing.T) {
	t.Parallel()
	for name, way := range bothWays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := way.m
			all := many()
			apply(t, m, objects(all)...)
			for range 2 { // deleting twice is harmless
				for _, o := range all.Bindings {
					remove(t, m, o)
				}
				if left := inspect(t, m).Bindings; len(left) > 0 {
					t.Fatalf("bindings are left: %v", left)
				}
				for _, o := range objects(all) {
					remove(t, m, o)
				}
				if d := cmp.Diff(topology.Topology{}, inspect(t, m)); d != "" {
					t.Fatalf("something is left (-want +got):\n%s", d)
				}
			}
		})
	}
}

func remove(t *testing.T, m *management.Client, object topology.Object) {
	t.Helper()
	c := plan.Change{Action: plan.Delete, Before: object}
	if q, ok := object.(topology.Queue); ok && q.Type() == topology.Stream {
		// Without consent a stream stays: it cannot be proved empty.
		if err := m.Apply(t.Context(), c); !errors.Is(err, broker.ErrRefused) && len(inspect(t, m).Queues) > 0 {
			t.Fatalf("delete a stream: %v", err)
		}
		c.Hazards = []topology.Hazard{topology.LosesMessages}
	}
	if err := m.Apply(t.Context(), c); err != nil {
		t.Fatalf("delete %+v: %v", object, err)
	}
}

func TestOddBindingsAreDeletedOneByOne(t *testing.T) {
	t.Parallel()
	for name, way := range bothWays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := way.m
			apply(t, m, topology.Queue{
				Name: "a/b %", Durable: true,
				Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
			})
			var bindings []topology.Binding
			for _, name := range append(oddNames(), "") {
				for _, args := range []topology.Arguments{
					nil,
					{topology.ArgManagedBy: "dlxctl/shop"},
					{"odd": name, "n": int64(1)},
				} {
					bindings = append(bindings, topology.Binding{
						Source: "amq.topic", Destination: "a/b %", DestinationType: topology.ToQueue, Key: name, Arguments: args,
					})
				}
			}
			for _, b := range bindings {
				apply(t, m, b)
			}
			// A service's binding may hold another integer type than JSON can express.
			small := topology.Binding{
				Source: "amq.topic", Destination: "a/b %", DestinationType: topology.ToQueue, Key: "small",
				Arguments: topology.Arguments{"n": int64(1)},
			}
			brokertest.Bind(t, way.Channel(t), small.Destination, small.Key, small.Source, amqp091.Table{"n": int16(1)})
			bindings = append(bindings, small)
			for i, b := range bindings {
				remove(t, m, b)
				want := topology.Compiled{Topology: topology.Topology{Bindings: append([]topology.Binding{}, bindings[i+1:]...)}}
				want.Sort()
				got := inspect(t, m).Bindings
				if len(want.Bindings)+len(got) > 0 {
					if d := cmp.Diff(want.Bindings, got); d != "" {
						t.Fatalf("after deletion of %s %s (-want +got):\n%s", b, b.Arguments, d)
					}
				}
			}
		})
	}
}

func TestADeletionNeedsItsHazards(t *testing.T) {
	t.Parallel()
	for name, way := range bothWays(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := way.m
			ch := way.Channel(t)
			full := func(name, kind string) topology.Queue {
				q := topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: kind}}
				apply(t, m, q)
				if err := ch.PublishWithContext(t.Context(), "", name, true, false,
					amqp091.Publishing{Body: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				return q
			}
			used := topology.Queue{
				Name: "used", Durable: true,
				Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum},
			}
			bound := topology.Exchange{Name: "bound", Type: topology.Topic, Durable: true}
			apply(t, m, used, bound,
				topology.Binding{Source: "bound", Destination: "amq.fanout", DestinationType: topology.ToExchange, Key: "#"})
			brokertest.Consume(t, ch, "used", 0)
			classic, quorum := full("classic", topology.Classic), full("quorum", topology.Quorum)
			held := full("held", topology.Classic)
			if _, ok, err := ch.Get("held", false); !ok || err != nil { // a client that has it, and no consumer
				t.Fatal(ok, err)
			}
			holding(t, m, "classic", "quorum")
			for name, tc := range map[string]struct {
				object topology.Object
				hazard topology.Hazard
			}{
				"a classic queue with a message":               {classic, topology.LosesMessages},
				"a quorum queue with a message":                {quorum, topology.LosesMessages},
				"a classic queue whose message a client holds": {held, topology.LosesMessages},
				"a queue with a consumer":                      {used, topology.StopsConsumers},
				"an exchange with a binding":                   {bound, topology.DropsRouting},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					change := plan.Change{Action: plan.Delete, Before: tc.object}
					if err := m.Apply(t.Context(), change); !errors.Is(err, broker.ErrRefused) {
						t.Errorf("without its hazard: %v", err)
					}
					change.Hazards = []topology.Hazard{tc.hazard}
					if tc.hazard == topology.LosesMessages {
						change.Stake = &topology.Usage{} // it was empty when consent was given
						if err := m.Apply(t.Context(), change); !errors.Is(err, broker.ErrRefused) {
							t.Errorf("with consent to what it will get, and not to what it has got: %v", err)
						}
						change.Stake = nil
					}
					if err := m.Apply(t.Context(), change); err != nil {
						t.Errorf("with its hazard: %v", err)
					}
				})
			}
		})
	}
}

// holding waits until the broker's totals show a message in each queue.
func holding(t *testing.T, m *management.Client, names ...string) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		s, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range names {
			if s.Usage[name].Ready > 0 {
				n++
			}
		}
		if n == len(names) {
			return
		}
	}
	t.Fatalf("the totals never showed messages in %q", names)
}
