package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/topology"
)

// faulty is the topology of the faults: one queue, whose messages are retried after a second.
const faulty = `
version: 1
name: shop
defaults: {backoff: quick}
backoff: {quick: {tiers: [{delay: 1s, attempts: 9}]}}
queues: [{name: work, severity: page}]
`

// idle is the alert about messages without a consumer.
const idle = "DlxctlQueueWithoutConsumers"

// For each fault an alert fires, and clears once the fault is mended: on a real node, with the real
// processors, which a real Prometheus scrapes.
func TestAlertsFireAndClear(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	needsLine(t, "4.0") // for the deliveries of single queues in its metrics
	metrics := brokertest.FreePort(t)
	_, port, _ := strings.Cut(metrics, ":")
	node := brokertest.NodeWith(t, "--set", "prometheus.tcp.ip = 127.0.0.1", "--set", "prometheus.tcp.port = "+port,
		"--env", "RABBITMQ_ENABLED_PLUGINS=rabbitmq_management,rabbitmq_prometheus")
	target, file := node.Target(), writeTopology(t, faulty)
	// RabbitMQ tries again after 3 minutes what a work queue has refused. A new queue reads this.
	node.Eval(t, "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000).")
	start(t, target, "apply", "--yes", "-f", file).exits(t, 0)
	first, second := brokertest.FreePort(t), brokertest.FreePort(t)
	runs := func(address string) *process { return start(t, target, "process", "-f", file, "--listen", address) }
	one, two := runs(first), runs(second)
	p := scrapes(t, compiled(t, faulty), metrics, first, second)
	p.fires(t) // nothing

	two.kill()
	p.fires(t, "DlxctlProcessorRedundancyLost")
	older := writeTopology(t, strings.Replace(faulty, "attempts: 9", "attempts: 8", 1))
	two = start(t, target, "process", "-f", older, "--listen", second)
	p.fires(t, "DlxctlProcessorOutdated")
	two.kill()
	two = runs(second)
	p.fires(t)

	const n = 30
	for range n {
		brokertest.PublishConfirmed(t, target.Confirming(t), "", "work", amqp091.Publishing{})
	}
	p.fires(t, idle)
	busy := target.Channel(t) // a consumer that holds one message, and does nothing
	brokertest.Consume(t, busy, "work", 1)
	p.fires(t, "DlxctlBacklog", "DlxctlStuck")
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	p.fires(t, idle)
	node.Alarm(t, true)
	rejects(t, target, n)
	p.fires(t, "DlxctlBrokerBlocked", "DlxctlRetriesStalled")
	node.Alarm(t, false)
	p.fires(t, idle) // the messages are in the work queue again

	const spare = 5 // while these stay, the work queue is full: it would accept a few in one go before it refuses
	for range spare {
		brokertest.PublishConfirmed(t, target.Confirming(t), "", "work", amqp091.Publishing{})
	}
	policy := "policies/" + url.PathEscape(target.VHost) + "/limit"
	target.Call(t, "PUT", policy, map[string]any{
		"pattern": "^work$", "apply-to": "queues", "definition": map[string]any{"max-length": 1},
	})
	rejects(t, target, n)
	p.fires(t, "DlxctlTierLate")
	const late = "problem tier-late: messages are past their delay and have not returned to their work queues: shop.quick.retry.1s ("
	if out := succeeds(t, target, "status", "-f", file); !strings.Contains(out, late) {
		t.Errorf("status does not say %q:\n%s", late, out)
	}
	target.Call(t, "DELETE", policy, nil)
	p.fires(t)
	out := ""
	brokertest.Eventually(t, "status not to name the tier", func() bool {
		out = succeeds(t, target, "status", "-f", file)
		return !strings.Contains(out, "tier-late")
	}, &out)

	// Failed messages have no way out of the work queue: not even to the unroutable queue.
	for _, b := range [][3]string{
		{"shop.failed", "shop.quick.failed", "@work"}, {"shop.unroutable", "shop.unroutable", ""},
	} {
		target.Call(t, "DELETE", "bindings/"+url.PathEscape(target.VHost)+"/e/"+b[0]+"/q/"+b[1]+"/"+
			propertiesKey(place{t: t, target: target}, b[0], b[1], b[2]), nil)
	}
	rejects(t, target, n)
	p.fires(t, "DlxctlFailuresLate")
	start(t, target, "apply", "--yes", "-f", file).exits(t, 0)
	p.fires(t)

	brokertest.PublishConfirmed(t, target.Confirming(t), "", "work", amqp091.Publishing{Body: make([]byte, 30_000)})
	limit := func(bytes int) {
		node.Eval(t, fmt.Sprintf(
			"persistent_term:put(max_message_size, %d), application:set_env(rabbit, max_message_size, %[1]d).", bytes))
	}
	limit(20_000)
	rejects(t, target, n+spare+1)
	p.fires(t, "DlxctlMessagesHeld") // and not that retries stand still: nothing else waits
	limit(16 << 20)
	for _, processor := range []*process{one, two} {
		processor.signal(t, syscall.SIGTERM)
		processor.exits(t, 0)
	}
	p.fires(t, "DlxctlProcessorDown", "DlxctlRetriesStalled")
	runs(first)
	runs(second)
	p.fires(t)
}

