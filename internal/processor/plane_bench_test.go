package processor_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const (
	outageTier    = 2 * time.Second
	outageSeconds = 5
	burst         = 10_000
)

// outage is a service of which everything fails, twice: the first retry as well.
type outage struct {
	rate     int // published in a second, for five seconds; 0 is a burst of 10,000
	prefetch int // dead_letter_worker_consumer_prefetch
	queues   int // work queues
	backoffs int // of these queues, and so how many failed queues and retry queues there are
	// native lets RabbitMQ retry (engine: native): the service rejects with requeue, and no processor
	// runs.
	native bool
}

// BenchmarkPlane measures how late retries are when everything fails, and where the messages wait
// meanwhile: consumer, work queue, failed queue, processor and retry queue together. The nodes, the
// service and the processor share the machine.
//
// With DLXCTL_TEST_LONG it measures all points, on one node and on three, else some on one node,
// which take a minute.
func BenchmarkPlane(b *testing.B) {
	b.Run("nodes=1", func(b *testing.B) { benchOutages(b, []*brokertest.Server{brokertest.Node(b)}) })
	if allPoints() {
		b.Run("nodes=3", func(b *testing.B) { benchOutages(b, brokertest.Cluster(b)) })
	}
}

func allPoints() bool { return os.Getenv("DLXCTL_TEST_LONG") != "" }

func benchOutages(b *testing.B, nodes []*brokertest.Server) {
	b.Helper()
	rates := []int{1000, 5000}
	if allPoints() {
		rates = []int{1000, 2000, 5000, 0}
	}
	for _, rate := range rates {
		for _, o := range []outage{
			{rate, 32, 1, 1, false},
			{rate, 512, 1, 1, false},
			{rate, 32, 4, 4, false},
			{rate, 32, 4, 1, false},
			{rate, 32, 1, 1, true},
		} {
			target := nodes[0].Target()
			if o.queues != o.backoffs && !allPoints() || o.native && !target.AtLeast("4.3") {
				continue
			}
			name := fmt.Sprintf("rate=%d/prefetch=%d/queues=%d/backoffs=%d", rate, o.prefetch, o.queues, o.backoffs)
			if o.native {
				name = fmt.Sprintf("rate=%d/native", rate)
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					o.measure(b, nodes)
				}
			})
		}
	}
}

// measure lets everything fail in a virtual host of its own, whose queues are made after the
// setting, and ends when all messages are dead letters.
func (o outage) measure(b *testing.B, nodes []*brokertest.Server) {
	b.Helper()
	for _, n := range nodes {
		n.Eval(b, fmt.Sprintf("application:set_env(rabbit, dead_letter_worker_consumer_prefetch, %d), "+
			"application:set_env(rabbit, quorum_tick_interval, 500).", o.prefetch))
	}
	backoffs, queues, engine := "", "", ""
	if o.native {
		engine = "engine: native, "
	}
	for i := range o.backoffs {
		backoffs += fmt.Sprintf("  quick%d: {%stiers: [2s]}\n", i, engine)
	}
	for i := range o.queues {
		queues += fmt.Sprintf("  - {name: work%d, backoff: quick%d}\n", i, i%o.backoffs)
	}
	file := "version: 1\nname: shop\ndefaults: {dead: shared}\nbackoff:\n" + backoffs + "queues:\n" + queues
	s := onNode(b, nodes[0], file)
	stop := func() {}
	if !o.native {
		stop = startProcessor(b, s, 0)
	}
	n := o.rate * outageSeconds
	if o.rate == 0 {
		n = burst
	}
	watched := s.watchBacklog(b)
	late := o.rejectAll(b, s.target.Channel(b), n)
	published := o.publish(b, s.target.Channel(b), n)
	brokertest.Eventually(b, "all messages in shop.dead", func() bool {
		return brokertest.Ready(b, s.eyes, "shop.dead") >= n
	})
	stop()
	l, most := late(), watched()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(published.Seconds(), "publish-s")
	b.ReportMetric(float64(l[len(l)/2].Milliseconds()), "late-p50-ms")
	b.ReportMetric(float64(l[len(l)*99/100].Milliseconds()), "late-p99-ms")
	b.ReportMetric(float64(most["work"].other), "work-other")
	b.ReportMetric(float64(most["shop.quick.retry.s"].other), "retry-other")
	b.ReportMetric(float64(most["work"].ready), "work-ready")
	b.ReportMetric(float64(most["shop.quick.failed"].ready), "failed-ready")
}

