package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// mostProofs is how many times the feeders of a legacy queue are proved empty at most, one
// proof after the other.
const mostProofs = 5

// fedError says that messages can still come to a legacy queue by its name, from a feeder: a
// queue that dead-letters to it.
type fedError struct {
	text  string
	final bool // waiting does not help
}

func (e *fedError) Error() string { return e.text }

// feedersEmpty returns a check that no message can come to the legacy queue by
// dead-lettering to its name: its feeders are empty, and no messages are routed to them.
//
// The check runs while the drain consumes and no message comes. A message that is not in a
// feeder is then in the legacy queue, where the drain consumes it, or on its way from one
// feeder to the next: so each further feeder needs one more proof, in which the message
// would have to move on again. A consumer next to the drain could reject a message into a
// feeder later.
func (r *Runner) feedersEmpty(m Move) func(context.Context) error {
	said := false
	return func(ctx context.Context) error {
		return r.checkFeeders(ctx, m, func(why error) {
			if !said {
				r.say("retire: waiting up to %s, as %s", text.Duration(r.Wait), why)
				said = true
			}
		})
	}
}

// checkFeeders returns why a message can still come to the legacy queue by its name. Nil:
// none can. waits is called with the feeder that holds messages.
func (r *Runner) checkFeeders(ctx context.Context, m Move, waits func(error)) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	list := plan.Feeders(state, m.Legacy)
	if len(list) == 0 {
		return nil
	}
	state = r.Management.AskConsumers(ctx, state, queueNames(list))
	list = plan.Feeders(state, m.Legacy)
	if err := holdingError(m, list); err != nil {
		waits(err)
		return err
	}
	if err := r.proveEmpty(ctx, m, list); err != nil {
		return err
	}
	// Feeders and consumers that are new since the first look are seen here.
	if state, err = r.Management.Inspect(ctx); err != nil {
		return err
	}
	state = r.Management.AskConsumers(ctx, state, queueNames(list))
	after := plan.Feeders(state, m.Legacy)
	consumers, err := r.consumers(ctx, state, m.Legacy)
	switch {
	case err != nil:
		return err
	case len(after) > len(list):
		return &fedError{text: fmt.Sprintf("another queue dead-letters to %s by its name", m.Legacy)}
	case consumers > 1: // one is the drain
		return &fedError{text: fmt.Sprintf("%s has %s, and what is rejected there goes to %s, which dead-letters back to it by its name", m.Legacy, text.Count(consumers, "consumer"), names(after))}
	}
	for _, f := range after {
		if f.ConsumersUnknown {
			return &fedError{text: fmt.Sprintf("the queue %s %s, and it is not known whether it has consumers", f.Name,
				describeFeeder(m, f))}
		}
	}
	return openError(m, after)
}

// queueNames returns the names of feeders.
func queueNames(list []plan.Feeder) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Name)
	}
	return out
}

// proveEmpty proves that feeders are empty.
func (r *Runner) proveEmpty(ctx context.Context, m Move, list []plan.Feeder) error {
	for range min(len(list), mostProofs) {
		err := r.Management.ProveEmpty(ctx, queuesOf(list))
		switch {
		case errors.Is(err, broker.ErrRefused):
			return &fedError{text: fmt.Sprintf("%s, and dead-letters to %s by its name", err, m.Legacy)}
		case errors.Is(err, broker.ErrForbidden):
			return &fedError{
				final: true,
				text:  fmt.Sprintf("dlxctl cannot know whether %s still holds messages for %s: %s", names(list), m.Legacy, err),
			}
		case err != nil:
			return err
		}
	}
	return nil
}

// holdingError says which feeder holds messages.
func holdingError(m Move, list []plan.Feeder) error {
	for _, f := range list {
		if n := f.Ready + f.Unacknowledged; n > 0 {
			return &fedError{text: fmt.Sprintf("the queue %s holds %s and %s",
				f.Name, messages(n), describeFeeder(m, f))}
		}
	}
	return nil
}

// openError says which feeder can still get messages, though it is empty now.
func openError(m Move, list []plan.Feeder) error {
	for _, f := range list {
		if len(f.Open) > 0 {
			return &fedError{
				final: true,
				text: fmt.Sprintf("the queue %s %s, and can still get messages: %s; let it dead-letter to %s, or stop these, and run the command again",
					f.Name, describeFeeder(m, f), strings.Join(f.Open, ", "), m.New),
			}
		}
	}
	return nil
}

// describeFeeder says how the messages of a feeder come to the legacy queue.
func describeFeeder(m Move, f plan.Feeder) string {
	switch {
	case f.To != m.Legacy:
		return fmt.Sprintf("dead-letters to %s, which leads to %s by its name", f.To, m.Legacy)
	case f.AnyKey:
		return fmt.Sprintf("dead-letters to the default exchange by the routing keys of its messages, which may be %s",
			m.Legacy)
	default:
		return fmt.Sprintf("dead-letters to %s by its name", m.Legacy)
	}
}

// feederNotes returns a note for each queue that dead-letters to the legacy queue by its
// name.
func (m Move) feederNotes(state topology.State) []Note {
	var out []Note
	for _, f := range plan.Feeders(state, m.Legacy) {
		n := Note{Text: fmt.Sprintf("the queue %s holds %s and %s: %s is deleted only once it is proved empty, and messages that return are moved on to %s; afterwards its messages would have no queue: let it dead-letter to %s, or delete it",
			f.Name, messages(f.Ready+f.Unacknowledged), describeFeeder(m, f), m.Legacy, m.New, m.New)}
		if len(f.Open) > 0 {
			n = Note{
				Decide: true,
				Text: fmt.Sprintf("the queue %s %s, and it can still get messages (%s): %s is kept, and migrate exits with code 2, until the queue dead-letters to %s or gets no more messages",
					f.Name, describeFeeder(m, f), strings.Join(f.Open, ", "), m.Legacy, m.New),
			}
		}
		out = append(out, n)
	}
	return out
}

// warnOfFeeders reports which queues still dead-letter to a legacy queue that is now
// deleted. They belong to other teams and stay.
func (r *Runner) warnOfFeeders(state topology.State, m Move) {
	for _, f := range plan.Feeders(state, m.Legacy) {
		if f.To == m.Legacy {
			r.say("retire: %s is empty and still dead-letters to %s, which is gone: delete it, or let it dead-letter to %s",
				f.Name, m.Legacy, m.New)
		}
	}
}

func queuesOf(list []plan.Feeder) []topology.Queue {
	var out []topology.Queue
	for _, f := range list {
		out = append(out, f.Queue)
	}
	return out
}

func names(list []plan.Feeder) string {
	var out []string
	for _, f := range list {
		if !slices.Contains(out, f.Name) {
			out = append(out, f.Name)
		}
	}
	return strings.Join(out, ", ")
}
