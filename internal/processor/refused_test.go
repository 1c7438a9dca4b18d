package processor_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// A message that even the unroutable queue does not take waits, unacknowledged, until the
// queues are there again. The log says so, and the metrics.
func TestWhatNothingTakesIsSaid(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	log := s.runs(t)
	s.deleteTargets(t)
	s.publish(t, "shop.slow.failed", "@gone", amqp091.Publishing{MessageId: "nowhere"})
	s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: "refused"})
	for _, id := range []string{"nowhere", "refused"} {
		log.says(t, "level=ERROR msg=\"unroutable queue does not accept the message, which waits; 'dlxctl plan' shows what is missing\" queue="+
			map[string]string{"nowhere": "gone", "refused": "work"}[id]+" message_id="+id)
	}
	log.held(t, "refused", 2)
	s.apply(t, s.topology)
	log.held(t, "refused", 0)
}

// What the broker refuses at the first connection, a person must mend: to try
// again would hide it.
func TestRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	user := s.target.User(t, "", ".*", ".*", ".*")
	wrong, err := url.Parse(user.URL)
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword(user.Username, "wrong")
	for name, tc := range map[string]struct {
		config broker.Config
		want   error
	}{
		"password":     {broker.Config{URL: wrong.String()}, broker.ErrUnauthorized},
		"virtual host": {broker.Config{URL: s.target.URL, VHost: "nowhere"}, broker.ErrNoVHost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.processor(t)
			var err error
			if p.Endpoint, err = tc.config.Resolve(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := p.Run(ctx); !errors.Is(err, tc.want) {
				t.Errorf("it ended with %v, want %v", err, tc.want)
			}
		})
	}
}
