package audit_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A dead letter stays in a retry queue without a TTL, whatever TTL its publisher gave it, and one
// with x-expires is deleted with its messages.
func TestRetryQueuesThatReturnNothing(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	const flags = `"durable": true, "auto_delete": false`
	definitions := func(arguments string) string {
		return `{"queues": [
  {"name": "billing", ` + flags + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}},
  {"name": "wait", ` + flags + `, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing"` +
			arguments + `}}],
 "exchanges": [{"name": "e", "type": "fanout", "internal": false, "arguments": {}, ` + flags + `}],
 "bindings": [{"source": "e", "destination": "billing", "destination_type": "queue", "routing_key": "", "arguments": {}}]}`
	}
	for rule, arguments := range map[string]string{
		"retry-queue-returns-nothing": "", "waiting-queue-deleted": `, "x-message-ttl": 60000, "x-expires": 500`,
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			target, ch, report := imported(t, definitions(arguments))
			if !finds(report, rule) {
				t.Fatalf("no finding: %v", summary(report))
			}
			brokertest.PublishConfirmed(t, ch, "", "billing", amqp091.Publishing{Expiration: "60000"})
			dies(t, ch, 0)
			if rule == "retry-queue-returns-nothing" {
				if d := brokertest.Take(t, ch, "wait"); d.Expiration != "" {
					t.Errorf("the dead letter has the TTL %s", d.Expiration)
				}
				return
			}
			brokertest.Eventually(t, "the retry queue to be deleted", func() bool {
				// To declare it passively would begin the time of x-expires anew.
				list := target.Call(t, http.MethodGet, "queues/"+url.PathEscape(target.VHost)+"?columns=name", nil)
				return !strings.Contains(string(list), `"wait"`)
			})
			if n := brokertest.Ready(t, ch, "billing"); n != 0 {
				t.Errorf("%d messages came back", n)
			}
		})
	}
}

// A publisher that declares a quorum queue with x-expires again and again does not keep it:
// RabbitMQ deletes it with the messages that wait there.
func TestDeclaringKeepsNoQuorumQueue(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	declare := func() int {
		q, err := ch.QueueDeclare("delay", true, false, false, false, amqp091.Table{
			topology.ArgQueueType: topology.Quorum, topology.ArgExpires: int32(2000), topology.ArgMessageTTL: int32(60000),
		})
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	confirming := target.Confirming(t)
	brokertest.Eventually(t, "a message to be there", func() bool {
		if declare() > 0 {
			return true
		}
		// On a busy machine the queue may go before the message comes: RabbitMQ refuses that one.
		if err := brokertest.Publish(t.Context(), confirming, "", "delay", amqp091.Publishing{}); err != nil {
			t.Log(err)
		}
		return false
	})
	brokertest.Eventually(t, "the queue to be deleted", func() bool { return declare() == 0 })
}

// Retry queues in a chain return messages, and delay queues of publishers that declare them may be
// deleted.
func TestWhereMessagesWait(t *testing.T) {
	t.Parallel()
	queue := func(name, arguments string) string {
		return `{"name": "` + name + `", "durable": true, "auto_delete": false, "arguments": {` + arguments + `}}`
	}
	to := func(key, more string) string {
		return `"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "` + key + `"` + more
	}
	const ttl = `, "x-message-ttl": 1000`
	for name, tc := range map[string]struct{ queues, want string }{
		"a chain returns": {
			queue("work", to("retry.1", "")) + ", " + queue("retry.1", to("retry.2", ttl)) + ", " +
				queue("retry.2", to("work", ttl)), "",
		},
		"a queue that is not named for retries may lead on": {
			queue("work", to("later", "")) + ", " + queue("later", to("other", ttl)) + ", " + queue("other", ""), "",
		},
		"a delay queue with a longer x-expires": {
			queue("delay", to("other", ttl+`, "x-expires": 11000`)) + ", " + queue("other", ""),
			"warning waiting-queue-deleted",
		},
		"a quorum queue for delays": {
			queue("delay", to("other", ttl+`, "x-expires": 11000, "x-queue-type": "quorum"`)) + ", " + queue("other", ""),
			"error waiting-queue-deleted",
		},
		"a delay queue with a shorter one": {
			queue("delay", to("other", ttl+`, "x-expires": 500`)) + ", " + queue("other", ""), "error waiting-queue-deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := read(t, "wait.json", `{"rabbitmq_version": "4.3.6", "queues": [`+tc.queues+`],
  "exchanges": [{"name": "e", "type": "fanout", "durable": true}],
  "bindings": [{"source": "e", "destination": "work", "destination_type": "queue", "routing_key": ""}]}`)
			in.Rules = []string{"waiting-queue-deleted", "retry-queue-returns-nothing"}
			got := ""
			for _, f := range audit.Run(in).Findings {
				got += string(f.Severity) + " " + f.Rule
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A # is bound only for a queue in which messages that no binding matches wait. Queues that share
// the alternate exchange by key, and one with consumers, would get messages that are not for them.
func TestWhichQueueGetsWhatNoBindingMatches(t *testing.T) {
	t.Parallel()
	const decide = "decide which queue should get what no binding matches"
	bind := func(source, to, kind, key string) string {
		return fmt.Sprintf(`{"source": %q, "destination": %q, "destination_type": %q, "routing_key": %q}`, source, to, kind, key)
	}
	unrouted, invoices := bind("rest", "unrouted", "queue", "order.*"), bind("rest", "invoices", "queue", "invoice.*")
	for name, tc := range map[string]struct{ bindings, want string }{
		"one that waits": {unrouted, "curl -fsS -X POST"},
		"two that work":  {invoices + ", " + bind("rest", "orders", "queue", "order.*"), decide},
		"one that works": {invoices, decide},
		"one of each":    {unrouted + ", " + invoices, decide},
		"another source": {unrouted + ", " + bind("other", "rest", "exchange", "#"), decide},
		"an exchange":    {bind("rest", "other", "exchange", "order.*"), decide},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := read(t, "rest.json", `{"exchanges": [
  {"name": "events", "type": "topic", "durable": true, "arguments": {"alternate-exchange": "rest"}},
  {"name": "rest", "type": "topic", "durable": true}, {"name": "other", "type": "topic", "durable": true}],
 "queues": [{"name": "unrouted", "durable": true}, {"name": "orders", "durable": true},
  {"name": "invoices", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}}],
 "bindings": [`+tc.bindings+`]}`)
			checkFixes(t, in)
			wantRemedy(t, in, "alternate-exchange-unrouted", "events", tc.want)
		})
	}
}
