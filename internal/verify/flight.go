package verify

import (
	"context"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// flight is the time in which canaries are under way.
type flight struct {
	verifier *Verifier
	report   *Report
	// out sends the canaries, and in receives them. After an alarm the broker does not read from a
	// connection that has sent a message, so that in is for everything after that.
	out, in  *amqp.Conn
	home     string
	canaries []*canary
	byID     map[string]*canary
}

// fly makes the queue for canaries, sends them, waits for them, and removes the queue.
func (f *flight) fly(ctx context.Context, home topology.Queue, bindings []topology.Binding) error {
	if err := f.out.DeclareQueue(home); err != nil {
		return err
	}
	for _, b := range bindings {
		if err := f.out.Bind(b); err != nil {
			return err
		}
	}
	var err error
	if f.in, err = amqp.DialToConsume(ctx, f.verifier.endpoint("waits")); err != nil {
		return err
	}
	defer f.in.Close()
	source, err := f.in.Consume(f.home, len(f.canaries), 0)
	if err != nil {
		return err
	}
	publisher, err := f.out.Publisher(len(f.canaries)) // ends with its connection, which has a limit for that
	if err != nil {
		return err
	}
	if err := f.send(publisher); err != nil {
		return err
	}
	last := f.last()
	f.verifier.Log.InfoContext(ctx, "sent canaries; waiting for them", "topology", f.verifier.Topology.Name,
		"canaries", len(f.canaries), "longest_wait", text.Duration(time.Until(last).Round(time.Second)), "queue", f.home)
	if err := f.wait(ctx, source, publisher); err != nil {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		return err
	}
	f.giveUp()
	return f.remove(source)
}

// send publishes the canaries.
func (f *flight) send(publisher *amqp.Publisher) error {
	f.byID = make(map[string]*canary, len(f.canaries))
	for _, c := range f.canaries {
		f.byID[c.id] = c
		c.start(time.Now(), f.verifier.Patience)
		var err error
		if c.seq, err = publisher.Publish(c.exchange, c.key, c.message); err != nil {
			return fmt.Errorf("send a canary to %s: %w", c.exchange, err)
		}
	}
	return nil
}

// last returns when the last canary is given up that is still under way. Zero: none is.
func (f *flight) last() time.Time {
	var last time.Time
	for _, c := range f.canaries {
		if c.result == "" && c.giveUp.After(last) {
			last = c.giveUp
		}
	}
	return last
}

// wait receives canaries until all are back, or their time is over.
func (f *flight) wait(ctx context.Context, source *amqp.Consumer, publisher *amqp.Publisher) error {
	settled := publisher.Settled()
	for last := f.last(); !last.IsZero(); last = f.last() {
		timer := time.NewTimer(time.Until(last))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
			return nil
		case _, open := <-settled:
			if !open {
				timer.Stop()
				return fmt.Errorf("the broker closed the channel that sends canaries: %w", publisher.Err())
			}
			f.refused(publisher.Outcomes())
		case d, open := <-source.Deliveries():
			if !open {
				timer.Stop()
				return fmt.Errorf("the queue %s: %w", f.home, source.Err())
			}
			if err := f.arrived(source, d, time.Now()); err != nil {
				timer.Stop()
				return err
			}
		}
		timer.Stop()
	}
	return nil
}

// refused notes the canaries that the broker did not accept.
func (f *flight) refused(outcomes []amqp.Outcome) {
	for _, o := range outcomes {
		for _, c := range f.canaries {
			if c.seq != o.Seq || o.Refused == "" || c.result != "" {
				continue
			}
			c.refused = true
			f.note(c, Missing, 0, Problem{Name: "refused", Backoff: c.backoff.Name, Queue: c.tier.Queue, Text: fmt.Sprintf(
				"the broker does not accept the canary of attempt %d at the exchange %s: %s; run 'dlxctl plan' and 'dlxctl status'",
				c.attempt, text.Name(c.exchange), o.Refused)})
		}
	}
}

