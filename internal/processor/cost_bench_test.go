package processor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// costDelay is how long the messages of BenchmarkCosts wait, and costMessages how many there are.
const (
	costDelay    = 2 * time.Second
	costMessages = 10_000
)

// way is a way in which messages wait.
type way struct {
	name, file string
	exchange   string // of the publisher; empty: it publishes to the queue work
	requeue    bool   // by the consumer
	processed  bool   // by dlxctl
}

// delayWays are the ways of delayed messages on a line of RabbitMQ.
func delayWays(target brokertest.Target) []way {
	levels := way{name: "levels", file: delayFileOf("24h"), exchange: "shop.later", processed: true}
	if !target.AtLeast("4.3") {
		return []way{levels}
	}
	timer := levels
	timer.name, timer.file = "native", strings.Replace(levels.file, "max:", "engine: native, max:", 1)
	return []way{levels, timer}
}

// ways are those of BenchmarkCosts on a line of RabbitMQ.
func ways(target brokertest.Target) []way {
	const file = "version: 1\nname: shop\nbackoff: {b: {%stiers: [%s]}}\nqueues: [{name: work, backoff: b}]\n"
	out := []way{{name: "processor", file: fmt.Sprintf(file, "", costDelay), processed: true}}
	if target.AtLeast("4.3") {
		out = append(out, way{name: "native", file: fmt.Sprintf(file, "engine: native, ", costDelay), requeue: true})
	}
	for _, w := range delayWays(target) {
		w.name = "delay-" + w.name
		out = append(out, w)
	}
	return out
}

// BenchmarkCosts measures what the broker uses for 10,000 messages of 1 KiB that fail once and are
// retried after two seconds, or that are delayed by two seconds. What it uses for as many messages
// that neither fail nor wait is subtracted.
func BenchmarkCosts(b *testing.B) {
	node := brokertest.Node(b)
	for _, w := range ways(node.Target()) {
		b.Run("way="+w.name, func(b *testing.B) {
			var cpu, written []float64
			for b.Loop() {
				for range 3 {
					cost := w.cost(b, node, true).Since(w.cost(b, node, false))
					cpu, written = append(cpu, cost.CPUSeconds), append(written, cost.WrittenMiB)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(brokertest.Median(cpu), "broker-cpu-s/10k")
			b.ReportMetric(brokertest.Median(written), "broker-MiB/10k")
		})
	}
}

// cost returns what the node used until all messages are acknowledged. They wait, or do not.
func (w way) cost(b *testing.B, node *brokertest.Server, waits bool) brokertest.Used {
	b.Helper()
	s := onNode(b, node, w.file)
	if w.processed {
		defer startProcessor(b, s, 0)()
	}
	headers := amqp091.Table{}
	if w.exchange != "" && waits {
		headers["x-delay"] = costDelay.Milliseconds()
	}
	before := node.Used(b)
	done := s.acknowledge(b, w, waits && w.exchange == "")
	exchange, key := "", "work"
	if w.exchange != "" {
		exchange, key = "events", "a"
	}
	if waits && w.exchange != "" {
		exchange = w.exchange
	}
	s.flood(b, exchange, key, costMessages, headers)
	<-done
	return node.Used(b).Since(before)
}

// acknowledge consumes the queue work until costMessages were acknowledged. Each fails once, or
// none does.
func (s *stage) acknowledge(b *testing.B, w way, fail bool) (done chan struct{}) {
	b.Helper()
	ch := s.target.Channel(b)
	deliveries := brokertest.Consume(b, ch, "work", benchPrefetch)
	done = make(chan struct{})
	go func() {
		defer close(done)
		failed := map[string]bool{}
		for acked := 0; acked < costMessages; {
			d, ok := <-deliveries
			if !ok {
				b.Error("the broker ended the subscription")
				return
			}
			var err error
			if fail && !failed[d.MessageId] {
				failed[d.MessageId] = true
				err = d.Reject(w.requeue)
			} else {
				acked++
				err = d.Ack(false)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	}()
	return done
}

// flood publishes n persistent messages of 1 KiB as fast as it can, with up to 1,000 unconfirmed.
func (s *stage) flood(b *testing.B, exchange, key string, n int, headers amqp091.Table) {
	b.Helper()
	body := make([]byte, 1<<10)
	waiting := make(chan *amqp091.DeferredConfirmation, benchPrefetch)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c := range waiting {
			if !c.Wait() {
				b.Error("the broker did not confirm a message")
			}
		}
	}()
	ch := s.target.Confirming(b)
	for i := range n {
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp091.Publishing{
			MessageId: strconv.Itoa(i), DeliveryMode: amqp091.Persistent, Body: body, Headers: headers,
		})
		if err != nil {
			b.Fatal(err)
		}
		waiting <- c
	}
	close(waiting)
	<-ended
}

// waitingMessages is a variable of the environment: how many messages wait in BenchmarkWaiting.
// 1,000,000 take 15 minutes.
const waitingMessages = "DLXCTL_TEST_WAITING"

// BenchmarkWaiting measures a node on which 100,000 messages of 1 KiB wait that are all due at the
// same time: its memory, how long it takes to start, and when the last message comes.
func BenchmarkWaiting(b *testing.B) {
	n := 100_000
	if text := os.Getenv(waitingMessages); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for _, w := range delayWays(brokertest.VHost(b)) {
		b.Run(fmt.Sprintf("way=%s/messages=%d", w.name, n), func(b *testing.B) {
			for b.Loop() {
				w.wait(b, n)
			}
		})
	}
}

// wait lets n messages wait, restarts the node meanwhile, and ends when all have come.
func (w way) wait(b *testing.B, n int) {
	b.Helper()
	node := brokertest.Node(b)
	s := onNode(b, node, w.file)
	restart := func() time.Duration {
		node.Stop(b)
		began := time.Now()
		node.Start(b)
		s.reconnect(b)
		brokertest.Ready(b, s.eyes, "work")
		return time.Since(began)
	}
	empty := restart()
	defer startProcessor(b, s, 0)()
	before := node.Used(b)
	due := time.Now().Add(2*time.Minute + time.Duration(n)*time.Millisecond*3/5)
	s.flood(b, w.exchange, "a", n, amqp091.Table{"x-delay-until": due.UnixMilli()})
	intake := s.topology.Delays[0].Intake
	brokertest.Eventually(b, intake+" to be empty", func() bool { return brokertest.Ready(b, s.eyes, intake) == 0 })
	waiting := node.Used(b).Since(before)
	full := restart()
	if time.Now().After(due) {
		b.Fatal("the messages are due before all wait: the machine is too busy")
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for brokertest.Ready(b, s.eyes, "work") < n { // far longer than Eventually waits
		<-tick.C
	}
	took := time.Since(due)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(waiting.MiB, "memory-MiB")
	b.ReportMetric(waiting.CPUSeconds, "broker-cpu-s")
	b.ReportMetric(float64(empty.Milliseconds()), "start-empty-ms")
	b.ReportMetric(float64(full.Milliseconds()), "start-ms")
	b.ReportMetric(float64(took.Milliseconds()), "all-out-ms")
}
