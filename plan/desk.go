package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// desk is what the desk of a topology has on the broker: the holds of its runs, the queue of
// parked messages, that of the records of runs, the exclusive queues of its processes, and the
// exchanges through which runs take and send. No file declares them and only the desk deletes them.
// A plan is made as if they did not exist: none of them is drift, a binding to one of them gives
// dead letters no place to stay, and no plan becomes stale because of a run.
type desk struct {
	topology  string
	queues    map[string]topology.Queue
	exchanges map[string]bool
	usage     map[string]topology.Usage
	consulted consulted
	// listens are the exchanges to which a process of the desk is bound, which hears there which
	// messages fail again, or the queue of a run of verify. bindings are these bindings.
	listens  map[string]bool
	bindings []topology.Binding
}

func deskOf(topologyName string, state topology.State) desk {
	d := desk{
		topology: topologyName, queues: map[string]topology.Queue{}, exchanges: map[string]bool{},
		usage: state.Usage, listens: map[string]bool{},
	}
	for _, q := range state.Have.Queues {
		if topology.IsDeskQueue(topologyName, q) {
			d.queues[q.Name] = q
		}
	}
	if len(d.queues) == 0 {
		return d
	}
	for _, e := range state.Have.Exchanges {
		if e.Arguments[topology.ArgManagedBy] == topology.DeskMark(topologyName) {
			d.exchanges[e.Name] = true
		}
	}
	for _, b := range state.Have.Bindings {
		if d.binds(b) && b.Source != "" && !d.exchanges[b.Source] {
			d.listens[b.Source], d.bindings = true, append(d.bindings, b)
		}
	}
	return d
}

// binds reports whether a binding begins at an exchange of the desk or ends at a queue of it.
func (d desk) binds(b topology.Binding) bool {
	_, known := d.queues[b.Destination]
	return known && b.DestinationType == topology.ToQueue || d.exchanges[b.Source]
}

// without returns the state without what the desk has.
func (d desk) without(state topology.State) topology.State {
	if len(d.queues) == 0 {
		return state
	}
	state.Have.Queues = slices.DeleteFunc(slices.Clone(state.Have.Queues), func(q topology.Queue) bool {
		_, known := d.queues[q.Name]
		return known
	})
	state.Have.Exchanges = slices.DeleteFunc(slices.Clone(state.Have.Exchanges), func(e topology.Exchange) bool {
		return d.exchanges[e.Name]
	})
	state.Have.Bindings = slices.DeleteFunc(slices.Clone(state.Have.Bindings), d.binds)
	return state
}

// DeskQueue is a queue of the desk that holds messages.
type DeskQueue struct {
	Name string
	// Role is [topology.RoleHold], [topology.RoleParked] or [topology.RoleLog].
	Role topology.Role
	// Run is the run of a hold. Empty for the others.
	Run string
	// Active reports that a process works on the run.
	Active bool
	// Usage is what the queue holds. A hold also holds some messages in which the run notes
	// what it does.
	Usage topology.Usage
}

// DeskQueues returns the holds, the queue of parked messages and that of the records of runs of a
// topology, by name.
func DeskQueues(topologyName string, state topology.State) []DeskQueue {
	return deskOf(topologyName, state).list()
}

