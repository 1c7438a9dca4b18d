package desk_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// What dead letters died of is counted by one look, of all and of the new ones, and the look gives
// all of them back. A queue with a consumer is not looked at.
func TestWhyDeadLettersDied(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	for i := range 5 {
		m := deadLetter("billing", "order.placed", fmt.Sprint(i), i)
		kind, at := "PaymentTimeout", time.Now()
		if i == 0 {
			kind, at = "bad row 7", at.Add(-2*time.Hour)
		}
		m.Headers["retry-error"], m.Headers["retry-last-failed-at"] = kind, at.UTC().Format(topology.HeaderTime)
		brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", m)
	}
	s.awaitReady(t, "billing.dead", 5)
	since := time.Now().Add(-time.Hour)
	names := func(groups []deadletter.Group) string {
		var out []string
		for _, g := range groups {
			out = append(out, fmt.Sprint(g.Value, " ", g.Count))
		}
		return strings.Join(out, ", ")
	}
	for most, want := range map[int]string{
		0: "5 of 5, 4 new by error: PaymentTimeout 4, bad row <n> 1; new: PaymentTimeout 4",
		2: "2 of 5, 1 new by error: PaymentTimeout 1, bad row <n> 1; new: PaymentTimeout 1",
	} {
		w, err := s.desk.Why(t.Context(), "billing.dead", desk.LookOptions{Messages: most}, since)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d of %d, %d new by %s: %s; new: %s", w.Looked.Looked, w.Looked.Messages, w.New, w.By,
			names(w.All), names(w.Recent)); got != want || w.Refused != "" {
			t.Errorf("a look at %d says %s, %s; want %s", most, got, w.Refused, want)
		}
		s.awaitReady(t, "billing.dead", 5)
	}
	if _, err := s.target.Channel(t).Consume("billing.dead", "", false, false, false, false, amqp091.Table{}); err != nil {
		t.Fatal(err)
	}
	w, err := s.desk.Why(t.Context(), "billing.dead", desk.LookOptions{}, since)
	if err != nil || w.Looked.Looked > 0 || !strings.Contains(w.Refused, "consumer") {
		t.Errorf("with a consumer: %+v, %v", w, err)
	}
}
