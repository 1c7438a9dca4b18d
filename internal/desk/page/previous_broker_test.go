package page_test

import (
	"net/http"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// The page opens each queue that its overview lists, also a dead-letter queue of a previous file
// that still has messages, and also by a link. It parks messages of that too.
func TestThePageOpensAPreviousDeadLetterQueue(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	before := serveWith(t, &engine{}, func(c *page.Config) { c.For(realDesk(t, target)) }).signIn(t)
	brokertest.PublishConfirmed(t, target.Confirming(t), "", "billing.dead",
		amqp091.Publishing{MessageId: "1", DeliveryMode: amqp091.Persistent})
	listed := func(s *server) (row map[string]any) {
		for _, q := range s.get(t, http.StatusOK, "/api/queues")["queues"].([]any) {
			if q := q.(map[string]any); q["name"] == "billing.dead" && q["messages"] == 1.0 {
				row = q
			}
		}
		return row
	}
	brokertest.Eventually(t, "the message", func() bool { return listed(before) != nil })

	file := strings.Replace(brokerFile, "backoff: none", "backoff: none, dead: shared", 1)
	s := serveWith(t, &engine{}, func(c *page.Config) { c.For(realDeskOf(t, target, file)) }, "park").signIn(t)
	got := s.post(t, http.StatusOK, "/api/look", map[string]any{"queue": "billing.dead"}) // by a link
	if got["matched"] != 1.0 || got["role"] != "dead-letter" {
		t.Errorf("the look found %v", got)
	}
	if row := listed(s); row["role"] != "dead-letter" {
		t.Errorf("the overview lists %v", row)
	}
	proposed := s.post(t, http.StatusOK, "/api/propose", map[string]any{"queue": "billing.dead", "action": "park"})
	if proposed["chosen"] != 1.0 {
		t.Errorf("it would park: %v", proposed)
	}
	s.post(t, http.StatusNotFound, "/api/look", map[string]any{"queue": "billing"})
}
