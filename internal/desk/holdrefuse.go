package desk

import (
	"maps"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// refusePolicies refuses queues of the desk whose messages a policy of another team would delete,
// drop or move.
func (d *Desk) refusePolicies(state topology.State, queues ...topology.Queue) error {
	for _, q := range queues {
		if harm := plan.DeskHarm(d.Topology.Name, state, q); harm != "" {
			return refusef("%s", harm)
		}
	}
	return nil
}

// refuseHarm refuses to put more messages into queues of a run whose messages a policy would
// delete, drop or move that was set since the run began: into the parked ones, and into the hold if
// it takes. It refuses to take from a stream.
func (w *worker) refuseHarm(state topology.State, m *manifest, takes bool) error {
	var filled []topology.Queue
	if takes {
		if err := refuseStream(state, m.Queue); err != nil {
			return err
		}
		hold, err := w.desk.holdOf(m)
		if err != nil {
			return err
		}
		filled = append(filled, hold)
	}
	if m.parks() {
		filled = append(filled, w.desk.parked())
	}
	return w.desk.refusePolicies(state, filled...)
}

// refuseAlarm refuses to begin, or to continue, what publishes while the broker accepts no
// messages. The process would stand still, and a run that takes would end with an error, its
// messages in its hold and on their way there. One that has begun before the alarm goes on after
// it.
func refuseAlarm(state topology.State) error {
	if state.Alarm == "" {
		return nil
	}
	return refusef("the broker accepts no messages at the moment (%s), and a run publishes each; end the alarm of the broker first",
		state.Alarm)
}

// refuseUnfinished refuses a queue from which another run has not taken all, or to which one has
// not given back all: what a process was moving when it died is in the hold and in the queue too
// until that run is continued, and would be taken twice. This process has the lock of the queue: no
// other takes or begins to give back.
func (w *worker) refuseUnfinished(state topology.State, queue string) error {
	for _, name := range deskNames(state) {
		if err := w.refuseUnfinishedOf(name, state, queue); err != nil {
			return err
		}
	}
	return nil
}

// deskNames names the topologies of which a desk has a hold, sorted.
func deskNames(state topology.State) []string {
	names := map[string]bool{}
	for _, q := range state.Have.Queues {
		if _, isHold := q.Arguments[argRun]; isHold {
			owner, _ := topology.Owner(q.Arguments)
			names[survey.DeskOwner(owner)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// refuseUnfinishedOf is refuseUnfinished for the runs of a topology.
func (w *worker) refuseUnfinishedOf(name string, state topology.State, queue string) error {
	for _, r := range RunsOf(name, state, time.Time{}) {
		if r.Queue != queue || r.ID == w.run {
			continue
		}
		back := stepExchange(name, r.ID, recordReturning)
		of := ""
		if name != w.desk.Topology.Name {
			of = " --name " + text.ShellQuote(name)
		}
		switch {
		case slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == back }):
			return refusef("the run %s has begun to give messages back to %s, and some may be in its hold too; end it first with 'dlxctl desk run return %s%s'",
				r.ID, text.Name(queue), r.ID, of)
		case hasIntake(state, name, r.ID):
			return refusef("the run %s has not taken all of its messages from %s, and some may be in its hold too; continue it first with 'dlxctl desk run resume %s%s', or end it with 'dlxctl desk run return %s%s'",
				r.ID, text.Name(queue), r.ID, of, r.ID, of)
		}
	}
	return nil
}
