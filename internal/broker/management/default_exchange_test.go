package management_test

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The number of messages that were published by a queue's name is as precise as the broker's
// counts: an upper bound, or exact where its rates are detailed.
func TestPublishedByName(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		target func(t *testing.T) brokertest.Target
		want   management.DefaultExchangeUse
	}{
		"basic": {
			func(t *testing.T) brokertest.Target { t.Helper(); return brokertest.VHost(t) },
			management.DefaultExchangeUse{Messages: 5},
		},
		"detailed": {func(t *testing.T) brokertest.Target {
			t.Helper()
			return brokertest.NodeWith(t, "--set", "management.rates_mode = detailed").VHost(t)
		}, management.DefaultExchangeUse{Messages: 5, Certain: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := tc.target(t)
			m := manage(t, target)
			ch := target.Channel(t)
			brokertest.Declare(t, ch, "q", nil)
			brokertest.Bind(t, ch, "q", "k", "amq.topic", nil)
			for range 5 {
				if err := ch.PublishWithContext(t.Context(), "", "q", true, false, amqp091.Publishing{}); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if err := ch.PublishWithContext(t.Context(), "amq.topic", "k", true, false, amqp091.Publishing{}); err != nil {
					t.Fatal(err)
				}
			}
			var got management.DefaultExchangeUse
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			// statistics are 5 seconds old
			known := false
			for end := time.Now().Add(2 * time.Minute); got != tc.want && time.Now().Before(end); <-tick.C {
				var err error
				if got, err = m.PublishedByName(t.Context(), "q"); err != nil {
					t.Fatal(err)
				}
				known, got.Rate = got.Rate != nil && *got.Rate >= 0, nil
			}
			if !known {
				t.Error("it does not know how many came in a second")
			}
			if got != tc.want {
				t.Errorf("it is %+v, not %+v", got, tc.want)
			}
		})
	}
	m := manage(t, brokertest.VHost(t))
	if got, err := m.PublishedByName(t.Context(), "nowhere"); err != nil || got != (management.DefaultExchangeUse{}) {
		t.Errorf("of a queue that is not there: %+v, %v", got, err)
	}
}
