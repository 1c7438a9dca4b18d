package amqp

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// probesAtOnce is how many rights are probed at the same time, each on a channel of its own.
const probesAtOnce = 16

// Lacking returns the rights that the broker refuses to the user of the connection. Nothing is
// written: each probe either fails or has no effect.
//
// The probe for configure declares with an argument that every broker rejects: the answer is 403
// without the right, and 406 with it. The probe for write and read deletes a binding between
// exchanges whose key was drawn just now, so that it cannot exist: the broker checks the right to
// write the destination first, then the right to read the source, and its 403 names the object.
// Permissions apply to names, whatever the object. Measured on 3.10.8, 4.0.5 and 4.3.6.
func (c *Conn) Lacking(rights []plan.Right) ([]plan.Right, error) {
	var first, reads []plan.Right
	writable := "" // a name that the user may write
	for _, r := range rights {
		if r.Permission == plan.Read {
			reads = append(reads, r)
		} else {
			first = append(first, r)
		}
	}
	lacking, err := c.probe(first, "")
	if err != nil {
		return nil, err
	}
	refused := map[plan.Right]bool{}
	for _, r := range lacking {
		refused[r] = true
	}
	for _, r := range first {
		if r.Permission == plan.Write && !refused[r] {
			writable = r.Name
		}
	}
	if writable == "" {
		return lacking, nil // without it, read cannot be probed
	}
	more, err := c.probe(reads, writable)
	return append(lacking, more...), err
}

// probe probes rights at the same time.
func (c *Conn) probe(rights []plan.Right, writable string) ([]plan.Right, error) {
	var mu sync.Mutex
	var lacking []plan.Right
	var failed error
	next := make(chan plan.Right)
	var wg sync.WaitGroup
	for range min(probesAtOnce, len(rights)) {
		wg.Go(func() {
			for r := range next {
				refused, err := c.refuses(r, writable)
				mu.Lock()
				if refused {
					lacking = append(lacking, r)
				}
				failed = cmp.Or(failed, err) // the other errors have the same cause: the connection is lost
				mu.Unlock()
			}
		})
	}
	for _, r := range rights {
		next <- r
	}
	close(next)
	wg.Wait()
	return lacking, failed
}

// refuses probes one right. A right that cannot be probed counts as granted: if it is not, the
// change itself fails with that error.
func (c *Conn) refuses(r plan.Right, writable string) (bool, error) {
	if !c.mayBeTried(r) {
		return false, nil
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	defer ch.Close() // it has no effect on a refused channel
	switch {
	case r.Permission == plan.Write:
		err = ch.ExchangeUnbind(r.Name, rand.Text(), "amq.direct", false, nil)
	case r.Permission == plan.Read:
		err = ch.ExchangeUnbind(writable, rand.Text(), r.Name, false, nil)
	case r.Kind == topology.KindQueue:
		_, err = ch.QueueDeclare(r.Name, true, false, false, false, amqp091.Table{topology.ArgExpires: int32(0)})
	default:
		err = ch.ExchangeDeclare(r.Name, topology.Direct, true, false, false, false,
			amqp091.Table{topology.ArgAlternateExchange: int32(1)})
	}
	return refusal(err, r.Name)
}

// maxReason is the length of the longest error text over AMQP, in bytes. The broker truncates
// longer ones, and ends them with three dots.
const maxReason = 255

// names reports whether an error text is about the object of that name.
func names(reason, name string) bool {
	_, object, _ := strings.Cut(reason, " '")
	return begins(reason, object, name+"' ")
}

// topicRefused is in the error text about a routing key for which the user lacks a topic permission
// (rabbit_access_control, 3.10 to 4.3).
const topicRefused = "access to topic '"

// namesKey reports whether an error text is about such a key.
func namesKey(reason, exchange, key string) bool {
	_, object, _ := strings.Cut(reason, topicRefused)
	return begins(reason, object, key+"' in exchange '"+exchange+"' ")
}

// begins reports whether rest, the end of an error text, begins with want, as far as the broker has
// not truncated it.
func begins(reason, rest, want string) bool {
	if strings.HasPrefix(rest, want) {
		return true
	}
	begin, cut := strings.CutSuffix(rest, "...")
	return cut && len(reason) >= maxReason-5 && strings.HasPrefix(want, begin)
}

// mayBeTried reports whether an error text about a name fits, or can be truncated. If it has
// characters outside ASCII, the broker fails to truncate it, and closes the whole connection with
// 541 (measured on 4.3.6).
func (c *Conn) mayBeTried(r plan.Right) bool {
	const around = 100 // what the broker writes next to the names, with a margin
	text := r.Name + c.endpoint.VHost + c.endpoint.AMQP.User
	return len(text)+around <= maxReason || !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

// MayPublish reports whether the user may publish to an exchange. Nothing is published: the broker
// refuses the message for its expiration, with 406, once it has checked the right, with 403, and
// that the exchange is not internal, with 403 too (rabbit_channel; measured on 3.10.8, 4.0.5 and
// 4.3.6).
func (c *Conn) MayPublish(exchange string) (bool, error) {
	if !c.mayBeTried(plan.Right{Name: exchange}) {
		return true, nil
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	defer ch.Close() // it has no effect on a refused channel
	if err = ch.Publish(exchange, "", true, false, amqp091.Publishing{Expiration: "none"}); err == nil {
		err = ch.Qos(1, 0, false) // its answer comes behind that to the message
	}
	refused, err := refusal(err, exchange)
	return !refused, err
}

// keyTime is how long MayUse waits for an answer.
const keyTime = 2 * time.Second

// MayUse reports whether the user may publish to an exchange with a routing key, for which a topic
// exchange may ask a topic permission. Nothing is published: the broker checks that when it gets
// the message, and the transaction that the message is in is rolled back (measured on 3.10.8, 4.0.5
// and 4.3.6). MayUse fails without an answer, as during an alarm: the message is one for which the
// broker may block the connection.
func (c *Conn) MayUse(exchange, key string) (bool, error) {
	if c.blocked.Load() {
		return false, broker.Errorf(broker.ErrRefused, "the broker blocks the connection because of an alarm")
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	answer := make(chan error, 1)
	go func() {
		defer ch.Close() // it has no effect on a refused channel
		answer <- publishNothing(ch, exchange, key)
	}()
	select {
	case err = <-answer:
	case <-time.After(keyTime):
		return false, broker.Errorf(broker.ErrRefused, "the broker does not answer")
	}
	why, closed := errors.AsType[*ClosedError](explainChannel(err))
	if closed && why.RefusesKey(exchange, key) {
		return false, nil
	}
	return err == nil, err
}

// publishNothing publishes a message in a transaction, and rolls that back.
func publishNothing(ch *amqp091.Channel, exchange, key string) error {
	if err := ch.Tx(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if err := ch.Publish(exchange, key, false, false, amqp091.Publishing{}); err != nil {
		return err
	}
	return ch.TxRollback()
}

// refusal reports whether an answer of the broker is that the user lacks a right to an object.
func refusal(err error, name string) (bool, error) {
	var answer *amqp091.Error
	switch {
	case err == nil:
		return false, nil
	case !errors.As(err, &answer) || !answer.Server:
		return false, err
	default:
		return answer.Code == amqp091.AccessRefused && names(answer.Reason, name), nil
	}
}
