package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// giveBack binds a queue as a run of the desk does that gives messages back to it, and publishes
// such messages until stop, if publishes. stop deletes the exchange, and returns what was
// confirmed.
func (s *stage) giveBack(t *testing.T, queue string, publishes bool) (stop func() map[string]bool) {
	t.Helper()
	ch, exchange := s.target.Confirming(t), topology.HoldName("shop", "r1")+".to.0"
	mark := amqp091.Table{topology.ArgManagedBy: topology.DeskMark("shop")}
	own := amqp091.Table{topology.ArgManagedBy: topology.DeskMark("shop"), "alternate-exchange": exchange}
	brokertest.DeclareExchange(t, ch, exchange, "fanout", own)
	brokertest.Bind(t, ch, queue, "", exchange, mark)
	ctx, cancel := context.WithCancel(t.Context())
	returned := ch.NotifyReturn(make(chan amqp091.Return, 10_000))
	confirmed := map[string]bool{}
	var publishing sync.WaitGroup
	publishing.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 0; publishes && ctx.Err() == nil; n++ {
			id := fmt.Sprint("back-", n)
			c, err := ch.PublishWithDeferredConfirm(exchange, "key", true, false,
				amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent})
			if err != nil || !c.Wait() {
				t.Errorf("%s is not confirmed: %v", id, err)
				return
			}
			confirmed[id] = true
			<-tick.C
		}
	})
	t.Cleanup(cancel)
	return func() map[string]bool {
		cancel()
		publishing.Wait()
		for len(returned) > 0 {
			delete(confirmed, (<-returned).MessageId) // the hold keeps it
		}
		if err := ch.ExchangeDelete(exchange, false, false); err != nil {
			t.Error(err)
		}
		return confirmed
	}
}

// While a run of the desk gives messages back to a queue, the queue is not replaced: a run of
// migrate refuses, or waits if that begins later, and names the run of the desk. None is lost.
func TestReplaceWhileTheDeskGivesBack(t *testing.T) {
	t.Parallel()
	for _, types := range brokertest.Share([][2]string{{"quorum", "classic"}, {"classic", "quorum"}}) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], nil)
			defer s.consumeThrough(t, "new")()
			says := func(err error, is error) {
				t.Helper()
				if !errors.Is(err, is) || !strings.Contains(err.Error(), "dlxctl desk run return r1") {
					t.Errorf("it returns %v", err)
				}
			}
			var gave func() map[string]bool
			r, told := s.during(t, "replace: proving", 1, func() { gave = s.giveBack(t, "new", true) })
			r.Wait = 3 * time.Second
			says(r.Run(t.Context()), migrate.ErrWaiting)
			confirmed := gave()
			if lost, doubled := s.account(t, confirmed); lost > 0 || doubled > 0 {
				t.Errorf("%d of %d messages were lost, %d doubled:\n%s", lost, len(confirmed), doubled, told)
			}
			stopped := s.giveBack(t, "new", false)
			says(s.replacer(t).Run(t.Context()), migrate.ErrRefused)
			s.nothingLeft(t)
			stopped()
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.replaced(t)
		})
	}
}

// Nor is a legacy queue deleted then: what comes is moved to its successor.
func TestMigrateWhileTheDeskGivesBack(t *testing.T) {
	t.Parallel()
	for _, typ := range brokertest.Share([]string{"quorum", "classic"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			gave := s.giveBack(t, "old", false)
			r := s.runner(t)
			r.Wait = 3 * time.Second
			if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) ||
				!strings.Contains(err.Error(), "dlxctl desk run return r1") || !s.exists(t, "old") {
				t.Errorf("it returns %v", err)
			}
			gave()
			if err := s.runner(t).Run(t.Context()); err != nil || s.exists(t, "old") {
				t.Errorf("it returns %v", err)
			}
		})
	}
}
