package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

// Runs returns the runs of the topology that have not ended, oldest first. It consumes nothing from
// the holds, and asks each how many messages it has. Where that does not tell all, Run.Age says so.
func (d *Desk) Runs(ctx context.Context) ([]Run, error) {
	asked := d.now()
	state, err := d.inspect(ctx)
	if err != nil {
		return nil, err
	}
	if d.Topology.Name == "" {
		return nil, nil // a run has the name of its topology
	}
	exact := d.askHolds(ctx, &state)
	runs := RunsOf(d.Topology.Name, state, asked)
	for i, r := range runs {
		if exact[topology.HoldName(d.Topology.Name, r.ID)] {
			runs[i].Age = 0
		}
	}
	return runs, nil
}

// askHolds asks the holds how many messages are ready, and notes it in the usage of state. It
// returns the holds of which that is all: no consumer has others. A hold that does not answer keeps
// what the statistics tell, and so does one that answers with 0, as its leader may be silent: each
// hold has a list.
func (d *Desk) askHolds(ctx context.Context, state *topology.State) (exact map[string]bool) {
	exact = map[string]bool{}
	runs := RunsOf(d.Topology.Name, *state, time.Time{})
	if len(runs) == 0 {
		return exact
	}
	conn, err := d.Management.Connection(ctx)
	if err != nil {
		return exact // a user who reaches only the management API
	}
	state.Usage = maps.Clone(state.Usage)
	for _, r := range runs {
		hold := topology.HoldName(d.Topology.Name, r.ID)
		ready, consumers, err := conn.Holds(hold)
		usage := state.Usage[hold]
		switch {
		case err != nil, ready == 0:
			continue
		case consumers == 0:
			usage.Unacknowledged, exact[hold] = 0, true
		}
		usage.Ready = int64(ready)
		state.Usage[hold] = usage
	}
	return exact
}

// RunsOf returns the runs of a topology in a virtual host, oldest first. The broker was asked for
// the state no earlier than asked.
func RunsOf(name string, state topology.State, asked time.Time) []Run {
	queues := map[string]bool{}
	for _, q := range state.Have.Queues {
		queues[q.Name] = true
	}
	var out []Run
	for _, q := range state.Have.Queues {
		id, ok := topology.HoldRun(name, q.Name)
		if !ok || q.Arguments[topology.ArgManagedBy] != topology.DeskMark(name) {
			continue
		}
		var s described
		value, _ := q.Arguments[argRun].(string)
		_ = json.Unmarshal([]byte(value), &s) // what it does not tell stays empty
		r := Run{
			ID: id, Action: s.Action, Queue: s.Queue, Phase: Sending, By: s.By, Reason: s.Reason, Started: s.Started,
			Chosen: s.Chosen, Target: s.Target, Send: s.Send, Keep: s.Keep, Forever: s.Forever,
			Active: queues[topology.DeskWorkerName(name, id)],
			Age:    statisticsAge,
		}
		records := s.Records + 1 // that all is taken
		if s.Action.Kind().Live {
			records++ // that all is copied
		}
		if hasIntake(state, name, id) {
			r.Phase, records = Taking, s.Records
		}
		usage := state.Usage[q.Name]
		messages := int(usage.Ready + usage.Unacknowledged)
		r.Holds = max(0, messages-records)
		if s.Action.Kind().Edits {
			// Its one message. What else the hold has is the note that the edited message was sent.
			r.Holds = min(r.Holds, 1)
		}
		// A busy broker may list its exchanges seconds before its queues, and so a new hold without its
		// take exchange. No run takes a message into a hold that was younger when the broker was
		// asked, see waitUntilDurable, and a hold without all of its records has nothing else.
		if r.Active && (asked.Sub(s.Started) < amqp.SafeAge || messages < records) {
			r.Phase = Taking
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Run) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Deletes reports whether the run deletes messages, in place of parking them.
func (r Run) Deletes() bool { return r.Action.Kind().deletes(r.Forever) }

// does names the action of the run, and whether it deletes messages.
func (r Run) does() string {
	if r.Deletes() {
		return string(r.Action) + " forever"
	}
	return string(r.Action)
}

// hasIntake reports whether a run has not taken all of its messages.
func hasIntake(state topology.State, name, run string) bool {
	return slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool {
		return strings.HasPrefix(e.Name, takeExchangePrefix(name, run))
	})
}
