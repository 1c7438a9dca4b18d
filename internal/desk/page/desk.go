package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// For makes the page that of a desk: its engine, its queues, and what is shown of them.
func (c *Config) For(d *desk.Desk) {
	c.Source = sourceOf(d)
	c.Topology, c.VHost, c.Broker, c.By = d.Topology.Name, d.Endpoint.VHost, d.Endpoint.AMQP.Host, d.By
	if d.Found == nil {
		return
	}
	c.Topology = d.Found.Topology
	c.Renew = func(ctx context.Context) (Source, error) {
		now, err := d.Again(ctx)
		return sourceOf(now), err
	}
}

// Later makes the page that of a desk which is opened when a person asks for it: open returns it. A
// desk that finds its queues on the broker finds them anew.
func (c *Config) Later(open func(context.Context) (*desk.Desk, error)) {
	var d *desk.Desk // sources asks for one at a time
	c.Renew = func(ctx context.Context) (Source, error) {
		var err error
		switch {
		case d == nil:
			if d, err = open(ctx); err != nil {
				d = nil
				return Source{}, err
			}
		case d.Found != nil:
			now, err := d.Again(ctx)
			if err != nil {
				return Source{}, err
			}
			return sourceOf(now), nil
		}
		return sourceOf(d), nil
	}
}

func sourceOf(d *desk.Desk) Source {
	s := Source{
		Engine: d, As: func(by string) Engine { return d.As(by) }, Roles: roles(d),
		Plain:  &deadletter.Reader{Decoder: d.Reader.Decoder, Known: d.Reader.Known},
		Queues: func(ctx context.Context, at time.Time) ([]Queue, []Delay, error) { return queues(ctx, d, at) },
	}
	if d.Found != nil {
		s.Notice = d.Found.String()
	}
	return s
}

// deadLetters is the role of dead-letter queues.
const deadLetters = "dead-letter"

// roles names what the queues are for that the page shows.
func roles(d *desk.Desk) map[string]string {
	out := map[string]string{
		topology.UnroutableName(d.Topology.Name): "unroutable", topology.ParkedName(d.Topology.Name): "parked",
	}
	for _, name := range d.DeadLetterQueues() {
		out[name] = deadLetters
	}
	return out
}

// queues reads the queues from the broker: the dead-letter queues in the order of the file, then
// the parked and the unroutable queue, as far as they exist. It also returns the delays.
func queues(ctx context.Context, d *desk.Desk, at time.Time) ([]Queue, []Delay, error) {
	state, err := d.Management.Inspect(ctx)
	if err != nil {
		return nil, nil, err
	}
	types := map[string]string{}
	for _, q := range state.Have.Queues {
		types[q.Name] = q.Type()
	}
	var out []Queue
	known := roles(d) // and the others are previous dead-letter queues
	names := append(d.DeadLetterQueues(), d.PreviousDeadLetterQueues(state)...)
	names = append(names, topology.ParkedName(d.Topology.Name), topology.UnroutableName(d.Topology.Name))
	for _, name := range names {
		u, down := state.Usage[name], slices.Contains(state.Down, name)
		if _, listed := types[name]; !listed && !down {
			continue
		}
		out = append(out, Queue{
			Name: name, Role: cmp.Or(known[name], deadLetters), Type: types[name], Owner: owners(d.Topology, name),
			Messages: int(u.Ready + u.Unacknowledged), Unknown: u.Uncounted || down,
			Unacknowledged: int(u.Held()), Consumers: int(u.Consumers),
		})
	}
	var delays []Delay
	for _, x := range status.Delays(d.Topology, state) {
		delays = append(delays, Delay{x.Name, x.To, x.Intake + x.Waiting + x.Due, x.WaitingIn(at)})
	}
	return out, delays, nil
}

// owners names who owns the work queues that dead-letter into a queue.
func owners(t topology.Compiled, queue string) string {
	var out []string
	for _, w := range t.WorkQueues {
		if w.DeadLetterQueue == queue && w.Owner != "" && !slices.Contains(out, w.Owner) {
			out = append(out, w.Owner)
		}
	}
	return strings.Join(out, ", ")
}
