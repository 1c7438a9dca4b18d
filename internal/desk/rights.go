package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// permission is a right that a command needs.
type permission struct {
	plan.Right
	// foreign reports that 'dlxctl rights' does not print the right: the person has named a target
	// of another team.
	foreign bool
}

func writing(kind topology.Kind, name string) permission {
	return permission{Right: plan.Right{Permission: plan.Write, Kind: kind, Name: name}}
}

// ownRights returns the rights that every run needs on its hold, locks and exchanges, all of which
// have names that begin in the same way, and on the exchange through which lists are written.
func (d *Desk) ownRights(run string) []permission {
	hold := topology.HoldName(d.Topology.Name, run)
	return []permission{
		{Right: plan.Right{Permission: plan.Configure, Kind: topology.KindQueue, Name: hold}},
		{Right: plan.Right{Permission: plan.Write, Kind: topology.KindQueue, Name: hold}},
		{Right: plan.Right{Permission: plan.Read, Kind: topology.KindQueue, Name: hold}},
		writing(topology.KindExchange, topology.DefaultExchange),
	}
}

// rightsOf returns the rights that a run needs to send its messages. That it may take them is shown
// by the look that chose them.
func (d *Desk) rightsOf(m *manifest, state topology.State) []permission {
	needs := d.ownRights(m.Run)
	if m.parks() {
		needs = append(needs, permission{Right: plan.Right{
			Permission: plan.Configure, Kind: topology.KindQueue, Name: topology.ParkedName(d.Topology.Name),
		}})
	}
	if len(m.Listen) > 0 { // it holds the lock of the topology while it binds
		needs = append(needs, permission{Right: plan.Right{
			Permission: plan.Read, Kind: topology.KindExchange, Name: topology.FailedExchangeName(d.Topology.Name),
		}}, permission{Right: plan.Right{
			Permission: plan.Configure, Kind: topology.KindQueue, Name: topology.LockName(d.Topology.Name),
		}})
	}
	goes := m.Action.Kind().goes
	switch t := m.Target; {
	case goes == toOrigin, t == (Target{}):
		bound := returnable(d.Topology.Name, state)
		for _, queue := range m.sendsTo() {
			if bound[queue] && goes == toWork {
				needs = append(needs, writing(topology.KindExchange, topology.ReturnExchangeName(d.Topology.Name)))
			} else {
				needs = append(needs, writing(topology.KindQueue, queue)) // it is bound to an exchange of the run
			}
		}
	case t.Queue != "", t.Exchange == "" && t.Key != "": // it is bound to an exchange of the run
		p := writing(topology.KindQueue, cmp.Or(t.Queue, t.Key))
		_, work := d.Topology.WorkQueue(p.Name)
		p.foreign = !work
		needs = append(needs, p)
	default:
		for _, exchange := range m.Through {
			if exchange != "" {
				p := writing(topology.KindExchange, exchange)
				p.foreign = true
				needs = append(needs, p)
			}
		}
	}
	return needs
}

// rightsToReturn returns the rights that it takes to put messages back into the queues that they
// were taken from: those are bound to an exchange of the run. Parked messages go back through the
// default exchange.
func (d *Desk) rightsToReturn(run string, queues map[string]int) []permission {
	needs := d.ownRights(run)
	for queue := range queues {
		if queue != "" && queue != topology.ParkedName(d.Topology.Name) {
			needs = append(needs, writing(topology.KindQueue, queue))
		}
	}
	return needs
}

