package desk_test

import (
	"errors"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// A dead letter is compared with the first message of its work queue that has its routing key, as
// both were published. A look finds it, which keeps it in its place.
func TestDiffWithALiveMessage(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", deadLetter("billing", "order.placed", "dead", 1),
		amqp091.Publishing{MessageId: "no headers"})
	s.awaitReady(t, "billing.dead", 2)
	for _, m := range []struct{ key, id, body string }{
		{"order.other", "live-1", `{"order": 1}`},
		{"order.placed", "live-2", `{"order": 2}`},
		{"order.placed", "live-3", `{"order": 3}`},
	} {
		brokertest.PublishConfirmed(t, s.ch, "events", m.key, amqp091.Publishing{
			MessageId: m.id, ContentType: "application/json", Type: "order", Body: []byte(m.body),
			Headers: amqp091.Table{"mine": int64(1)},
		})
	}
	s.awaitReady(t, "billing", 3)
	var dead []deadletter.Message
	if _, err := s.desk.Look(t.Context(), "billing.dead", desk.LookOptions{}, func(m deadletter.Message) error {
		m.Delivery.Body = []byte(string(m.Delivery.Body))
		dead = append(dead, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	live, err := s.desk.FindLive(t.Context(), dead[0], desk.LookOptions{})
	if err != nil || live.MessageID != "live-2" || live.Queue != "billing" {
		t.Fatalf("%+v, %v", live, err)
	}
	var out strings.Builder
	if err := deadletter.Compare(s.desk.Reader.View(dead[0]), live, true).Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		" in billing.dead\n+ ", " in billing\n", "\n- message-id  dead\n+ message-id  live-2\n",
		"\n-  \"order\": 1\n+  \"order\": 2\n",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("it does not show %q:\n%s", part, &out)
		}
	}
	if strings.Contains(out.String(), "retry-") || strings.Contains(out.String(), "mine") {
		t.Errorf("it shows headers of the failure, or what is the same:\n%s", &out)
	}
	if got := identities(s.peeked(t, "billing")); len(got) != 3 || !strings.HasPrefix(got[0], "live-1 ") {
		t.Errorf("billing has %q", got)
	}

	_, err = s.desk.FindLive(t.Context(), dead[1], desk.LookOptions{})
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "does not tell in which queue it failed") {
		t.Errorf("of a message without headers: %v", err)
	}
	dead[0].Delivery.Headers["retry-routing-key"] = "order.never"
	_, err = s.desk.FindLive(t.Context(), dead[0], desk.LookOptions{})
	if err == nil || !strings.Contains(err.Error(), "no message has the routing key order.never among the 3 that were looked at in billing") {
		t.Errorf("of a key that no message has: %v", err)
	}
	rules, err := redact.New(redact.Rules{Paths: []string{"headers.retry-routing-key"}})
	if err != nil {
		t.Fatal(err)
	}
	s.desk.Reader.Redactor = func(string) *redact.Redactor { return rules }
	_, err = s.desk.FindLive(t.Context(), dead[0], desk.LookOptions{})
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "the routing key of the message is masked") {
		t.Errorf("with a masked key: %v", err)
	}
}
