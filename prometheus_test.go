package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// Each series of RabbitMQ that rules and dashboard ask for is there, on a real
// node with the plugin rabbitmq_prometheus, for every queue that they name.
func TestAlertsUseMetricsThatRabbitMQHas(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	node := brokertest.NodeWith(t, "--set", "prometheus.tcp.ip = 127.0.0.1", "--set", fmt.Sprint("prometheus.tcp.port = ", port),
		"--env", "RABBITMQ_ENABLED_PLUGINS=rabbitmq_management,rabbitmq_prometheus")
	target := node.Target()
	if _, err := target.Channel(t).QueueDeclare("invoices", true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil { // the legacy queue
		t.Fatal(err)
	}
	start(t, target, "apply", "--yes", "-f", file(t, alerted)).exits(t, 0)

	selectors := map[string]bool{}
	for _, q := range queries(topologyOf(t, alerted)) {
		for _, s := range regexp.MustCompile(`rabbitmq_\w+\{[^}]*\}`).FindAllString(q, -1) {
			selectors[s] = true
		}
	}
	if len(selectors) < 10 {
		t.Fatalf("only %d selectors: %v", len(selectors), selectors)
	}
	var page string
	eventually(t, "Prometheus to find every queue", func() bool {
		page = scrape(t, fmt.Sprintf("http://127.0.0.1:%d/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count", port))
		for s := range selectors {
			if found, want := series(t, page, s); found != want {
				return false
			}
		}
		return true
	})
}

// series gives how many series of a page of metrics a selector finds, and how
// many queues it names.
func series(t *testing.T, page, selector string) (found, named int) {
	t.Helper()
	parts := regexp.MustCompile(`^(\w+)\{vhost="/",queue(=~?)(".*")\}$`).FindStringSubmatch(selector)
	if parts == nil {
		t.Fatalf("%s is no selector of a queue", selector)
	}
	pattern, err := strconv.Unquote(parts[3])
	if err != nil {
		t.Fatal(err)
	}
	named = 1
	if parts[2] == "=" {
		pattern = regexp.QuoteMeta(pattern)
	} else {
		named += strings.Count(pattern, "|")
	}
	return len(regexp.MustCompile(`(?m)^`+parts[1]+`\{vhost="/",queue="(?:`+pattern+`)"\} \d`).FindAllString(page, -1)), named
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address, _ := l.Addr().(*net.TCPAddr)
	return address.Port
}

// scrape gives a page of metrics.
func scrape(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // the node ends with the test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
