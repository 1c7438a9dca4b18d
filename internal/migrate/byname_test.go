package migrate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// A publisher that sends to the name of the legacy queue less often than --idle is known by one
// message: whatever else came, whichever run has moved it, and after an abort. The legacy queue is
// kept until the user consents or lets it forward. What the publisher sends then is not lost.
func TestPublisherByNameOnceInAWhile(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	unbound := "version: 1\nname: shop\ndefaults: {backoff: quick}\nbackoff: {quick: {tiers: [100ms]}}\n" +
		"queues: [{name: new, replaces: old}]\n"
	for name, tc := range map[string]struct {
		file   string
		key    string // of a publish through the default exchange
		cc     []any
		before func(*testing.T, *stage) // what has happened when the run begins
	}{
		"among others": {key: "old", before: func(t *testing.T, s *stage) { t.Helper(); s.send(t, "t", "order.placed", "bound", nil) }},
		"unbound":      {file: unbound, key: "old"},
		"by CC":        {key: "nowhere", cc: []any{"old"}},
		"drained before": {key: "old", before: func(t *testing.T, s *stage) {
			t.Helper()
			r := s.runner(t)
			r.Until = migrate.Drain
			if err := r.Run(t.Context()); err != nil || len(s.count(t, "new")) != 1 {
				t.Fatalf("the drain ends with %v", err)
			}
		}},
		"killed before the first move": {key: "old", before: func(t *testing.T, s *stage) {
			t.Helper()
			r := s.runner(t)
			r.Until = migrate.Cutover
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			ch := s.target.Channel(t)
			brokertest.Bind(t, ch, "new", "published-by-name", topology.SwitchExchangeName("shop", "old")+".new",
				amqp091.Table{"x-managed-by": "dlxctl/shop"})
			brokertest.Take(t, ch, "old") // only the mark is left of the message
			if err := ch.Ack(1, false); err != nil {
				t.Fatal(err)
			}
		}},
		"aborted before": {key: "old", before: func(t *testing.T, s *stage) {
			t.Helper()
			s.until(t, migrate.Drain)
			s.abort(t, s.runner(t))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			if tc.file != "" {
				s = newStageIn(t, s.target, tc.file, "", nil)
				ch := s.target.Channel(t)
				brokertest.Delete(t, ch, "old")
				brokertest.Declare(t, ch, "old", nil)
			}
			var headers amqp091.Table
			if tc.cc != nil {
				headers = amqp091.Table{"CC": tc.cc}
			}
			s.send(t, "", tc.key, "first", headers)
			if tc.before != nil {
				tc.before(t, s)
			}
			for range 2 { // the second run finds an empty queue
				err := s.cautious(t).Run(t.Context())
				if !errors.Is(err, migrate.ErrWaiting) ||
					!strings.Contains(fmt.Sprint(err), "--allow drops-routing=old; or run it with --forward") {
					t.Fatalf("it ends with %v", err)
				}
				if !s.exists(t, "old") {
					t.Fatal("the legacy queue is deleted")
				}
			}
			s.send(t, "", "old", "later", nil)
			if err := s.runner(t).Run(t.Context()); err != nil || s.exists(t, "old") {
				t.Fatalf("with consent, it ends with %v", err)
			}
			if got := s.count(t, "new"); got["later"] != 1 {
				t.Errorf("the successor has %v", got)
			}
			s.tidy(t)
		})
	}
}

// A publisher that was changed to send to the successor by its name is known by one message too: an
// abort keeps the successor until the user consents. Nothing that came before is lost.
func TestAbortKeepsASuccessorOfPublishersByName(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	r := s.runner(t)
	r.Until = migrate.Drain
	s.send(t, "", "old", "drained", nil) // it is not a message of a publisher that names the successor
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.send(t, "", "new", "by name", nil)
	for range 2 { // the second abort finds an empty queue
		err := s.cautious(t).Abort(t.Context(), s.without(t))
		if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(fmt.Sprint(err), "--allow drops-routing=new") {
			t.Fatalf("it ends with %v", err)
		}
		if !s.exists(t, "new") {
			t.Fatal("the successor is deleted")
		}
	}
	s.send(t, "", "new", "later", nil)
	s.abort(t, s.runner(t))
	if got := s.count(t, "old"); s.exists(t, "new") || got["drained"] != 1 || got["by name"] != 1 || got["later"] != 1 {
		t.Errorf("with consent, the successor exists: %t; the legacy queue has %v", s.exists(t, "new"), got)
	}
}

// One that publishers reach through exchanges only is deleted without consent.
func TestAbortNeedsNoConsentWithoutPublishersByName(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, "classic", nil)
	r := s.runner(t)
	r.Until = migrate.Drain
	s.send(t, "", "old", "drained", nil)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.send(t, "t", "order.placed", "bound", nil)
	s.abort(t, s.cautious(t))
	if got := s.count(t, "old"); s.exists(t, "new") || got["drained"] != 1 || got["bound"] != 1 {
		t.Errorf("the successor exists: %t; the legacy queue has %v", s.exists(t, "new"), got)
	}
}

// send publishes one message, which must have a queue.
func (s *stage) send(t *testing.T, exchange, key, id string, headers amqp091.Table) {
	t.Helper()
	c, err := s.target.Confirming(t).PublishWithDeferredConfirm(exchange, key, true, false,
		amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: headers})
	if err != nil || !c.Wait() {
		t.Fatalf("%s is not confirmed: %v", id, err)
	}
}
