package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

const (
	messages = 10
	fails    = "m-04" // each time, and the service says why
	recovers = "m-07" // is rejected twice, then succeeds
	atOnce   = "m-09" // dead at once: no retry would help

	topologyName = "demo"
	workQueue    = "billing"
	deadQueue    = "billing.dead"
)

// service is the team's own program. It acknowledges the messages that it handled. Those that it
// could not handle it rejects, without requeue, or says why, as docs/consumers.md asks.
type service struct {
	d     demo
	out   *amqp091.Channel // with confirms
	fixed bool             // no message fails any more
	start time.Time
	last  map[string]time.Time // when the service saw a message last, by message-id
}

// journey publishes the messages, consumes them as a service would, and returns when
// each message is acknowledged or in the dead-letter queue.
func (d demo) journey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := d.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	work, dead, err := subscribe(conn)
	if err != nil {
		return err
	}
	out, err := confirming(conn)
	if err != nil {
		return err
	}
	s := service{d: d, out: out, start: time.Now(), last: map[string]time.Time{}}
	if err := publish(ctx, out); err != nil {
		return err
	}
	for open := messages; open > 0; {
		select {
		case m, ok := <-work:
			if !ok {
				return errors.New("the broker closed the consumer")
			}
			done, err := s.handle(ctx, m)
			if err != nil {
				return err
			}
			if done {
				open--
			}
		case m, ok := <-dead:
			if !ok {
				return errors.New("the broker closed the consumer")
			}
			s.buried(m)
			open--
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages did not arrive: %w", open, messages, ctx.Err())
		}
	}
	return nil
}

// replay sends the dead letter back with dlxctl desk, while the repaired service consumes.
func (d demo) replay(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := d.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	work, err := ch.Consume(workQueue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var seen strings.Builder // shown behind the output of the command
	s := service{d: d, fixed: true, start: time.Now(), last: map[string]time.Time{}}
	s.d.out = &seen
	handled := make(chan error, 1)
	go func() {
		m, ok := <-work
		if !ok {
			handled <- errors.New("the broker closed the consumer")
			return
		}
		_, err := s.handle(ctx, m)
		handled <- err
	}()
	if err := d.command(ctx, "desk", "replay", "@"+workQueue, "--where", `errorType == "PaymentTimeout"`, "--yes",
		"--expect", "1", "--settle", "1s"); err != nil {
		return err
	}
	select {
	case err := <-handled:
		fmt.Fprint(d.out, seen.String())
		return err
	case <-ctx.Done():
		return fmt.Errorf("the replayed message did not arrive: %w", ctx.Err())
	}
}

// dial connects to the virtual host of the demo.
func (d demo) dial() (*amqp091.Connection, error) {
	conn, err := amqp091.Dial(d.url)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// subscribe consumes from the work queue and from the dead-letter queue. Dead letters
// stay in their queue, because this program never acknowledges them.
func subscribe(conn *amqp091.Connection) (work, dead <-chan amqp091.Delivery, err error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, nil, err
	}
	if work, err = ch.Consume(workQueue, "", false, false, false, false, nil); err != nil {
		return nil, nil, err
	}
	if dead, err = ch.Consume(deadQueue, "", false, false, false, false, nil); err != nil {
		return nil, nil, err
	}
	return work, dead, nil
}

// confirming returns a channel on which the broker confirms what is published.
func confirming(conn *amqp091.Connection) (*amqp091.Channel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	return ch, ch.Confirm(false)
}

// confirmed publishes a message and waits for the confirm.
func confirmed(ctx context.Context, ch *amqp091.Channel, exchange, key string, m amqp091.Publishing) error {
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, m)
	if err != nil {
		return err
	}
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		return fmt.Errorf("message %s was not confirmed: %w", m.MessageId, err)
	}
	return nil
}