// arrived judges a canary that came back.
func (f *flight) arrived(source *amqp.Consumer, d amqp091.Delivery, at time.Time) error {
	d = source.Take(d)
	// Nothing is lost: only canaries have the address of this queue, whose name was drawn at random.
	if err := source.Ack(d.DeliveryTag, false); err != nil {
		return fmt.Errorf("acknowledge a canary: %w", err)
	}
	c := f.byID[d.MessageId]
	if c == nil || c.result != "" { // a processor may double a message; the first one counts
		return nil
	}
	result, problem := c.judge(d, at, f.verifier.Late)
	f.note(c, result, at.Sub(c.sent), problem)
	return nil
}

// note puts a result into the row of its tier.
func (f *flight) note(c *canary, result Result, waited time.Duration, problem Problem) {
	c.result = result
	row := &f.report.Tiers[c.row]
	shown, longest := &row.Result, &row.Waited
	if c.processed {
		shown, longest = &row.Processor, &row.ProcessorWaited
	}
	worst(shown, longest, result, waited)
	if problem.Name != "" {
		f.report.add(problem)
	}
}

// worst puts a result with its time into a row, unless the row has a worse one. Of the same results
// the longest time counts.
func worst(shown *Result, longest *time.Duration, r Result, waited time.Duration) {
	if r.worse(*shown) {
		*shown, *longest = r, waited
	} else if r == *shown {
		*longest = max(*longest, waited)
	}
}

// giveUp notes the canaries that did not come back.
func (f *flight) giveUp() {
	for _, c := range f.canaries {
		if c.result != "" {
			continue
		}
		problem := Problem{Name: "missing", Backoff: c.backoff.Name, Queue: c.tier.Queue, Text: fmt.Sprintf(
			"the canary of attempt %d did not come back from %s within %s: messages before it may be held up; run 'dlxctl status' and 'dlxctl plan'",
			c.attempt, text.Name(c.tier.Queue), text.Duration(c.tier.Delay+f.verifier.Patience))}
		if c.processed {
			problem.Name, problem.Queue, problem.Text = "processor", c.backoff.FailedQueue, f.silence(c)
		}
		f.note(c, Missing, 0, problem)
	}
}

// silence says what is known about a canary that was sent to a processor and did not come back.
func (f *flight) silence(c *canary) string {
	queue := text.Name(c.backoff.FailedQueue)
	ready, consumers, err := f.in.Holds(c.backoff.FailedQueue)
	switch {
	case err != nil:
		return fmt.Sprintf("the canary that was sent to the processors of %s did not come back; read their logs", queue)
	case consumers == 0:
		return fmt.Sprintf("no processor is consuming %s now; run 'dlxctl process'", queue)
	case ready > 0:
		return fmt.Sprintf("%s did not take the canary from %s within %s, where %s; read their logs, or run more of them",
			text.Count(consumers, "processor"), queue, f.verifier.Patience, text.Count(ready, "message")+
				text.Choose(ready, " waits", " wait")+" now")
	default:
		return fmt.Sprintf("a processor took the canary from %s, and it did not come back; read the log of the processor, and look for the canary with 'dlxctl desk list %s'",
			queue, text.ShellQuote(topology.UnroutableName(f.verifier.Topology.Name)))
	}
}

// remove deletes the queue for canaries once all of them are back. Canaries that are still under
// way need it: without it they would go to the unroutable queue.
func (f *flight) remove(source *amqp.Consumer) error {
	for _, c := range f.canaries {
		if c.result == Missing && !c.refused {
			f.report.Left = fmt.Sprintf(
				"a canary may still come back: the queue %s receives it, and the broker deletes that queue after %s; later it goes to %s",
				text.Name(f.home), text.Took(f.verifier.expires()), text.Name(topology.UnroutableName(f.verifier.Topology.Name)))
			return nil
		}
	}
	if err := source.Stop(); err != nil {
		return fmt.Errorf("stop to wait for canaries: %w", err)
	}
	// Nothing is lost: the broker refuses to delete the queue, which is classic, if it has a message.
	if err := f.in.DeleteQueue(f.home, amqp.Conditions{Unused: true, Empty: true}); err != nil {
		f.report.Left = fmt.Sprintf("the queue %s is left, and the broker deletes it after %s: %v", text.Name(f.home),
			text.Took(f.verifier.expires()), err)
	}
	return nil
}
