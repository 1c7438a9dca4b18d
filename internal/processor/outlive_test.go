package processor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// dlxPrefetch is how many dead letters of a quorum queue are in flight at once
// (dead_letter_worker_consumer_prefetch).
const dlxPrefetch = 32

// outliveFile has a queue for each engine, with the same delays.
const outliveFile = `
version: 1
name: shop
backoff:
  quick: {tiers: [50ms, 100ms, 150ms]}
  steady: {engine: %s, tiers: [50ms, 100ms, 150ms]}
queues:
  - {name: processor, backoff: quick}
  - {name: native, backoff: steady}
`

// Messages that always fail, while consumers are killed again and again and nodes restart: none is
// lost, and each becomes a dead letter once, but for what the processor, or RabbitMQ's own
// dead-lettering, had in flight when a node went. RabbitMQ delivers a message as often as its
// backoff says at most.
func TestFailuresOutliveKills(t *testing.T) {
	t.Parallel()
	t.Run("one node", func(t *testing.T) {
		t.Parallel()
		node := brokertest.Node(t)
		failuresOutliveKills(t, []*brokertest.Server{node}, []func(testing.TB){node.Stop})
	})
	t.Run("three nodes", func(t *testing.T) {
		t.Parallel()
		nodes := brokertest.Cluster(t)
		failuresOutliveKills(t, nodes, []func(testing.TB){nodes[0].Stop, nodes[1].Kill, nodes[2].Stop})
	})
}

func failuresOutliveKills(t *testing.T, nodes []*brokertest.Server, faults []func(testing.TB)) {
	t.Helper()
	engines, second := []string{"processor", "native"}, "native"
	if !nodes[0].Target().AtLeast("4.3") {
		engines, second = engines[:1], "processor"
	}
	s := onNode(t, nodes[0], fmt.Sprintf(outliveFile, second))
	var others []brokertest.Target
	for _, n := range nodes[1:] {
		others = append(others, n.See(t, s.target))
	}
	front, _ := brokertest.NewProxy(t, s.target, others...)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, front)
	p.Log = s.quiet()
	stop := run(t, p)

	n := brokertest.Load(10_000)
	failing := map[string]*failing{}
	messages := make([]amqp091.Publishing, n)
	for i := range messages {
		messages[i] = amqp091.Publishing{MessageId: strconv.Itoa(i), DeliveryMode: amqp091.Persistent}
	}
	for _, queue := range engines {
		brokertest.PublishConfirmed(t, s.ch, "", queue, messages...)
	}
	for _, queue := range engines {
		failing[queue] = failUntilEnd(t, front.URL, queue, queue == "native")
	}
	faults = faults[:min(len(faults), brokertest.Rounds(1, len(faults)))]
	for i, down := range faults {
		brokertest.Eventually(t, "a part of the deliveries", func() bool {
			seen := 0
			for _, f := range failing {
				seen += f.seen()
			}
			return seen >= 4*n*len(engines)*(1+2*i)/10
		})
		down(t)
		nodes[i].Start(t)
		s.reconnect(t)
		for _, queue := range engines {
			t.Logf("%s: %d of %d messages are dead after node %d went and came", queue, s.ready(t, queue+".dead"), n, i+1)
		}
	}
	dead := map[string]map[string]int{}
	for _, queue := range engines {
		dead[queue] = map[string]int{}
		brokertest.Eventually(t, fmt.Sprintf("all %d messages in %s.dead", n, queue), func() bool {
			for id, copies := range s.drain(t, queue+".dead") {
				dead[queue][id] += copies
			}
			return len(dead[queue]) == n
		}, func() string { return fmt.Sprint(len(dead[queue]), " messages") })
	}
	brokertest.Eventually(t, "nothing to be on its way", func() bool { // a copy may be
		return !slices.ContainsFunc(s.topology.Queues, func(q topology.Queue) bool {
			messages, _ := s.target.Queue(t, q.Name)["messages"].(float64)
			return messages > 0 && !strings.HasSuffix(q.Name, ".dead")
		})
	})
	for _, queue := range engines {
		kills, most := failing[queue].end()
		for id, copies := range s.drain(t, queue+".dead") {
			dead[queue][id] += copies
		}
		doubled, inFlight := -n, dlxPrefetch
		for _, copies := range dead[queue] {
			doubled += copies
		}
		if queue == "processor" {
			inFlight = prefetch + 4*dlxPrefetch // the work queue and its three retry queues
		}
		t.Logf("%s: %d messages, %d consumers killed: 0 lost, %d doubled; at most %d deliveries of one", queue, n, kills, doubled, most)
		if doubled > inFlight*len(faults) || kills == 0 || queue == "native" && most > 4 {
			t.Errorf("%s: %d doubled, %d kills, %d deliveries of one message", queue, doubled, kills, most)
		}
	}
	stop()
	if left := s.drain(t, "shop.unroutable"); len(left) > 0 {
		t.Errorf("%d messages are in shop.unroutable", len(left))
	}
}

// failing is a service of which every message fails, and whose consumers are killed again and
// again.
type failing struct {
	mu    sync.Mutex
	times map[string]int // deliveries of each message, by message-id
	all   int            // deliveries
	kills int            // of consumers that had worked
	stop  func()
}

// seen returns how many deliveries there were.
func (f *failing) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// failUntilEnd starts two consumers of a queue that reject what they get, with requeue or without.
func failUntilEnd(t *testing.T, url, queue string, requeue bool) *failing {
	t.Helper()
	f := &failing{times: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var consumers sync.WaitGroup
	for range 2 {
		consumers.Go(func() {
			for ctx.Err() == nil {
				f.consumeUntilKilled(ctx, url, queue, requeue)
			}
		})
	}
	f.stop = sync.OnceFunc(func() { cancel(); consumers.Wait() })
	t.Cleanup(f.stop)
	return f
}

// end stops the consumers. It returns how many were killed while they worked, and how often one
// message was delivered at most.
func (f *failing) end() (kills, most int) {
	f.stop()
	for _, times := range f.times {
		most = max(most, times)
	}
	return f.kills, most
}

// consumeUntilKilled consumes for one to two seconds, and ends like a process that is killed.
func (f *failing) consumeUntilKilled(ctx context.Context, url, queue string, requeue bool) {
	var plain net.Conn
	conn, err := amqp091.DialConfig(url, amqp091.Config{Dial: func(network, addr string) (c net.Conn, err error) {
		plain, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
		return plain, err
	}})
	if err != nil { // the node is down
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		return
	}
	defer plain.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	_ = ch.Qos(20, 0, false)
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	life := time.After(time.Second + rand.N(time.Second))
	work := time.NewTicker(2 * time.Millisecond) // so that nodes restart before all is over
	defer work.Stop()
	for worked := false; ; <-work.C {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			worked = true
			f.mu.Lock()
			f.times[d.MessageId]++
			f.all++
			f.mu.Unlock()
			_ = d.Reject(requeue)
		case <-life:
			if worked {
				f.mu.Lock()
				f.kills++
				f.mu.Unlock()
			}
			return
		case <-ctx.Done():
			return
		}
	}
}