// rejects rejects n messages of the work queue.
func rejects(t *testing.T, target brokertest.Target, n int) {
	t.Helper()
	ch := target.Channel(t)
	brokertest.Eventually(t, "messages to reject", func() bool {
		d, ok, err := ch.Get("work", false)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
			n--
		}
		return n == 0
	}, &n)
}

// prometheus is a Prometheus that runs.
type prometheus struct{ address string }

// scrapes starts a Prometheus with the generated rules, and with seconds where they have minutes.
func scrapes(t *testing.T, top topology.Compiled, metrics string, processors ...string) prometheus {
	t.Helper()
	dir, p := t.TempDir(), prometheus{brokertest.FreePort(t)}
	o := options()
	o.Backlog = 20
	rules := generate.Alerts(top, o)
	for i := range rules.Groups[0].Rules {
		r := &rules.Groups[0].Rules[i]
		r.For, r.Expr = "2s", regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(r.Expr, "[6s]")
	}
	write(t, filepath.Join(dir, "rules.yml"), rules)
	targets := func(list ...string) []map[string]any { return []map[string]any{{"targets": list}} }
	write(t, filepath.Join(dir, "prometheus.yml"), map[string]any{
		"global":     map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"rules.yml"},
		"scrape_configs": []map[string]any{
			{"job_name": "dlxctl", "static_configs": targets(processors...)},
			{
				"job_name": "rabbitmq", "metrics_path": "/metrics/detailed", "static_configs": targets(metrics),
				"params": map[string][]string{"family": {"queue_coarse_metrics", "queue_consumer_count", "queue_delivery_metrics"}},
			},
		},
	})
	script, err := filepath.Abs("../scripts/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), script, "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--web.listen-address="+p.address, "--log.level=warn")
	c.Dir, c.Stderr = dir, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() })
	brokertest.Eventually(t, "Prometheus to scrape everything", func() bool {
		page, err := p.asks("/api/v1/query?query=" + url.QueryEscape("sum(up) == "+fmt.Sprint(1+len(processors))))
		return err == nil && strings.Contains(page, `"value"`)
	})
	return p
}

// fires waits until exactly these alerts fire. The work queue has no consumer: the alert about that
// may fire too while messages are there.
func (p prometheus) fires(t *testing.T, want ...string) {
	t.Helper()
	var firing []string
	slices.Sort(want)
	brokertest.Eventually(t, fmt.Sprintf("the alerts %q", want), func() bool {
		page, err := p.asks("/api/v1/alerts")
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Data struct {
				Alerts []struct {
					Labels map[string]string `json:"labels"`
					State  string            `json:"state"`
				} `json:"alerts"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(page), &answer); err != nil {
			t.Fatalf("%v: %s", err, page)
		}
		firing = nil
		for _, a := range answer.Data.Alerts {
			if name := a.Labels["alertname"]; a.State == "firing" && (name != idle || slices.Contains(want, idle)) {
				firing = append(firing, name)
			}
		}
		slices.Sort(firing)
		firing = slices.Compact(firing)
		return slices.Equal(firing, want)
	}, &firing)
}

// asks returns what Prometheus answers.
func (p prometheus) asks(path string) (string, error) {
	resp, err := http.Get("http://" + p.address + path) //nolint:noctx // the process ends with the test
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
