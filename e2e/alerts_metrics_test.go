package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A real node with the plugin rabbitmq_prometheus exports each RabbitMQ series that the alerts and
// the dashboard query, for every queue that they name. Dead letters that are looked at count.
func TestAlertsUseMetricsThatRabbitMQExports(t *testing.T) {
	brokertest.OnNewestLine(t)
	needsLine(t, "4.3") // for engine: native
	t.Parallel()
	address := brokertest.FreePort(t)
	_, port, _ := strings.Cut(address, ":")
	node := brokertest.NodeWith(t, "--set", "prometheus.tcp.ip = 127.0.0.1", "--set", "prometheus.tcp.port = "+port,
		"--env", "RABBITMQ_ENABLED_PLUGINS=rabbitmq_management,rabbitmq_prometheus")
	target := node.Target()
	putQueue(t, target, "invoices", map[string]any{"x-queue-type": "classic"}) // the legacy queue
	previous := []string{"reports.dead", "mail.dead"}                          // of the time before they shared one
	desk := []string{topology.HoldName("shop", "1"), topology.LogName("shop"), topology.ParkedName("shop")}
	for _, name := range append(desk, previous...) {
		putQueue(t, target, name, map[string]any{"x-queue-type": "quorum"})
	}
	start(t, target, "apply", "--yes", "-f", writeTopology(t, alerted)).exits(t, 0)

	top, selectors := compiled(t, alerted), map[string]bool{}
	for _, w := range top.WorkQueues { // deliveries are counted from the first one on
		brokertest.PublishConfirmed(t, target.Confirming(t), "", w.Name, amqp091.Publishing{})
		if err := brokertest.Take(t, target.Channel(t), w.Name).Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range queries(top) {
		for _, s := range regexp.MustCompile(`rabbitmq_\w+\{[^}]*\}`).FindAllString(q, -1) {
			selectors[s] = true
		}
	}
	if len(selectors) < 10 {
		t.Fatalf("only %d selectors: %v", len(selectors), selectors)
	}
	var page string
	brokertest.Eventually(t, "a series for every queue", func() bool {
		page = get(t, address, "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=queue_delivery_metrics")
		for s := range selectors {
			if found, want := series(t, page, s); found != want {
				return false
			}
		}
		return true
	}, &page)

	if !regexp.MustCompile(`(?m)^rabbitmq_identity_info\{.*rabbitmq_cluster="[^"]+`).MatchString(page) {
		t.Error("a node does not say to which cluster it belongs")
	}

	const n = 5
	queues := []string{"billing.dead", "shop.unroutable"}
	for _, queue := range queues {
		for range n {
			brokertest.PublishConfirmed(t, target.Confirming(t), "", queue, amqp091.Publishing{})
		}
		if _, err := target.Channel(t).Consume(queue, "", false, false, false, false, nil); err != nil {
			t.Fatal(err) // it holds all of them
		}
	}
	brokertest.Eventually(t, "messages that are held", func() bool {
		page = get(t, address, "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=queue_delivery_metrics")
		for _, queue := range queues {
			all := fmt.Sprintf("rabbitmq_detailed_queue_messages{vhost=\"/\",queue=%q} %d\n", queue, n)
			ready := fmt.Sprintf("rabbitmq_detailed_queue_messages_ready{vhost=\"/\",queue=%q} 0\n", queue)
			if !strings.Contains(page, all) || !strings.Contains(page, ready) {
				return false
			}
		}
		return true
	}, &page)
}

// series returns how many series of a page of metrics a selector matches, and how many queues it
// names.
func series(t *testing.T, page, selector string) (found, named int) {
	t.Helper()
	parts := regexp.MustCompile(`^(\w+)\{vhost="/",queue(=~?)("[^"]*")((?:,queue!="[^"]*")*)\}$`).FindStringSubmatch(selector)
	if parts == nil {
		t.Fatalf("%s does not select a queue", selector)
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
	exported := regexp.MustCompile(`(?m)^` + parts[1] + `\{vhost="/",queue="(?:` + pattern + `)"\} \d`)
	except := strings.Split(parts[4], ",queue!=")[1:]
	for _, line := range exported.FindAllString(page, -1) {
		if !slices.ContainsFunc(except, func(name string) bool { return strings.Contains(line, "queue="+name) }) {
			found++
		}
	}
	return found, named
}
