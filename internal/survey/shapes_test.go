package survey_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/audit"
)

// Shapes of public definitions, each with what an audit says of it, notes left out, and of the
// failures of its work queues. What else speaks of them agrees.
func TestTypicalShapes(t *testing.T) {
	t.Parallel()
	const plain = `"durable": true, "auto_delete": false`
	for name, tc := range map[string]struct {
		definitions string
		want        []string
	}{
		"a dead-letter queue for each queue, by key": {
			`{"exchanges": [{"name": "pay", "type": "direct", ` + plain + `},
  {"name": "pay.dlx", "type": "direct", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "pay.dlx", "x-dead-letter-routing-key": "in.dlq"}},
  {"name": "in.dlq", ` + plain + `, "arguments": {}}],
 "bindings": [
  {"source": "pay", "destination": "in", "destination_type": "queue", "routing_key": "in"},
  {"source": "pay.dlx", "destination": "in.dlq", "destination_type": "queue", "routing_key": "in.dlq"}]}`,
			[]string{"in: kept"},
		},
		"one dead-letter queue that takes all keys": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `}, {"name": "dlx", "type": "topic", ` + plain + `}],
 "queues": [
  {"name": "alerts", ` + plain + `, "arguments": {"x-dead-letter-exchange": "dlx", "x-message-ttl": 86400000}},
  {"name": "all", ` + plain + `, "arguments": {"x-dead-letter-exchange": "dlx", "x-message-ttl": 86400000}},
  {"name": "dlq", ` + plain + `, "arguments": {}}],
 "bindings": [
  {"source": "events", "destination": "alerts", "destination_type": "queue", "routing_key": "alert.#"},
  {"source": "events", "destination": "all", "destination_type": "queue", "routing_key": "#"},
  {"source": "dlx", "destination": "dlq", "destination_type": "queue", "routing_key": "#"}]}`,
			[]string{"alerts: kept", "all: kept"},
		},
		"a policy for all queues that expires and limits": {
			`{"queues": [
  {"name": "films", ` + plain + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "films.failed"}},
  {"name": "films.failed", ` + plain + `, "arguments": {}}],
 "policies": [{"name": "all", "pattern": ".*", "apply-to": "queues", "priority": 0, "definition": {"message-ttl": 3600000, "max-length": 10000}}]}`,
			[]string{
				"error dead-letter-queue-expires films.failed", "warning dead-letter-queue-drops films.failed", "films: lost",
			},
		},
		"limits and a TTL, and no dead-lettering": {
			`{"queues": [{"name": "ticks", ` + plain + `, "arguments": {"x-message-ttl": 1800000, "x-max-length": 20000}}]}`,
			[]string{"warning expires-into-nothing ticks", "warning overflows-into-nothing ticks", "ticks: lost"},
		},
		"a dead-letter queue with a week of retention and a limit": {
			`{"queues": [
  {"name": "pdf", ` + plain + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pdf.dlq"}},
  {"name": "pdf.dlq", ` + plain + `, "arguments": {"x-message-ttl": 604800000, "x-max-length": 10000}}]}`,
			[]string{"warning dead-letter-queue-drops pdf.dlq", "warning dead-letter-queue-expires pdf.dlq", "pdf: kept"},
		},
		"a dead-letter queue of 9,999 messages": {
			`{"queues": [
  {"name": "pdf", ` + plain + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pdf.dlq"}},
  {"name": "pdf.dlq", ` + plain + `, "arguments": {"x-max-length": 9999}}]}`,
			[]string{"error dead-letter-queue-drops pdf.dlq", "pdf: lost"},
		},
		"a dead-letter queue that a restart deletes": {
			`{"queues": [
  {"name": "pdf", ` + plain + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pdf.dlq"}},
  {"name": "pdf.dlq", "durable": false, "auto_delete": false, "arguments": {}}]}`,
			[]string{"warning dead-letter-queue-not-durable pdf.dlq", "pdf: kept"},
		},
		"retries that the service publishes to queues with a TTL": {
			`{"exchanges": [{"name": "events", "type": "direct", ` + plain + `},
  {"name": "retry", "type": "headers", ` + plain + `},
  {"name": "back", "type": "direct", ` + plain + `}],
 "queues": [
  {"name": "mail", ` + plain + `, "arguments": {}},
  {"name": "mail.1m", ` + plain + `, "arguments": {"x-message-ttl": 60000, "x-dead-letter-exchange": "back"}},
  {"name": "mail.2m", ` + plain + `, "arguments": {"x-message-ttl": 120000, "x-dead-letter-exchange": "back"}}],
 "bindings": [
  {"source": "events", "destination": "mail", "destination_type": "queue", "routing_key": "mail.send"},
  {"source": "back", "destination": "mail", "destination_type": "queue", "routing_key": "mail.send"},
  {"source": "retry", "destination": "mail.1m", "destination_type": "queue", "routing_key": "", "arguments": {"delay": "1"}},
  {"source": "retry", "destination": "mail.2m", "destination_type": "queue", "routing_key": "", "arguments": {"delay": "2"}}]}`,
			[]string{"mail: lost"},
		},
		"delays that the publisher chooses by the words of the key": {
			`{"rabbitmq_version": "4.3.6",
 "exchanges": [{"name": "level-1", "type": "topic", ` + plain + `}, {"name": "level-0", "type": "topic", ` + plain + `},
  {"name": "delivery", "type": "topic", ` + plain + `}, {"name": "sales", "type": "fanout", ` + plain + `}],
 "queues": [
  {"name": "level-1", ` + plain + `, "arguments": {"x-queue-type": "quorum", "x-message-ttl": 2000,
    "x-dead-letter-exchange": "level-0", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}},
  {"name": "level-0", ` + plain + `, "arguments": {"x-queue-type": "quorum", "x-message-ttl": 1000,
    "x-dead-letter-exchange": "delivery", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}},
  {"name": "sales", ` + plain + `, "arguments": {"x-queue-type": "quorum"}}],
 "bindings": [
  {"source": "level-1", "destination": "level-1", "destination_type": "queue", "routing_key": "1.#"},
  {"source": "level-1", "destination": "level-0", "destination_type": "exchange", "routing_key": "0.#"},
  {"source": "level-0", "destination": "level-0", "destination_type": "queue", "routing_key": "*.1.#"},
  {"source": "level-0", "destination": "delivery", "destination_type": "exchange", "routing_key": "*.0.#"},
  {"source": "delivery", "destination": "sales", "destination_type": "exchange", "routing_key": "#.sales"},
  {"source": "sales", "destination": "sales", "destination_type": "queue", "routing_key": ""}]}`,
			[]string{"error delivery-limit-into-nothing sales", "sales: lost"},
		},
		"a retry queue whose dead letters return with some of the keys": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `}, {"name": "wait", "type": "topic", ` + plain + `},
  {"name": "back", "type": "topic", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "wait"}},
  {"name": "in.wait", ` + plain + `, "arguments": {"x-message-ttl": 5000, "x-dead-letter-exchange": "back"}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "order.#"},
  {"source": "wait", "destination": "in.wait", "destination_type": "queue", "routing_key": "#"},
  {"source": "back", "destination": "in", "destination_type": "queue", "routing_key": "order.placed"}]}`,
			[]string{"warning dead-letter-partly-unrouted in.wait", "warning retries-forever in", "in: lost"},
		},
		"a # on a direct exchange": {
			`{"exchanges": [{"name": "dlx", "type": "direct", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "dlx"}}, {"name": "dlq", ` + plain + `, "arguments": {}}],
 "bindings": [{"source": "dlx", "destination": "dlq", "destination_type": "queue", "routing_key": "#"}]}`,
			[]string{"error dead-letter-unrouted in", "error wildcard-on-direct (binding)", "in: lost"},
		},
		"a retry loop that ends in a parking queue by the consumer": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "in.wait"}},
  {"name": "in.wait", ` + plain + `, "arguments": {"x-message-ttl": 5000, "x-dead-letter-exchange": "events"}},
  {"name": "in.parking", ` + plain + `, "arguments": {}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "order.placed"},
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "in.wait"}]}`,
			[]string{"warning retries-forever in", "in: endless"},
		},
		"a retry loop that loses the key": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "in.wait"}},
  {"name": "in.wait", ` + plain + `, "arguments": {"x-message-ttl": 5000, "x-dead-letter-exchange": "events"}}],
 "bindings": [{"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "order.placed"}]}`,
			[]string{"error dead-letter-unrouted in.wait", "in: lost"},
		},
		"retries that only the name of the queue comes back from": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `},
  {"name": "dlx", "type": "direct", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-message-ttl": 60000, "x-dead-letter-exchange": "dlx"}},
  {"name": "in.retry", ` + plain + `, "arguments": {"x-message-ttl": 5000, "x-dead-letter-exchange": ""}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "order.placed"},
  {"source": "dlx", "destination": "in.retry", "destination_type": "queue", "routing_key": "in"}]}`,
			[]string{"error dead-letter-partly-unrouted in", "in: lost"},
		},
		"the same, lost behind the retry queue": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `}, {"name": "dlx", "type": "fanout", ` + plain + `},
  {"name": "back", "type": "direct", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-message-ttl": 60000, "x-dead-letter-exchange": "dlx"}},
  {"name": "in.retry", ` + plain + `, "arguments": {"x-message-ttl": 5000, "x-dead-letter-exchange": "back"}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "order.placed"},
  {"source": "dlx", "destination": "in.retry", "destination_type": "queue", "routing_key": ""},
  {"source": "back", "destination": "in", "destination_type": "queue", "routing_key": "in"}]}`,
			[]string{"error dead-letter-partly-unrouted in.retry", "in: lost"},
		},
		"a key that a binding takes from the alternate exchange, and loses": {
			`{"exchanges": [{"name": "events", "type": "fanout", ` + plain + `},
  {"name": "rest", "type": "fanout", ` + plain + `},
  {"name": "dlx", "type": "direct", ` + plain + `, "arguments": {"alternate-exchange": "rest"}},
  {"name": "inner", "type": "direct", ` + plain + `}],
 "queues": [{"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "dlx"}}, {"name": "dlq", ` + plain + `, "arguments": {}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": ""},
  {"source": "dlx", "destination": "inner", "destination_type": "exchange", "routing_key": "a"},
  {"source": "rest", "destination": "dlq", "destination_type": "queue", "routing_key": ""}]}`,
			[]string{"in: unknown"},
		},
		"a queue of all other messages that dead-letters into nothing": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `, "arguments": {"alternate-exchange": "rest"}},
  {"name": "rest", "type": "fanout", ` + plain + `}, {"name": "dlx", "type": "fanout", ` + plain + `}],
 "queues": [{"name": "others", ` + plain + `, "arguments": {"x-dead-letter-exchange": "dlx"}}],
 "bindings": [{"source": "rest", "destination": "others", "destination_type": "queue", "routing_key": ""}]}`,
			[]string{"error dead-letter-unrouted others", "others: lost"},
		},
		"a queue of unroutable messages that expire": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `, "arguments": {"alternate-exchange": "rest"}},
  {"name": "rest", "type": "fanout", ` + plain + `}],
 "queues": [{"name": "others", ` + plain + `, "arguments": {"x-message-ttl": 1000}}],
 "bindings": [{"source": "rest", "destination": "others", "destination_type": "queue", "routing_key": ""}]}`,
			[]string{"warning expires-into-nothing others"},
		},
		"a name of a queue is not a pattern": {
			`{"exchanges": [{"name": "events", "type": "topic", ` + plain + `}],
 "queues": [{"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": ""}}, {"name": "#", ` + plain + `, "arguments": {}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": "order.*"},
  {"source": "events", "destination": "#", "destination_type": "queue", "routing_key": "a"}]}`,
			[]string{"error dead-letter-queue-missing in", "#: lost", "in: lost"},
		},
		"a fanout exchange and keys that are not known": {
			`{"exchanges": [{"name": "events", "type": "fanout", ` + plain + `},
  {"name": "dlx", "type": "direct", ` + plain + `}],
 "queues": [
  {"name": "in", ` + plain + `, "arguments": {"x-dead-letter-exchange": "dlx"}}, {"name": "dlq", ` + plain + `, "arguments": {}}],
 "bindings": [
  {"source": "events", "destination": "in", "destination_type": "queue", "routing_key": ""},
  {"source": "dlx", "destination": "dlq", "destination_type": "queue", "routing_key": "in"}]}`,
			[]string{"in: unknown"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := read(t, "shape.json", []byte(tc.definitions))[0].State
			report := audit.Run(audit.Input{State: state})
			var got []string
			for _, f := range report.Findings {
				object := f.Object.Name
				if f.Object.Kind == "binding" {
					object = "(binding)"
				}
				if f.Severity != audit.Note {
					got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Rule, object))
				}
			}
			for _, queue := range slices.Sorted(maps.Keys(report.Fates)) {
				got = append(got, fmt.Sprintf("%s: %s", queue, report.Fates[queue]))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			agree(t, state)
		})
	}
}
