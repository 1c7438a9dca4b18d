package processor_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/topology"
)

// page is what a monitor serves.
type page struct{ *httptest.Server }

func serve(t *testing.T, m *monitor.Monitor) page {
	t.Helper()
	s := httptest.NewServer(m.Handler())
	t.Cleanup(s.Close)
	return page{s}
}

// get returns status and body.
func (p page) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := p.Client().Get(p.URL + path) //nolint:noctx // it ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// scrape returns the metrics.
func (p page) scrape(t *testing.T) metrics {
	t.Helper()
	status, text := p.get(t, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d: %s", status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

type metrics map[string]*dto.MetricFamily

// sum adds up the series of a metric that have these labels: name, value, name,
// value and so on. Of a histogram it is the count.
func (m metrics) sum(name string, labels ...string) int {
	sum := 0.0
series:
	for _, s := range m[name].GetMetric() {
		for i := 0; i < len(labels); i += 2 {
			if label(s, labels[i]) != labels[i+1] {
				continue series
			}
		}
		sum += s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
	}
	return int(sum)
}

func label(s *dto.Metric, name string) string {
	for _, l := range s.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// counted is a topology in which messages stay where the processor puts them.
const counted = deadAtOnce + "  - {name: other}\n"

// What is scraped equals what the broker counted, in each tier and each queue of
// dead letters; and at no moment do the counters say more than the broker has.
func TestMetricsEqualWhatTheBrokerCounted(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, counted)
	const retried, dead, nowhere = 700, 40, 30
	for i := range retried {
		s.publish(t, "", "work", amqp091.Publishing{MessageId: fmt.Sprint("r", i)})
		reject(t, s.take(t, "work"))
	}
	for i := range dead {
		s.publish(t, "", "other", amqp091.Publishing{MessageId: fmt.Sprint("d", i), Expiration: "1"})
	}
	for i := range nowhere {
		s.publish(t, "shop.slow.failed", fmt.Sprintf("@made-up-%d", i), amqp091.Publishing{})
		s.publish(t, "shop.slow.failed", "no address", amqp091.Publishing{})
	}
	p := s.processor(t)
	p.Log, p.Monitor = s.quiet(), monitor.New("v1")
	web := serve(t, p.Monitor)
	stop := run(t, p)

	var seen metrics
	brokertest.Eventually(t, "all to be counted", func() bool {
		seen = web.scrape(t)
		for queue, n := range map[string]int{
			"shop.slow.retry.1h": seen.sum("dlxctl_messages_retried_total"),
			"other.dead":         seen.sum("dlxctl_messages_dead_lettered_total"),
			"shop.unroutable":    seen.sum("dlxctl_messages_unroutable_total"),
		} {
			if has := s.ready(t, queue); has < n {
				t.Fatalf("the counters say %d for %s, which holds %d", n, queue, has)
			}
		}
		// A scrape is not one moment: each of these may have been read before the last confirms.
		done := 0
		for _, name := range []string{
			"dlxctl_messages_retried_total", "dlxctl_messages_dead_lettered_total",
			"dlxctl_messages_unroutable_total",
		} {
			done += seen.sum(name)
		}
		const all = retried + dead + 2*nowhere
		return seen.sum("dlxctl_publish_confirm_seconds") == all && done == all && seen.sum("dlxctl_in_flight") == 0
	})
	for what, c := range map[string]struct{ metric, queue int }{
		"retried": {seen.sum("dlxctl_messages_retried_total", "topology", "shop", "backoff", "slow", "queue", "work",
			"tier", "1h"), s.ready(t, "shop.slow.retry.1h")},
		"dead letters": {seen.sum("dlxctl_messages_dead_lettered_total", "queue", "other", "reason", "expired", "severity",
			"ticket", "owner", ""), s.ready(t, "other.dead")},
		"of unknown queues and without address": {
			seen.sum("dlxctl_messages_unroutable_total", "reason", "unknown_queue", "queue",
				"") + seen.sum("dlxctl_messages_unroutable_total", "reason", "no_address"),
			s.ready(t, "shop.unroutable"),
		},
		"left over": {seen.sum("dlxctl_in_flight"), s.ready(t, "shop.slow.failed")},
		"consumers up": {
			seen.sum("dlxctl_consumer_up", "topology", "shop", "queue", "shop.slow.failed"),
			s.consumers(t, "shop.slow.failed"),
		},
	} {
		if c.metric != c.queue {
			t.Errorf("%s: the metrics say %d, the broker %d", what, c.metric, c.queue)
		}
	}
	// Two for each work queue, and four for messages that name none of the file.
	if n := len(seen["dlxctl_messages_unroutable_total"].GetMetric()); n != 8 {
		t.Errorf("%d series of unroutable messages: names that messages made up bring about none, and each begins at 0", n)
	}
	if n := len(seen["dlxctl_held_messages"].GetMetric()); n != 3 || seen.sum("dlxctl_held_messages") != 0 {
		t.Errorf("%d reasons for which messages are held, and %d messages", n, seen.sum("dlxctl_held_messages"))
	}
	if n := seen.sum("dlxctl_messages_dead_lettered_total", "queue", "work", "owner", "team-work", "severity",
		"page"); n != 0 ||
		len(seen["dlxctl_messages_dead_lettered_total"].GetMetric()) != 3*len(topology.AllReasons()) {
		t.Error("each queue and reason should begin at 0, so that the first dead letter is an increase")
	}
	if seen.sum("dlxctl_build_info", "version", "v1") != 1 {
		t.Error("no dlxctl_build_info")
	}
	documented := map[string]bool{}
	for _, m := range monitor.Metrics() {
		documented[m.Name] = true
	}
	for name := range seen {
		if strings.HasPrefix(name, "dlxctl_") && !documented[name] {
			t.Errorf("%s is served and not documented", name)
		}
	}
	stop()
	if after := web.scrape(t); after.sum("dlxctl_messages_retried_total") != retried ||
		after["dlxctl_consumer_up"] != nil {
		t.Error("a processor that has ended should leave its counters, and be up no more")
	}
}

// A flood of dead letters does not fill the disk of the log: what is not logged is counted there,
// and the metrics count all of it.
func TestDeadLettersFillNoLog(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, deadAtOnce)
	const dead, lines = 700, 500
	for i := range dead {
		s.publish(t, "", "work", amqp091.Publishing{MessageId: fmt.Sprint(i), Expiration: "1"})
	}
	brokertest.Eventually(t, "all to fail", func() bool { return s.ready(t, "shop.slow.failed") == dead })
	p := s.processor(t)
	p.Monitor, p.UntilEmpty = monitor.New(""), true
	log := listen(t, p)
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const text = `msg="dead-lettered message"`
	if n := len(log.with(text + " queue=work message_id=")); n != lines {
		t.Errorf("%d dead letters are logged one by one, not %d", n, lines)
	}
	if n := len(log.with(fmt.Sprintf("%s queue=work left_out=%d within=1m", text, dead-lines))); n != 1 {
		t.Errorf("%d lines say how many are not logged:\n%s", n, strings.Join(log.with("left_out"), "\n"))
	}
	counted, moved := p.Monitor.Totals().DeadLettered, s.ready(t, "work.dead")
	if counted != dead || moved != dead {
		t.Errorf("%d are counted, and %d are in the dead-letter queue, not %d", counted, moved, dead)
	}
}

// consumers returns how many consumers a queue has.
func (s *stage) consumers(t *testing.T, queue string) int {
	t.Helper()
	return s.look(t, queue).Consumers
}

// Ready is: every failed queue is consumed. If not, it says why.
func TestReadyWhenEveryFailedQueueIsConsumed(t *testing.T) {
	t.Parallel()
	s := &stage{target: brokertest.VHost(t)}
	var err error
	if s.topology, err = compile(retryInAnHour); err != nil {
		t.Fatal(err)
	}
	m := monitor.New("")
	web := serve(t, m)
	says := func(path string, status int, text string) {
		t.Helper()
		brokertest.Eventually(t, fmt.Sprint(path, " to say ", status, " ", text), func() bool {
			got, body := web.get(t, path)
			return got == status && strings.Contains(body, text)
		})
	}
	says("/readyz", 503, "no processor has started")

	// Nothing answers.
	away := s.processor(t)
	away.Endpoint.AMQP.Host, away.Monitor, away.Log = "127.0.0.1:1", m, s.quiet()
	stop := run(t, away)
	says("/readyz", 503, "shop: failed queue shop.slow.failed is not consumed: nothing that speaks AMQP answers at")
	says("/healthz", 200, "ok")
	stop()

	// The queue is not there, then it is, then it goes.
	p := s.processor(t)
	p.Monitor, p.Log = m, s.quiet()
	run(t, p)
	says("/readyz", 503, "shop.slow.failed")
	s.eyes = s.target.Channel(t)
	s.apply(t, s.topology)
	says("/readyz", 200, "ok")
	brokertest.Delete(t, s.target.Channel(t), "shop.slow.failed")
	says("/readyz", 503, "shop.slow.failed is not consumed: ")
	s.apply(t, s.topology)
	says("/readyz", 200, "ok")
	says("/healthz", 200, "ok")
	m.Stopping()
	says("/readyz", 503, "stopping")
}
