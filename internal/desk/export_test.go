package desk

import (
	"cmp"
	"context"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/topology"
)

// BacklogLeft returns what is left of a backlog of so many messages, for each pair of the messages
// that the queue has and those that it has delivered in all.
func BacklogLeft(messages int, now ...[2]int) (left []int) {
	b := backlog{ready: messages, delivered: -1}
	for _, n := range now {
		left = append(left, b.left(n[0], int64(n[1])))
	}
	return left
}

// Existing returns those of the queues in which a message is sought by its handle.
func Existing(state topology.State, queues ...string) []string { return existing(state, queues) }

// Pausing makes looks end when no message has come for so long.
func (d *Desk) Pausing(pause time.Duration) *Desk {
	d.pause = pause
	return d
}

// Copying limits how many messages have a copy in a hold and wait to be acknowledged.
func (d *Desk) Copying(most int) *Desk {
	d.copies = most
	return d
}

// Guarding is how long a run that takes pauses between two reads of the policies.
func (d *Desk) Guarding(pause time.Duration) *Desk {
	d.guards = pause
	return d
}

// RefuseLook returns why a look at all messages of a queue is refused that has that number of
// consumers, and whose first message was returned that number of times. Nil means no refusal.
func RefuseLook(state topology.State, queue string, consumers, returned int64) error {
	t, err := termsOf(state, queue)
	if err != nil {
		return err
	}
	t.consumers = consumers
	ready := int(t.usage.Ready)
	if err := t.refuse(ready, ready, false); err != nil || !t.limited {
		return err
	}
	return t.refuseSpent(returned)
}

// Lacks returns the refusal of a user who lacks rights: own are those that 'dlxctl rights' prints.
func (d *Desk) Lacks(own, foreign []string) error { return d.lacks(own, foreign) }

// MayRead returns the refusal of a user who may not read a queue.
func (d *Desk) MayRead(queue string, err error) error { return d.mayRead(queue, err) }

// ThroughHold returns a message as it is published to a hold, and as it comes back from there.
func ThroughHold(m amqp091.Delivery, queue string) (held amqp091.Publishing, back amqp091.Delivery) {
	held = toHold(m, queue)
	return held, fromHold(delivered(held, m.RoutingKey))
}

// ThroughParked returns a message as it is parked from a queue, and as it is restored.
func (d *Desk) ThroughParked(m amqp091.Delivery, queue, parked string) (as amqp091.Publishing, back amqp091.Delivery) {
	of := manifest{summary: summary{By: "tester", Reason: "test"}}
	as = of.toParked(m, queue, "parked", "now")
	_, held := ThroughHold(delivered(as, parked), parked)
	return as, d.fromParked(held, parked)
}

// delivered returns a message as a consumer gets it.
func delivered(p amqp091.Publishing, key string) amqp091.Delivery {
	return amqp091.Delivery{
		Headers: p.Headers, ContentType: p.ContentType, MessageId: p.MessageId, Type: p.Type, Body: p.Body,
		RoutingKey: key, Exchange: "of the hold", Expiration: p.Expiration, UserId: p.UserId,
	}
}

// Incomplete reports whether the entry of an action does not say where messages go, as what they
// are parked if they are, or who may do it.
func Incomplete(k Kind) bool {
	parks := k.goes == toParked || k.Edits
	return k.goes == 0 || !k.Live && k.AllowedBy.Kind().goes == 0 || parks != (k.parkedAs != "")
}

// RefusePull returns why a pull from a queue is refused that has so many ready messages and
// consumers.
func RefusePull(state topology.State, queue string, ready int, consumers int64) error {
	t, err := termsOf(state, queue)
	if err != nil {
		return err
	}
	t.consumers = consumers
	if err := t.takeFirst(ready); err != nil {
		return err
	}
	return t.refuse(ready, ready, true)
}