// permit refuses, before anything moves, what the broker would refuse halfway: it checks that the
// user has the rights, and may ask how many messages wait in the queues watch.
func (d *Desk) permit(ctx context.Context, needs []permission, watch []string) error {
	conn, err := amqp.Dial(ctx, d.endpoint("checks rights"))
	if err != nil {
		return err
	}
	defer conn.Close()
	rights := text.Each(needs, func(p permission) plan.Right { return p.Right })
	lacking, err := d.Management.Lacking(ctx, conn, slices.Compact(rights))
	if err != nil {
		return fmt.Errorf("read the rights of the user: %w", err)
	}
	var own, foreign []string
	for _, r := range lacking {
		said := fmt.Sprintf("%s on the %s %s", r.Permission, r.Kind, d.rightName(r.Name))
		if slices.Contains(needs, permission{Right: r, foreign: true}) {
			foreign = append(foreign, said)
		} else {
			own = append(own, said)
		}
	}
	for _, queue := range watch {
		// 4.3 answers only a user who has any right on the queue.
		if _, err := conn.MessagesReady(queue); errors.Is(err, broker.ErrForbidden) {
			said := "write on the queue " + text.Name(queue) + ", which it takes to ask how many messages wait there"
			if _, work := d.Topology.WorkQueue(queue); work {
				own = append(own, said)
			} else {
				foreign = append(foreign, said)
			}
		}
	}
	return d.lacks(own, foreign)
}

// lacks returns the refusal of a user who lacks rights: own are those that 'dlxctl rights' prints.
func (d *Desk) lacks(own, foreign []string) error {
	user := d.Endpoint.AMQP.User
	var fixes []string
	if len(own) > 0 {
		fixes = append(fixes, broker.GrantHintFrom(d.rightsCommand(), "desk", user))
	}
	if len(foreign) > 0 {
		fixes = append(fixes, fmt.Sprintf(
			"add %s to the permissions of %s with rabbitmqctl set_permissions, as 'dlxctl rights' prints only those for the queues of the topology",
			text.Choose(len(foreign), "the right", "the rights on targets outside the topology"), text.ShellQuote(user)))
	}
	lacking := append(slices.Clone(own), foreign...)
	if len(lacking) == 0 {
		return nil
	}
	return refusef("user %q lacks %s; %s", user, text.List(lacking), strings.Join(fixes, ", and "))
}

// rightsCommand is the command that prints the rights of people at the desk.
func (d *Desk) rightsCommand() string {
	if d.Found != nil {
		return "dlxctl rights --desk"
	}
	return "dlxctl rights"
}

// rightName returns how a person writes the object of a right: all that belongs to runs has names
// that begin in the same way.
func (d *Desk) rightName(name string) string {
	if topology.IsHoldName(d.Topology.Name, name) {
		return text.Name(topology.HoldName(d.Topology.Name, "*"))
	}
	return text.Name(name)
}

// mayRead explains the refusal of the broker to deliver the messages of a queue.
func (d *Desk) mayRead(queue string, err error) error {
	if !errors.Is(err, broker.ErrForbidden) {
		return err
	}
	_, work := d.Topology.WorkQueue(queue)
	fix := fmt.Sprintf("add it to the permissions of %s with rabbitmqctl set_permissions", text.ShellQuote(d.Endpoint.AMQP.User))
	if d.ownsQueue(queue) {
		fix = broker.GrantHintFrom("dlxctl rights", "desk-reader, or desk,", d.Endpoint.AMQP.User)
	} else if work {
		fix = broker.GrantHintFrom(d.rightsCommand(), "desk-pull", d.Endpoint.AMQP.User)
	}
	return refusef("user %q lacks read on the queue %s; %s", d.Endpoint.AMQP.User, text.Name(queue), fix)
}

// ownsQueue reports whether a queue of the topology holds dead letters or parked messages. Without
// a file, it reports false: 'dlxctl rights' prints nothing.
func (d *Desk) ownsQueue(queue string) bool {
	name := d.Topology.Name
	if d.Found != nil {
		return false
	}
	return name != "" && (slices.Contains(d.DeadLetterQueues(), queue) || queue == topology.ParkedName(name) ||
		queue == topology.UnroutableName(name) || queue == topology.LogName(name) || topology.IsHoldName(name, queue))
}
