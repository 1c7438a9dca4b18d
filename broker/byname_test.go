package broker_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// What came by a queue's name is told as far as the broker counts it: at most, or
// exactly where its rates are detailed.
func TestPublishedByName(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		target func(t *testing.T) brokertest.Target
		want   broker.ByName
	}{
		"basic": {func(t *testing.T) brokertest.Target { t.Helper(); return brokertest.VHost(t) }, broker.ByName{Messages: 5}},
		"detailed": {func(t *testing.T) brokertest.Target {
			t.Helper()
			return brokertest.NodeWith(t, "--set", "management.rates_mode = detailed").VHost(t)
		}, broker.ByName{Messages: 5, Certain: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := tc.target(t)
			m := manage(t, target)
			ch := target.Channel(t)
			if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind("q", "k", "amq.topic", false, nil); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if err := ch.PublishWithContext(t.Context(), "", "q", true, false, amqp.Publishing{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if err := ch.PublishWithContext(t.Context(), "amq.topic", "k", true, false, amqp.Publishing{}); err != nil {
					t.Fatal(err)
				}
			}
			var got broker.ByName
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(30 * time.Second); got != tc.want && time.Now().Before(end); <-tick.C { // statistics are 5 seconds old
				var err error
				if got, err = m.PublishedByName(t.Context(), "q"); err != nil {
					t.Fatal(err)
				}
			}
			if got != tc.want {
				t.Errorf("it is %+v, not %+v", got, tc.want)
			}
		})
	}
	m := manage(t, brokertest.VHost(t))
	if got, err := m.PublishedByName(t.Context(), "nowhere"); err != nil || got != (broker.ByName{}) {
		t.Errorf("of a queue that is not there: %+v, %v", got, err)
	}
}
