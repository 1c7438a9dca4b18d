package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// mostProofs is how often the feeders of a legacy queue are proved empty at most, one proof after
// the other.
const mostProofs = 5

// fedError says that messages can still come to a legacy queue by its name, from a queue that
// dead-letters to it.
type fedError struct {
	text  string
	final bool // to wait does not help
}

func (e *fedError) Error() string { return e.text }

// unfed gives the question whether no message can come to the legacy queue by dead-lettering to
// its name: whether the queues that dead-letter so are empty, and nothing else leads there.
//
// It is asked while the drain consumes and nothing comes. A message that is not in a feeder is
// then in the legacy queue, and the drain takes it, or it is on its way from one feeder to the
// next: so each further feeder takes one more proof, in which the message would have to move on
// again. A consumer beside the drain could reject a message into a feeder later.
func (r *Runner) unfed(m Move) func(context.Context) error {
	said := false
	return func(ctx context.Context) error {
		return r.fed(ctx, m, func(why error) {
			if !said {
				r.tell("retire: waiting up to %s, as %s", r.Wait, why)
				said = true
			}
		})
	}
}

// fed says why a message can still come to the legacy queue by its name. Nil: none can. waits is
// told of a feeder that holds messages.
func (r *Runner) fed(ctx context.Context, m Move, waits func(error)) error {
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
	if err := holding(m, list); err != nil {
		waits(err)
		return err
	}
	if err := r.proved(ctx, m, list); err != nil {
		return err
	}
	// What has come to be since is seen here.
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
		return &fedError{text: fmt.Sprintf("%s has %s, and what is rejected there goes to %s, which dead-letters back to it by its name", m.Legacy, number(consumers, "consumer"), names(after))}
	}
	for _, f := range after {
		if f.ConsumersUnknown {
			return &fedError{text: fmt.Sprintf("the queue %s %s, and it is not known whether it has consumers", f.Name, leads(m, f))}
		}
	}
	return stillFed(m, after)
}

// queueNames gives the names of feeders.
func queueNames(list []plan.Feeder) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Name)
	}
	return out
}

// proved proves feeders empty.
func (r *Runner) proved(ctx context.Context, m Move, list []plan.Feeder) error {
	for range min(len(list), mostProofs) {
		err := r.Management.ProveEmpty(ctx, queuesOf(list))
		switch {
		case errors.Is(err, broker.ErrRefused):
			return &fedError{text: fmt.Sprintf("%s, and dead-letters to %s by its name", err, m.Legacy)}
		case errors.Is(err, broker.ErrForbidden):
			return &fedError{final: true, text: fmt.Sprintf("dlxctl cannot tell whether %s still holds messages for %s: %s", names(list), m.Legacy, err)}
		case err != nil:
			return err
		}
	}
	return nil
}

// holding says which feeder holds messages.
func holding(m Move, list []plan.Feeder) error {
	for _, f := range list {
		if n := f.Ready + f.Unacknowledged; n > 0 {
			return &fedError{text: fmt.Sprintf("the queue %s holds %s and %s", f.Name, number(n, "message"), leads(m, f))}
		}
	}
	return nil
}

// stillFed says which feeder can still get messages, though it is empty now.
func stillFed(m Move, list []plan.Feeder) error {
	for _, f := range list {
		if len(f.Open) > 0 {
			return &fedError{final: true, text: fmt.Sprintf("the queue %s %s, and can still get messages: %s; let it dead-letter to %s, or end that, and run migrate again",
				f.Name, leads(m, f), strings.Join(f.Open, ", "), m.New)}
		}
	}
	return nil
}

// leads says how the messages of a feeder come to the legacy queue.
func leads(m Move, f plan.Feeder) string {
	switch {
	case f.To != m.Legacy:
		return fmt.Sprintf("dead-letters to %s, which leads to %s by its name", f.To, m.Legacy)
	case f.AnyKey:
		return fmt.Sprintf("dead-letters to the default exchange by the routing keys of its messages, which may be %s", m.Legacy)
	default:
		return fmt.Sprintf("dead-letters to %s by its name", m.Legacy)
	}
}

// feeding gives a note about each queue that dead-letters to the legacy queue by its name.
func (m Move) feeding(state plan.State) []Note {
	var out []Note
	for _, f := range plan.Feeders(state, m.Legacy) {
		n := Note{Text: fmt.Sprintf("the queue %s holds %s and %s: %s is deleted only once it is proved empty, and messages that come back go on to %s; afterwards its messages would have no queue: let it dead-letter to %s, or delete it",
			f.Name, number(f.Ready+f.Unacknowledged, "message"), leads(m, f), m.Legacy, m.New, m.New)}
		if len(f.Open) > 0 {
			n = Note{Decide: true, Text: fmt.Sprintf("the queue %s %s, and others put messages there (%s): %s is kept, and migrate ends with exit code 2, until it dead-letters to %s or that ends",
				f.Name, leads(m, f), strings.Join(f.Open, ", "), m.Legacy, m.New)}
		}
		out = append(out, n)
	}
	return out
}

// strand says which queues still dead-letter to a legacy queue that is deleted now. They belong to
// others and stay.
func (r *Runner) strand(state plan.State, m Move) {
	for _, f := range plan.Feeders(state, m.Legacy) {
		if f.To == m.Legacy {
			r.tell("retire: %s is empty and still dead-letters to %s, which is gone: delete it, or let it dead-letter to %s", f.Name, m.Legacy, m.New)
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