func publish(ctx context.Context, ch *amqp091.Channel) error {
	keys := []string{"order.placed", "order.paid", "order.shipped"}
	for i := 1; i <= messages; i++ {
		key := keys[i%len(keys)]
		if err := confirmed(ctx, ch, "shop", key, amqp091.Publishing{
			MessageId: fmt.Sprintf("m-%02d", i), DeliveryMode: amqp091.Persistent,
			ContentType: "application/json", Body: fmt.Appendf(nil, `{"order": %d}`, i),
		}); err != nil {
			return err
		}
	}
	return nil
}

// handle does the service's job for a message and prints the outcome. It reports whether
// the message is acknowledged.
func (s *service) handle(ctx context.Context, m amqp091.Delivery) (done bool, err error) {
	retries, _ := m.Headers["count"].(int32)
	waited := ""
	if since, ok := s.last[m.MessageId]; ok {
		waited = fmt.Sprintf(", waited %.1fs in tier %s", time.Since(since).Seconds(), tier(m))
	}
	s.last[m.MessageId] = time.Now()
	tell := func(verdict string) { s.print(m, fmt.Sprintf("attempt %d: %s%s", retries+1, verdict, waited)) }
	switch {
	case m.MessageId == fails && !s.fixed:
		tell("failed, PaymentTimeout")
		return false, s.say(ctx, m, amqp091.Table{
			topology.HeaderErrorType: "PaymentTimeout", topology.HeaderError: "the bank did not answer in 3 s",
		})
	case m.MessageId == atOnce:
		tell("failed, no retry would help")
		return false, s.say(ctx, m, amqp091.Table{
			topology.HeaderErrorType: "BadOrder", topology.HeaderError: "the order has no customer",
			topology.HeaderPermanent: true,
		})
	case m.MessageId == recovers && retries < 2:
		tell("failed, rejected")
		return false, m.Reject(false) // the broker dead-letters it, so it is not lost
	default:
		tell("done, acknowledged")
		return true, m.Ack(false) // the service has handled it
	}
}

// say fails with a reason: the service publishes the message to where its queue dead-letters, and
// acknowledges it after the confirm, so that it is not lost.
func (s *service) say(ctx context.Context, m amqp091.Delivery, why amqp091.Table) error {
	h := amqp091.Table{topology.HeaderExchange: m.Exchange, topology.HeaderRoutingKey: m.RoutingKey}
	if m.Exchange == topology.ReturnExchangeName(topologyName) { // a retry: the history goes on
		h = maps.Clone(m.Headers)
		delete(h, topology.CC)
	}
	maps.Copy(h, why)
	failed, key := topology.FailedExchangeName(topologyName), topology.AddressKey(workQueue)
	if err := confirmed(ctx, s.out, failed, key, amqp091.Publishing{
		MessageId: m.MessageId, DeliveryMode: m.DeliveryMode, ContentType: m.ContentType, Headers: h, Body: m.Body,
	}); err != nil {
		return err
	}
	return m.Ack(false)
}

func (s *service) print(m amqp091.Delivery, what string) {
	fmt.Fprintf(s.d.out, "%5.1fs  %s  key %-13s  %s\n", time.Since(s.start).Seconds(), m.MessageId, m.RoutingKey, what)
}

// tier returns the delay in the name of the retry queue that the message came from.
func tier(m amqp091.Delivery) string {
	deaths, _ := m.Headers[topology.HeaderDeath].([]any)
	for _, d := range deaths {
		table, _ := d.(amqp091.Table)
		queue, _ := table["queue"].(string)
		if _, delay, ok := strings.Cut(queue, ".retry."); ok {
			return delay
		}
	}
	return "?"
}

// buried prints a dead letter with the headers that say why it died.
func (s *service) buried(m amqp091.Delivery) {
	s.print(m, "moved to "+deadQueue+", with these headers and some more:")
	for _, name := range []string{
		topology.HeaderAttempts, topology.HeaderReason, topology.HeaderErrorType, topology.HeaderError,
	} {
		fmt.Fprintf(s.d.out, "%46s = %v\n", name, m.Headers[name])
	}
}