// publish publishes n messages of 1 KiB, evenly at the rate, and returns how long it took.
func (o outage) publish(b *testing.B, ch *amqp091.Channel, n int) time.Duration {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	body := make([]byte, 1<<10)
	began := time.Now()
	for sent := 0; sent < n; <-tick.C {
		due := n
		if o.rate > 0 {
			due = min(n, int(time.Since(began).Seconds()*float64(o.rate)))
		}
		for ; sent < due; sent++ {
			m := amqp091.Publishing{MessageId: strconv.Itoa(sent), DeliveryMode: amqp091.Persistent, Body: body}
			if err := ch.Publish("", fmt.Sprintf("work%d", sent%o.queues), true, false, m); err != nil {
				b.Fatal(err)
			}
		}
	}
	return time.Since(began)
}

// rejectAll rejects whatever comes from the work queues. late returns how much later than
// scheduled each of n messages came back, sorted, once it has come.
func (o outage) rejectAll(b *testing.B, ch *amqp091.Channel, n int) (late func() []time.Duration) {
	b.Helper()
	if err := ch.Qos(benchPrefetch, 0, false); err != nil {
		b.Fatal(err)
	}
	ended := make(chan []time.Duration, o.queues)
	for i := range o.queues {
		deliveries := brokertest.Consume(b, ch, fmt.Sprintf("work%d", i), 0)
		go func() { ended <- rejectTwice(b, deliveries, n/o.queues, o.native) }()
	}
	return func() []time.Duration {
		var all []time.Duration
		for range o.queues {
			all = append(all, <-ended...)
		}
		slices.Sort(all)
		return all
	}
}

// rejectTwice rejects deliveries until each of n messages has come twice, and returns how late they
// came the second time.
func rejectTwice(b *testing.B, deliveries <-chan amqp091.Delivery, n int, requeue bool) (late []time.Duration) {
	b.Helper()
	rejected := map[string]time.Time{}
	for d := range deliveries {
		if first, again := rejected[d.MessageId]; again {
			late = append(late, time.Since(first)-outageTier)
		} else {
			rejected[d.MessageId] = time.Now()
		}
		if err := d.Reject(requeue); err != nil {
			b.Error(err)
			break
		}
		if len(late) == n {
			break
		}
	}
	return late
}

// backlog is how many messages queues of one kind have held at most.
type backlog struct {
	ready int
	other int // neither ready nor unacknowledged
}

// watchBacklog looks at the queues, which count twice a second, until stop, which returns the most
// that each kind held. Queues whose names differ in digits are of one kind.
func (s *stage) watchBacklog(b *testing.B) (stop func() map[string]backlog) {
	b.Helper()
	most := map[string]backlog{}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			for kind, now := range s.backlogs(b) {
				m := most[kind]
				most[kind] = backlog{max(m.ready, now.ready), max(m.other, now.other)}
			}
		}
	}()
	return func() map[string]backlog {
		close(quit)
		<-ended
		return most
	}
}

// backlogs returns what the queues of each kind hold together.
func (s *stage) backlogs(b *testing.B) map[string]backlog {
	b.Helper()
	var queues []struct {
		Name     string
		Messages int
		Ready    int `json:"messages_ready"`
		Unacked  int `json:"messages_unacknowledged"`
	}
	path := "queues/" + url.PathEscape(s.target.VHost) + "?disable_stats=true&enable_queue_totals=true"
	if err := json.Unmarshal(s.target.Call(b, "GET", path, nil), &queues); err != nil {
		b.Error(err)
	}
	all := map[string]backlog{}
	for _, q := range queues {
		kind := strings.Map(func(c rune) rune {
			if unicode.IsDigit(c) {
				return -1
			}
			return c
		}, q.Name)
		sum := all[kind]
		all[kind] = backlog{sum.ready + q.Ready, sum.other + q.Messages - q.Ready - q.Unacked}
	}
	return all
}
