package desk

import (
	"context"
	"errors"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/topology"
)

// contents is what a hold has.
type contents struct {
	reading
	// messages counts the dead letters, by fingerprint and in all.
	prints   map[fingerprint]uint32
	messages int
	bytes    int64 // of their bodies
	// queues counts them by the queue that they were taken from, work by the one in which they failed,
	// and origins by the one from which they were parked.
	queues, work, origins map[string]int
	gone                  bool // there is no such hold
}

// readHold reads what the hold of a run has, and gives all of it back. The records of the steps
// include those that only an exchange tells, see noteStep.
func (d *Desk) readHold(ctx context.Context, run string) (*contents, error) {
	hold := topology.HoldName(d.Topology.Name, run)
	conn, err := amqp.DialToConsume(ctx, d.endpoint("reads "+run))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := &contents{
		prints: map[fingerprint]uint32{}, queues: map[string]int{}, work: map[string]int{}, origins: map[string]int{},
	}
	ready, _, err := conn.Settled(ctx, hold, amqp.Alone)
	if errors.Is(err, broker.ErrNotFound) {
		c.gone = true
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	known, found := d.known(), map[deadletter.Digest]uint32{} // the key may be behind the messages
	h := conn.Holder(hold, amqp.HolderOptions{Messages: ready})
	err = h.Take(ctx, func(m amqp.Held) error {
		if isRecord(run, m.Delivery) {
			return c.add(m.Delivery)
		}
		c.messages++
		c.bytes += int64(len(m.Body))
		was := fromHold(m.Delivery)
		found[deadletter.DigestOf(was).Whole(was)]++
		from, _ := m.Headers[headerQueue].(string)
		c.queues[from]++
		c.origins[parkedFrom(was)]++
		c.work[deadletter.Read(d.fromParked(was, from), from, known).WorkQueue]++
		return nil
	})
	for of, n := range found {
		c.prints[c.manifest.Key.of(of)] += n
	}
	for _, step := range []string{recordSending, recordSent, recordReturning} {
		if d.hasStep(run, step) && c.records != nil {
			c.records[step]++
		}
	}
	return c, errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
}
