package processor_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
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
	log.held(t, "shop.slow.failed", "refused", 2)
	s.apply(t, s.topology)
	log.held(t, "shop.slow.failed", "refused", 0)
}

// So it is with one of a delay.
func TestWhatNothingTakesOfADelayIsSaid(t *testing.T) {
	t.Parallel()
	s := newStage(t, delayFileOf("1h"))
	log := s.runs(t)
	intake := s.topology.Delays[0].Intake
	log.held(t, intake, "refused", 0)
	brokertest.Delete(t, s.ch, "shop.unroutable")
	s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: "bad", Headers: amqp091.Table{"x-delay": "soon"}})
	log.held(t, intake, "refused", 1)
	s.apply(t, s.topology)
	log.held(t, intake, "refused", 0)
	s.bury(t, "shop.unroutable")
}

// With UntilEmpty the processor does not wait until a message can be moved: an error names what is
// missing, and the message stays where it is. One that was taken is counted as left.
func TestUntilEmptyDoesNotWait(t *testing.T) {
	t.Parallel()
	inDelay := amqp091.Publishing{MessageId: "bad", Headers: amqp091.Table{"x-delay": "soon"}}
	for name, tc := range map[string]struct {
		file, exchange string // where the message is published
		message        amqp091.Publishing
		remove         func(*stage) error
		right          string // to write, of the user; empty: all
		want           error
		says           string
		left           int64 // messages that were consumed, and are in their queue again
	}{
		"no exchange": {
			remove: func(s *stage) error { return s.ch.ExchangeDelete("shop.unroutable", false, false) },
			want:   broker.ErrNotFound, says: "exchange shop.unroutable; 'dlxctl apply' with the same files",
		},
		"no right": {
			right: `^shop\.slow\.dlx$`,
			want:  broker.ErrForbidden, says: "may not publish to exchange shop.unroutable; 'dlxctl rights' prints", left: 1,
		},
		"no queue": {
			remove: func(s *stage) error { _, err := s.ch.QueueDelete("shop.unroutable", false, false, false); return err },
			want:   relay.ErrHeld, says: "the unroutable queue shop.unroutable does not accept a message", left: 1,
		},
		"a delay, no exchange": {
			file: delayFileOf("1h"), exchange: "shop.later",
			remove: func(s *stage) error { return s.ch.ExchangeDelete("events", false, false) },
			want:   broker.ErrNotFound, says: "exchange events; 'dlxctl apply' with the same files",
		},
		"a delay, no queue": {
			file: delayFileOf("1h"), exchange: "shop.later", message: inDelay,
			remove: func(s *stage) error { _, err := s.ch.QueueDelete("shop.unroutable", false, false, false); return err },
			want:   relay.ErrHeld, says: "the unroutable queue shop.unroutable does not accept a message", left: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, cmp.Or(tc.file, retryInAnHour))
			p := s.processor(t)
			p.UntilEmpty, p.Monitor = true, monitor.New("")
			listen(t, p)
			if tc.right != "" {
				p.Endpoint = s.endpoint(t, s.target.User(t, "", "^$", tc.right, ".*"))
			}
			if tc.remove != nil {
				if err := tc.remove(s); err != nil {
					t.Fatal(err)
				}
			}
			s.publish(t, cmp.Or(tc.exchange, "shop.slow.failed"), "nowhere", tc.message)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := p.Run(ctx)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it ends with %v", err)
			}
			t.Log(err)
			if left := p.Monitor.Totals().Unsettled; left != tc.left {
				t.Errorf("it counts %d messages that it left unsettled, not %d", left, tc.left)
			}
			queue := "shop.slow.failed"
			if tc.file != "" {
				queue = s.topology.Delays[0].Intake
			}
			brokertest.Eventually(t, "the message to be in its queue", func() bool { return s.ready(t, queue) == 1 })
		})
	}
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

// A limit of connections does not end a processor that starts, as another one may end: it waits,
// and says what the broker says.
func TestALimitOfConnectionsAtTheStart(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	limit := "vhost-limits/" + url.PathEscape(s.target.VHost) + "/max-connections"
	s.target.Call(t, http.MethodPut, limit, map[string]int{"value": 0})
	log := s.runs(t)
	log.says(t, "reconnecting")
	log.says(t, "connection limit (0) is reached; raise the limit")
	s.target.Call(t, http.MethodDelete, limit, nil)
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
}