// ChosenTopology returns the topology of a virtual host that a person means by name.
func (d *Desk) ChosenTopology(have []string, name string) (string, error) {
	return d.chosenTopology(have, name)
}

// Holding makes each run have a hold, also one of few messages.
func (d *Desk) Holding() *Desk {
	d.holds = true
	return d
}

// LogOf returns the queue of the records of runs.
func LogOf(d *Desk) topology.Queue { return d.log() }

// Keep writes the record of a run.
func (d *Desk) Keep(ctx context.Context, e EndedRun) { d.keep(ctx, e) }

// LookIn is Look for a virtual host in a state.
func (d *Desk) LookIn(
	ctx context.Context, state topology.State, queue string, o LookOptions, visit func(deadletter.Message) error,
) (Looked, error) {
	return d.lookIn(ctx, state, queue, o, visit)
}

// TargetQueue is what a target queue of a run has at a time: in Ready, or left of a batch.
type TargetQueue struct {
	Ready int
	Idle  bool // messages, and no consumer
	// Uncounted: the broker keeps no statistics of it.
	Uncounted bool
	// Delivered is how many messages it has delivered in all. Zero: Ready is what is left.
	Delivered int64
}

// unread is what is left of a batch.
func (q TargetQueue) unread(b *backlog) (int, error) {
	switch {
	case q.Uncounted:
		return b.unread(q.Ready, func() (int64, error) { return 0, management.ErrNoStatistics })
	case q.Delivered > 0:
		return b.unread(q.Ready, func() (int64, error) { return q.Delivered, nil })
	default:
		return q.Ready, nil
	}
}

// Pace waits until a run may send, or, with batch, until the last one it has sent was read: of
// several messages, or, with last, of all. It returns the first reason of a pause, and why the run
// stops. The relay of a batch ends every ten minutes, and another one begins.
func Pace(
	ctx context.Context, o SendOptions, target Target, batch, last bool, now func() map[string]TargetQueue,
) (pause string, stop error) {
	ready := func() counts {
		out := counts{}
		for queue, has := range now() {
			out[queue] = has.Ready
		}
		return out
	}
	idle := func() (out []string, err error) {
		for queue, has := range now() {
			if has.Idle {
				out = append(out, queue)
			}
		}
		slices.Sort(out)
		return out, nil
	}
	p := &pacer{
		o: o, named: target.named(), messages: 1, idle: idle, stop: func(err error) { stop = err },
		waiting: func() (counts, error) { return ready(), nil },
		backlogs: func() func(context.Context) (counts, error) {
			list := map[string]*backlog{}
			return func(context.Context) (counts, error) {
				out := counts{}
				for queue, has := range now() {
					if list[queue] == nil {
						list[queue] = newBacklog(queue, has.Ready)
					}
					var err error
					if out[queue], err = has.unread(list[queue]); err != nil {
						return nil, err
					}
				}
				return out, nil
			}
		},
	}
	if last {
		p.sent = p.messages
	}
	p.say = func() { pause = cmp.Or(pause, p.pausing) }
	if !batch {
		p.room(ctx)
		return pause, stop
	}
	for done := false; !done && ctx.Err() == nil; {
		renewed, end := context.WithTimeout(ctx, 10*time.Minute)
		done = p.gone(renewed) || renewed.Err() == nil
		end()
	}
	return pause, stop
}

// Judge judges a batch of one message, or, with last, the last one. busy is why others keep the run
// from hearing whether it failed. It reports whether the next one may be sent, and why the run
// stops.
func Judge(ctx context.Context, last bool, busy string) (next bool, stop error) {
	p := &pacer{
		messages: 2, sent: 1, given: 1, say: func() {}, stop: func(err error) { stop = err },
		certain: func(context.Context) string { return busy },
		backlogs: func() func(context.Context) (counts, error) {
			return func(context.Context) (counts, error) { return counts{}, nil }
		},
	}
	if last {
		p.messages = 1
	}
	return p.judge(ctx, 1), stop
}
