package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Session is the access of one command to the broker of one topology.
type Session struct {
	Topology topology.Compiled
	// Endpoint is where the broker is. It accepts only the broker that the topology is for.
	Endpoint   broker.Endpoint
	Management *management.Client

	lock *amqp.Conn // holds the lock; nil without one
}

// Guard returns an endpoint that refuses a broker whose version or cluster name is not what
// the topology is for: every AMQP connection and every Inspect checks it first.
func Guard(e broker.Endpoint, want topology.Compiled) broker.Endpoint {
	e.Accept = func(version, cluster string) error { return plan.Guard(want, version, cluster) }
	return e
}

// Open opens the management API of the broker at e, guarded for want. It connects with the
// first request.
func Open(e broker.Endpoint, want topology.Compiled) (*Session, error) {
	s := &Session{Topology: want, Endpoint: Guard(e, want)}
	var err error
	s.Management, err = management.New(s.Endpoint)
	return s, err
}

// Close frees the lock, and closes all connections.
func (s *Session) Close() {
	if s.lock != nil {
		_ = s.lock.Unlock(topology.LockName(s.Topology.Name)) // if not, the end of the connection does it
		_ = s.lock.Close()
	}
	s.Management.Close()
}

// Locked reports whether the session holds the lock, and so an AMQP connection.
func (s *Session) Locked() bool { return s.lock != nil }

// Inspect reads the broker. If the plan depends on the number of consumers of a queue, Inspect asks
// the queue itself, because the statistics of the broker lag.
func (s *Session) Inspect(ctx context.Context) (topology.State, error) {
	state, err := s.Management.Inspect(ctx)
	if err != nil {
		return topology.State{}, err
	}
	p := plan.Make(s.Topology, state, plan.Options{})
	if decisive := plan.Decisive(p, s.Topology, state); len(decisive) > 0 {
		state = s.Management.AskConsumers(ctx, state, decisive)
	}
	return state, nil
}

// Plan plans as Inspect does. It takes the lists of begun, see [management.Client.InspectFor], and
// reads the statistics of only those queues that the plan depends on: the broker computes them for
// each queue anew, which takes longer than everything else.
func (s *Session) Plan(ctx context.Context, begun *management.Reading, o plan.Options) (topology.State, plan.Plan,
	error,
) {
	first := statisticsFor(plan.Plan{}, s.Topology, topology.State{})
	state, err := s.Management.InspectFor(ctx, begun, first)
	if err != nil {
		return topology.State{}, plan.Plan{}, err
	}
	read := map[string]bool{}
	for _, queue := range first {
		read[queue] = true
	}
	// What is known before the first plan is asked before it: most plans ask no more, and are made
	// once.
	asked := plan.Decisive(plan.Plan{}, s.Topology, state)
	state = s.Management.AskConsumers(ctx, state, asked)
	for {
		p := plan.Make(s.Topology, state, o)
		unread := slices.DeleteFunc(statisticsFor(p, s.Topology, state), func(queue string) bool { return read[queue] })
		if len(unread) > 0 {
			if state, err = s.Management.ReadStatistics(ctx, state, unread); err != nil {
				return topology.State{}, plan.Plan{}, err
			}
			for _, queue := range unread {
				read[queue] = true
			}
		}
		// A queue is asked only after its statistics were read: where it gives no answer, they stay.
		more := slices.DeleteFunc(plan.Decisive(p, s.Topology, state), func(queue string) bool {
			return slices.Contains(asked, queue)
		})
		if len(unread) == 0 && len(more) == 0 {
			return state, p, nil
		}
		state = s.Management.AskConsumers(ctx, state, more)
		asked = append(asked, more...)
	}
}

// statisticsFor names the queues whose statistics p depends on, which was made from want and state,
// and those that every plan for want depends on.
func statisticsFor(p plan.Plan, want topology.Compiled, state topology.State) []string {
	out := append(p.Consulted(), plan.Decisive(p, want, state)...)
	for _, l := range want.Backoffs {
		out = append(out, l.FailedQueue)
	}
	for _, d := range want.Delays {
		out = append(out, d.Intake)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// CheckRights fails if the user lacks any of the rights, and names all that are missing.
// Without the lock it checks only what the management API tells.
func (s *Session) CheckRights(ctx context.Context, rights []plan.Right) error {
	lacking, err := s.Management.Lacking(ctx, s.lock, rights)
	if err != nil {
		return fmt.Errorf("read the rights of the user: %w", err)
	}
	if len(lacking) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "user %s lacks permissions that this plan needs; nothing was written:",
		topology.Printable(s.Management.User()))
	names := map[plan.Permission][]string{}
	for _, r := range lacking {
		names[r.Permission] = append(names[r.Permission], fmt.Sprintf("%s %q", r.Kind, r.Name))
	}
	for _, permission := range []plan.Permission{plan.Configure, plan.Write, plan.Read} {
		if list := names[permission]; len(list) > 0 {
			fmt.Fprintf(&b, "\n  %s: %s", permission, strings.Join(list, ", "))
		}
	}
	if len(names[plan.Policymaker]) > 0 {
		b.WriteString("\n  the tag policymaker")
	}
	b.WriteString("\n'dlxctl rights' prints the commands that grant them" + unprinted(s.Topology, lacking))
	return fmt.Errorf("%s", b.String())
}
