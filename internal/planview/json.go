package planview

import (
	"io"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// planJSON is a plan as scripts read it. Its fields are a contract: they may be
// added to, under version 1, and not changed.
type planJSON struct {
	Version     int                 `json:"version"`
	Dlxctl      string              `json:"dlxctl"`
	Topology    string              `json:"topology"`
	VHost       string              `json:"vhost"`
	Broker      brokerJSON          `json:"broker"`
	Fingerprint string              `json:"fingerprint"`
	Summary     map[plan.Action]int `json:"summary"`
	Changes     []changeJSON        `json:"changes"`
	Drift       []changeJSON        `json:"drift"`
	Warnings    []warningJSON       `json:"warnings"`
	// Unchanged counts the objects of the file that are on the broker as the file wants them.
	Unchanged int `json:"unchanged"`
	// Backoffs are those whose tiers change.
	Backoffs []rescheduleJSON `json:"backoffs"`
}

// rescheduleJSON is a backoff whose tiers change. The delays are those of the attempts, in order.
type rescheduleJSON struct {
	Name     string        `json:"name"`
	Before   []string      `json:"before"`
	After    []string      `json:"after"`
	Queues   []string      `json:"queues"`
	Position *positionJSON `json:"position,omitempty"`
}

// positionJSON is where a file declares an object.
type positionJSON struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

type brokerJSON struct {
	Version string `json:"version"`
	Cluster string `json:"cluster"`
}

type changeJSON struct {
	Action  plan.Action   `json:"action"`
	Kind    topology.Kind `json:"kind"`
	Name    string        `json:"name"`
	Fields  []fieldJSON   `json:"fields"`
	Hazards []plan.Hazard `json:"hazards"`
	Reason  string        `json:"reason"`
	Stake   *stakeJSON    `json:"stake,omitempty"`
	// Owner is that of the work queue that the object serves.
	Owner    string        `json:"owner,omitempty"`
	Position *positionJSON `json:"position,omitempty"`
	*bindingJSON
}

// stakeJSON is what a queue holds.
type stakeJSON struct {
	Ready          int64 `json:"ready"`
	Unacknowledged int64 `json:"unacknowledged"`
	Consumers      int64 `json:"consumers"`
	Bytes          int64 `json:"bytes"`
	// ConsumersUnknown says that consumers is 0 because the broker did not report them.
	ConsumersUnknown bool `json:"consumersUnknown,omitempty"`
}

// bindingJSON is what a binding has in place of a name.
type bindingJSON struct {
	Source          string             `json:"source"`
	Destination     string             `json:"destination"`
	DestinationType string             `json:"destinationType"`
	Key             string             `json:"key"`
	Arguments       topology.Arguments `json:"arguments"`
}

type fieldJSON struct {
	Name   string `json:"name"`
	Before any    `json:"before"`
	After  any    `json:"after"`
	// Fix says what to write in the file so that a blocked object can stay as it is.
	Fix string `json:"fix,omitempty"`
}

type warningJSON struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// WriteJSON writes p for scripts. dlxctl is the version of the program.
func WriteJSON(w io.Writer, p plan.Plan, dlxctl string) error {
	return text.WriteJSON(w, newPlanJSON(p, dlxctl))
}

func newPlanJSON(p plan.Plan, dlxctl string) planJSON {
	out := planJSON{
		Version: 1, Dlxctl: dlxctl, Topology: p.Topology, VHost: p.VHost,
		Broker: brokerJSON{p.Version, p.Cluster}, Fingerprint: p.Fingerprint,
		Summary: map[plan.Action]int{}, Changes: changesJSON(p, p.Changes), Drift: changesJSON(p, p.Drift),
		Warnings:  []warningJSON{},
		Unchanged: p.Unchanged, Backoffs: []rescheduleJSON{},
	}
	for _, a := range plan.Actions() {
		out.Summary[a] = p.Count(a)
	}
	for _, warning := range p.Warnings {
		out.Warnings = append(out.Warnings, warningJSON(warning))
	}
	for _, r := range p.Rescheduled {
		out.Backoffs = append(out.Backoffs, rescheduleJSON{
			r.After.Name, delaysOf(r.Before), delaysOf(r.After), r.Queues, newPositionJSON(r.After.Place),
		})
	}
	return out
}

// newPositionJSON returns nil for a place that is nowhere.
func newPositionJSON(p topology.Place) *positionJSON {
	if p.IsZero() {
		return nil
	}
	return &positionJSON{p.File, p.Line}
}

// delaysOf returns the delay of each attempt.
func delaysOf(b topology.Backoff) []string {
	out := []string{}
	for _, tier := range b.Tiers {
		out = append(out, topology.FormatDelay(tier.Delay))
	}
	return out
}

func changesJSON(p plan.Plan, changes []plan.Change) []changeJSON {
	owners := map[string]string{} // by work queue
	for _, w := range p.WorkQueues {
		owners[w.Name] = w.Owner
	}
	out := make([]changeJSON, 0, len(changes))
	for _, c := range changes {
		j := changeJSON{
			Action: c.Action, Kind: c.Kind, Name: c.Name, Fields: []fieldJSON{}, Hazards: []plan.Hazard{},
			Reason: c.Reason, Owner: ownerOf(c, owners), Position: newPositionJSON(placeOf(p, c)),
		}
		for _, f := range c.Fields {
			j.Fields = append(j.Fields, fieldJSON{f.Name, f.Before, f.After, c.Fixes[f.Name]})
		}
		j.Hazards = append(j.Hazards, c.Hazards...)
		if c.AtMostOnce {
			j.Hazards = append(j.Hazards, topology.AtMostOnce)
		}
		if c.Stake != nil {
			j.Stake = &stakeJSON{
				c.Stake.Ready, c.Stake.Unacknowledged, c.Stake.Consumers, c.Stake.Bytes,
				c.Stake.ConsumersUnknown,
			}
		}
		if b, ok := c.Object().(topology.Binding); ok {
			args := b.Arguments
			if args == nil {
				args = topology.Arguments{}
			}
			j.bindingJSON = &bindingJSON{b.Source, b.Destination, b.DestinationType, b.Key, args}
		}
		out = append(out, j)
	}
	return out
}
