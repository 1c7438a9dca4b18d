package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

const (
	messages  = 10
	poison    = "m-04" // fails each time
	recovers  = "m-07" // fails twice, then succeeds
	workQueue = "billing"
	deadQueue = "billing.dead"
)

// service is the team's own program, which does not know dlxctl. It acknowledges the
// messages that it handled and rejects, without requeue, those that it could not handle.
type service struct {
	d     demo
	fixed bool // no message fails any more
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
	s := service{d: d, start: time.Now(), last: map[string]time.Time{}}
	work, dead, err := subscribe(conn)
	if err != nil {
		return err
	}
	if err := publish(ctx, conn); err != nil {
		return err
	}
	for open := messages; open > 0; {
		select {
		case m, ok := <-work:
			if !ok {
				return errors.New("the broker closed the consumer")
			}
			done, err := s.handle(m)
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
		_, err := s.handle(m)
		handled <- err
	}()
	if err := d.command(ctx, "desk", "replay", "@"+workQueue, "--yes", "--expect", "1", "--settle", "1s"); err != nil {
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
	u, err := url.Parse(d.url)
	if err != nil {
		return nil, errors.New("RABBITMQ_URL is not a URL")
	}
	conn, err := amqp091.Dial(u.JoinPath("/").ResolveReference(&url.URL{Path: "/" + vhost}).String())
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

func publish(ctx context.Context, conn *amqp091.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	keys := []string{"order.placed", "order.paid", "order.shipped"}
	for i := 1; i <= messages; i++ {
		key := keys[i%len(keys)]
		confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "shop", key, true, false, amqp091.Publishing{
			MessageId: fmt.Sprintf("m-%02d", i), DeliveryMode: amqp091.Persistent,
			ContentType: "application/json", Body: fmt.Appendf(nil, `{"order": %d}`, i),
		})
		if err != nil {
			return err
		}
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("message %d was not confirmed: %w", i, err)
		}
	}
	return nil
}

// handle does the service's job for a message and prints the outcome. It reports whether
// the message is acknowledged.
func (s *service) handle(m amqp091.Delivery) (done bool, err error) {
	retries, _ := m.Headers["count"].(int32)
	waited := ""
	if since, ok := s.last[m.MessageId]; ok {
		waited = fmt.Sprintf(", waited %.1fs in tier %s", time.Since(since).Seconds(), tier(m))
	}
	s.last[m.MessageId] = time.Now()
	fails := !s.fixed && (m.MessageId == poison || m.MessageId == recovers && retries < 2)
	verdict := "done, acknowledged"
	if fails {
		verdict = "failed, rejected"
	}
	s.print(m, fmt.Sprintf("attempt %d: %s%s", retries+1, verdict, waited))
	if fails {
		// The broker dead-letters the rejected message, so it is not lost.
		return false, m.Reject(false)
	}
	return true, m.Ack(false) // the service has handled it
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

// buried prints a dead letter with its history.
func (s *service) buried(m amqp091.Delivery) {
	s.print(m, "moved to "+deadQueue+", with these headers:")
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		fmt.Fprintf(s.d.out, "%46s = %v\n", name, m.Headers[name])
	}
}
