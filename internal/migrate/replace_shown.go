package migrate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Shown returns what the broker shows of queues of the file that are to be replaced under their
// names, by name. state is that of the plan.
func Shown(ctx context.Context, broker *management.Client, want topology.Compiled, state topology.State,
	queues []string,
) (map[string]plan.Replacement, error) {
	used, err := broker.AllPublishedByName(ctx, queues)
	if err != nil {
		return nil, err
	}
	out, err := shownConsumers(ctx, broker, state, queues)
	if err != nil {
		return nil, err
	}
	r := Runner{Topology: want}
	for _, q := range state.Have.Queues {
		s, asked := out[q.Name]
		if !asked {
			continue
		}
		m, u := replacementOf(want.Name, q.Name), used[q.Name]
		s.Pause, s.Declarations = plan.ReplacementPause, declarations(state.Version, q, r.wanted(m))
		s.ByName = m.byName(state, u, state.Usage[q.Name].Ready)
		s.ByNameMessages, s.ByNameAtMost, s.ByNameRate = u.Messages, !u.Certain, u.Rate
		if u.Rate != nil {
			tenths := math.Round(*u.Rate*10) / 10
			s.ByNameRate = &tenths
		}
		if s.ByName != "" {
			s.Better = append(s.Better, "publishers use its name")
		}
		if n := consumersOf(s.Restart); n > 0 {
			s.Better = append(s.Better, text.Count(n, "consumer")+" may not subscribe again")
		}
		out[q.Name] = s
	}
	return out, nil
}

// consumersOf counts the consumers of clients.
func consumersOf(list []plan.Client) (n int) {
	for _, c := range list {
		n += c.Consumers
	}
	return n
}

// shownConsumers returns what the broker shows of the consumers of these queues. Without consumers
// it reads nothing.
func shownConsumers(ctx context.Context, broker *management.Client, state topology.State, queues []string) (
	map[string]plan.Replacement, error,
) {
	out := map[string]plan.Replacement{}
	for _, queue := range queues {
		out[queue] = plan.Replacement{}
	}
	if !slices.ContainsFunc(queues, func(queue string) bool { return state.Usage[queue].MayBeConsumed() }) {
		return out, nil
	}
	subscribers, err := broker.AllSubscribers(ctx)
	if err != nil {
		return nil, err
	}
	open, err := broker.Connections(ctx)
	if err != nil {
		return nil, err
	}
	for _, queue := range queues {
		var s plan.Replacement
		s.UnseenConsumers = max(0, state.Usage[queue].Consumers-int64(len(subscribers[queue])))
		for _, name := range subscribers[queue] {
			properties, seen := open[name]
			measured, idle := afterCancel(properties)
			switch {
			case !seen:
				s.UnseenConsumers++
			case idle:
				s.Restart = addConsumer(s.Restart, library(properties), shownConnection(name, properties))
			case !measured:
				s.Unmeasured = addConsumer(s.Unmeasured, library(properties), shownConnection(name, properties))
			}
		}
		out[queue] = s
	}
	return out, nil
}

// shownConnection names a connection as the broker does, and with the name that its program gave
// it.
func shownConnection(name string, p management.Properties) string {
	if p.Name == "" {
		return name
	}
	return p.Name + " at " + name
}

// addConsumer adds a consumer to those of its client.
func addConsumer(list []plan.Client, client, connection string) []plan.Client {
	i := slices.IndexFunc(list, func(c plan.Client) bool { return c.Name == client })
	if i < 0 {
		i, list = len(list), append(list, plan.Client{Name: client})
	}
	list[i].Consumers++
	if !slices.Contains(list[i].Connections, connection) {
		list[i].Connections = append(list[i].Connections, connection)
	}
	return list
}

// declarationsPage has the table of what services get that declare a queue.
const declarationsPage = "https://github.com/dlxctl/dlxctl/blob/main/docs/consumers.md#declaring-the-queue"

// declarations says what a service gets that declares a queue as it was, once it is another.
func declarations(version string, was, is topology.Queue) string {
	d := arguments.Redeclared(version, was, is)
	if len(d.Differing) == 0 {
		return "a service that declares it with the old arguments gets no error"
	}
	state := topology.State{Version: version}
	var settings string
	switch {
	case d.Relaxed && d.ByDefaultType:
		settings = fmt.Sprintf("; RabbitMQ %s accepts it with %s, and, if it has no x-queue-type, where default_queue_type of the virtual host is quorum",
			version, arguments.RelaxedChecks)
	case d.Relaxed:
		settings = fmt.Sprintf("; RabbitMQ %s accepts it only with %s", version, arguments.RelaxedChecks)
	case state.AtLeast(3, 11) && !state.AtLeast(4, 0):
		settings = fmt.Sprintf("; whether a setting of RabbitMQ %s changes that was not measured", version)
	default:
		settings = fmt.Sprintf(", and no setting of RabbitMQ %s changes that", version)
	}
	return fmt.Sprintf("a service that declares it with the old arguments gets 406, because of %s%s: %s",
		text.List(d.Differing), settings, declarationsPage)
}
