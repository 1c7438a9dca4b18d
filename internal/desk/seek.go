package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Sought is where the messages with a message-id are.
type Sought struct {
	ID string `json:"id"`
	// Found are the messages, by queue.
	Found []deadletter.View `json:"found"`
	// LookedAt is how many messages were looked at, and NotLookedAt what was not.
	LookedAt    int        `json:"lookedAt"`
	NotLookedAt []Unlooked `json:"notLookedAt"`
	// Consumed are the queues that have consumers, which may hold the message.
	Consumed []string `json:"consumed"`
	// Costs say what the looks changed in the queues.
	Costs []LookCost `json:"costs"`
}

// LookCost is what a look changed in a queue.
type LookCost struct {
	Queue string `json:"queue"`
	// Cost says what the look changed: redelivered flags, delivery counts.
	Cost string `json:"cost"`
	// costs: more changed than marks that limit nothing.
	costs bool
}

// Unlooked is a queue of which messages were not looked at.
type Unlooked struct {
	Queue string `json:"queue"`
	// Why is why not, for a person.
	Why string `json:"why"`
}

// Seek looks for the messages that have a message-id in every queue of the topology that has
// messages, one queue after the other. A queue that refuses a look is in the result as not looked
// at, and so is one that does not say what it holds. A message that moves meanwhile may be missed,
// or found twice.
func (d *Desk) Seek(ctx context.Context, id string, o LookOptions) (Sought, error) {
	out := Sought{ID: id, Found: []deadletter.View{}, NotLookedAt: []Unlooked{}, Consumed: []string{}, Costs: []LookCost{}}
	state, err := d.inspect(ctx)
	if err != nil {
		return out, err
	}
	conn, err := amqp.Dial(ctx, d.Endpoint)
	if err != nil {
		return out, err
	}
	defer conn.Close()
	for _, name := range state.Down {
		if d.hasQueue(topology.Queue{Name: name}) || topology.IsHoldName(d.Topology.Name, name) {
			out.NotLookedAt = append(out.NotLookedAt, Unlooked{Queue: name, Why: nodeIsDown})
		}
	}
	for _, q := range state.Have.Queues {
		if !d.hasQueue(q) {
			continue
		}
		// To ask over AMQP costs less than a look, and is newer than the broker's statistics.
		ready, consumers, err := conn.Holds(q.Name)
		if err == nil && consumers > 0 {
			out.Consumed = append(out.Consumed, q.Name)
		}
		if err == nil && ready == 0 && (consumers > 0 || seemsEmpty(ctx, conn, q.Name)) {
			continue
		}
		if err := d.seekIn(ctx, q.Name, o, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// seemsEmpty reports whether a queue without consumers has no message, also none that an earlier
// look has just given back: such a message is not counted for a moment. A queue whose leader does
// not answer does not seem empty. Where the user may not read the queue, which the proof takes, the
// count has to do.
func seemsEmpty(ctx context.Context, conn *amqp.Conn, queue string) bool {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	ready, _, err := conn.Settled(ctx, queue, 0)
	return errors.Is(err, broker.ErrForbidden) || err == nil && ready == 0
}

// seekIn adds what a look at a queue finds.
func (d *Desk) seekIn(ctx context.Context, queue string, o LookOptions, out *Sought) error {
	looked, err := d.Look(ctx, queue, o, func(m deadletter.Message) error {
		if m.Delivery.MessageId != out.ID {
			return nil
		}
		if v := d.reader().View(m); v.MessageID == out.ID { // it is not masked
			out.Found = append(out.Found, v)
		}
		return nil
	})
	out.LookedAt += looked.Looked
	if looked.Cost != "" {
		out.Costs = append(out.Costs, LookCost{queue, looked.Cost, looked.costs})
	}
	why := looked.Missed
	switch {
	case errors.Is(err, ErrRefused):
		why = strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ")
	case err != nil:
		return err
	}
	if why != "" {
		out.NotLookedAt = append(out.NotLookedAt, Unlooked{Queue: queue, Why: why})
	}
	return nil
}

// hasQueue reports whether a queue is of the topology: the file declares it, or dlxctl has made it
// for it. Without a file, it reports whether a message may be there that failed or will.
func (d *Desk) hasQueue(q topology.Queue) bool {
	if topology.IsLog(d.Topology.Name, q) {
		return false // it has records of runs, and no messages
	}
	if d.Found != nil {
		return d.Found.sought[q.Name]
	}
	name := d.Topology.Name
	owner, owned := topology.Owner(q.Arguments)
	return owned && owner == name || q.Arguments[topology.ArgManagedBy] == topology.DeskMark(name) ||
		slices.ContainsFunc(d.Topology.Queues, func(of topology.Queue) bool { return of.Name == q.Name })
}

// Err returns an error if nothing was found. It wraps ErrUnreached if not all was looked at.
func (s Sought) Err() error {
	switch {
	case len(s.Found) > 0:
		return nil
	case len(s.NotLookedAt)+len(s.Consumed) > 0:
		return fmt.Errorf("%w: it may be there, with a consumer, or on its way; look again", ErrUnreached)
	default:
		return errors.New("no such message; it was consumed, or is on its way between two queues; look again, and use 'dlxctl peek' for another queue")
	}
}

// Write writes the result for a person.
func (s Sought) Write(w io.Writer, on Screen) error {
	table := text.Table{Whole: []int{0, 1}, Last: []int{5}}
	table.Add(nil, "QUEUE", "HANDLE", "WORK QUEUE", on.choose("AGE", "FAILED"), "ATTEMPTS", "ERROR OR BODY")
	for _, v := range s.Found {
		table.Add(nil, text.Name(v.Queue), v.Name(), dash(v.WorkQueue), on.when(v.LastFailed), attemptsOf(v),
			firstLine(v, on))
	}
	if len(s.Found) > 0 {
		if err := table.Write(w, on.Width); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	line := fmt.Sprintf("%s with the message-id %s among the %s that were looked at", text.Count(len(s.Found), "message"),
		text.Name(s.ID), text.Count(s.LookedAt, "message"))
	if _, err := fmt.Fprintln(w, line); err != nil {
		return err
	}
	if len(s.Consumed) > 0 {
		held := text.Some(text.Names(s.Consumed))
		if _, err := fmt.Fprintf(w, "not looked at: what the consumers of %s hold\n", held); err != nil {
			return err
		}
	}
	for _, n := range s.NotLookedAt {
		if _, err := fmt.Fprintf(w, "not fully looked at: %s: %s\n", text.Name(n.Queue), n.Why); err != nil {
			return err
		}
	}
	for _, c := range s.Costs {
		if !c.costs {
			continue
		}
		if _, err := fmt.Fprintf(w, "cost of the look at %s: %s\n", text.Name(c.Queue), c.Cost); err != nil {
			return err
		}
	}
	return nil
}