func (d desk) list() []DeskQueue {
	var out []DeskQueue
	for name, q := range d.queues {
		run, isHold := topology.HoldRun(d.topology, name)
		_, active := d.queues[topology.DeskWorkerName(d.topology, run)]
		queue := DeskQueue{Name: name, Run: run, Active: active, Usage: d.usage[name]}
		switch {
		case q.Exclusive, topology.IsVerifyQueue(d.topology, q), topology.IsSwitchName(d.topology, name):
			// It goes with its process, or soon after.
			continue
		case isHold:
			queue.Role = topology.RoleHold
		case topology.IsLog(d.topology, q):
			queue.Role, queue.Run, queue.Active = topology.RoleLog, "", false
		default:
			queue.Role, queue.Run, queue.Active = topology.RoleParked, "", false
		}
		out = append(out, queue)
	}
	slices.SortFunc(out, func(a, b DeskQueue) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// block blocks the changes that delete an exchange to which a process of the desk is bound: the
// broker would refuse to delete it, in the middle of the plan.
func (d desk) block(changes []Change) {
	for i, c := range changes {
		if c.Kind == topology.KindExchange && (c.Action == Delete || c.Action == Replace) && d.listens[c.Name] {
			changes[i] = Change{
				Action: Blocked, Kind: c.Kind, Name: c.Name, Before: c.Before, After: c.After, Label: c.Label,
				Reason: d.listener(c.Name),
			}
		}
	}
}

// listener says which queue of the desk, or of verify, is bound to an exchange, and what to do.
func (d desk) listener(exchange string) string {
	for _, b := range d.bindings {
		if b.Source == exchange && topology.IsVerifyQueue(d.topology, d.queues[b.Destination]) {
			return fmt.Sprintf("a run of 'dlxctl verify' is in progress, and its queue %s is bound here. Wait for its end; the broker deletes the queue of a run that was killed",
				text.Name(b.Destination))
		}
	}
	return "a run of the desk is in progress and listens here for messages that fail again. Wait for its end, or stop it: 'dlxctl desk run list' lists the runs, and 'dlxctl desk run cancel' stops one"
}

// leftBehind warns where changes delete what a run may send its messages to, or give them back
// to. Nothing is lost: what the run cannot send stays in its hold, or goes to the unroutable queue
// until the run notices that its work queue is not bound.
func (d desk) leftBehind(changes []Change) []Warning {
	var going []string
	for _, c := range changes {
		home := c.Kind == topology.KindQueue && slices.Contains([]topology.Role{
			topology.RoleWork, topology.RoleDeadLetter, topology.RoleUnroutable,
		}, c.Label.Role)
		exchange := c.Kind == topology.KindExchange && (c.Label.Role == topology.RoleBusiness ||
			c.Label.Role == topology.RoleReturn)
		if c.Action == Delete && (home || exchange) {
			going = append(going, text.Name(c.Name))
		}
	}
	if len(going) == 0 {
		return nil
	}
	slices.Sort(going)
	var out []Warning
	for _, q := range d.list() {
		switch {
		case q.Role == topology.RoleHold:
			out = append(out, Warning{topology.WarnDeskRun, fmt.Sprintf(
				"%s keeps the messages of a run of the desk, and this plan deletes %s: if the run needs that, it cannot send its messages, or cannot give them back, and what it sends until it stops may go to %s. Before you apply, list the runs with 'dlxctl desk run list', and end them with 'dlxctl desk run resume' or 'dlxctl desk run return'",
				text.Name(q.Name), text.Some(going), topology.UnroutableName(d.topology))})
		case q.Role == topology.RoleParked && q.Usage.Ready+q.Usage.Unacknowledged > 0:
			out = append(out, Warning{topology.WarnDeskParked, fmt.Sprintf(
				"%s keeps %s that a person parked, and this plan deletes %s; before you apply, give back with 'dlxctl desk restore' what still has to go there",
				text.Name(q.Name), text.Count(q.Usage.Ready+q.Usage.Unacknowledged, "message"), text.Some(going))})
		}
	}
	return out
}

// DeskSends says which run of a desk sends messages to a queue through an exchange of its own, or
// was stopped at that, and how to end it. It is empty if none does. No file has such a binding: no
// change deletes it before the queue, and what comes by it would go with the queue.
func DeskSends(queue string, bindings []topology.Binding) string {
	for _, b := range bindings {
		name, run, sends := topology.DeskSender(b)
		if sends && b.Destination == queue && b.DestinationType == topology.ToQueue {
			return fmt.Sprintf("the run %s of the desk of %s sends messages to it, or was stopped at that; wait for its end, or end it with 'dlxctl desk run resume %[1]s' or 'dlxctl desk run return %[1]s' (with --name %[3]s unless that is the topology of your file)",
				run, name, text.ShellQuote(name))
		}
	}
	return ""
}

// harmedDesk warns of policies of others that would lose messages of holds and parked messages. No
// policy of dlxctl overrides them: the desk refuses to begin a run where one is in effect.
func (r *resolver) harmedDesk() (f findings) {
	for _, q := range r.desk.list() {
		if q.Role == topology.RoleLog {
			continue // it has no message of a user
		}
		if harm := harmOf(r.want.Name, r.foreign, r.desk.queues[q.Name]); harm != "" {
			f.warn(topology.WarnDeskPolicy, harm)
		}
	}
	return f
}

// DeskHarm says which policies would lose messages of a queue that the desk of a topology has, or
// is about to declare. It is empty if none would.
func DeskHarm(topologyName string, state topology.State, q topology.Queue) string {
	return harmOf(topologyName, policy.Foreign(state, topologyName), q)
}

// harmOf says what the policies in effect on a queue do to dead letters in it. Empty: nothing.
func harmOf(top string, set *policy.Set, q topology.Queue) string {
	q.Label = topology.Label{Role: topology.RoleDeadLetter}
	var out []string
	say := func(kind string, p topology.Policy, keys []string) {
		for _, key := range keys {
			out = append(out, fmt.Sprintf("%s %s (pattern %s) would %s", kind, text.Name(p.Name), text.Name(p.Pattern),
				policy.Consequence(q, key, p.Definition, text.Name(q.Name))))
		}
	}
	base, keys := set.Harmful(q)
	say("the policy", base, keys)
	if p, ok := set.Operator(q); ok {
		say("the operator policy", p, set.Harms(q, p.Definition))
	}
	if len(out) == 0 {
		return ""
	}
	exclude := fmt.Sprintf("exclude %s from the pattern", text.Name(q.Name))
	if topology.IsHoldName(top, q.Name) { // the next run has another
		exclude = fmt.Sprintf("exclude the queues of all runs from the pattern, as ^(?!%s) does",
			regexp.QuoteMeta(topology.HoldName(top, "")))
	}
	return strings.Join(out, "; ") + "; " + exclude
}
