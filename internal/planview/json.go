package planview

import (
	"io"
	"slices"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Document is a plan as scripts read it. Its fields are a contract: they may be
// added to, under version 1, and not changed. docs/json.md lists its keys.
type Document struct {
	Version     int                 `json:"version"`
	Dlxctl      string              `json:"dlxctl"`
	Topology    string              `json:"topology"`
	VHost       string              `json:"vhost"`
	Broker      brokerJSON          `json:"broker"`
	Fingerprint string              `json:"fingerprint"`
	Summary     map[plan.Action]int `json:"summary"`
	Changes     []changeJSON        `json:"changes"`
	Drift       []changeJSON        `json:"drift"`
	Warnings    []plan.Warning      `json:"warnings"`
	// Unchanged counts the objects of the file that are on the broker as the file wants them.
	Unchanged int `json:"unchanged"`
	// Backoffs are those whose tiers change.
	Backoffs []rescheduleJSON `json:"backoffs"`
}

// rescheduleJSON is a backoff whose tiers change. The delays are those of the attempts, in order.
type rescheduleJSON struct {
	Name     string         `json:"name"`
	Before   []string       `json:"before"`
	After    []string       `json:"after"`
	Queues   []string       `json:"queues"`
	Position topology.Place `json:"position,omitzero"`
}

type brokerJSON struct {
	Version string `json:"version"`
	Cluster string `json:"cluster"`
}

type changeJSON struct {
	Action  plan.Action       `json:"action"`
	Kind    topology.Kind     `json:"kind"`
	Name    string            `json:"name"`
	Fields  []fieldJSON       `json:"fields"`
	Hazards []topology.Hazard `json:"hazards"`
	Reason  string            `json:"reason"`
	Stake   *topology.Usage   `json:"stake,omitempty"`
	// Replacement is what the broker shows of a queue that is to be replaced under its name. Only
	// dlxctl plan reads it.
	Replacement *plan.Replacement `json:"replacement,omitempty"`
	// Owner is that of the work queue that the object serves.
	Owner    string         `json:"owner,omitempty"`
	Position topology.Place `json:"position,omitzero"`
	// Source is the exchange from which a binding leads. Only a binding has it, and what follows.
	Source          *string             `json:"source,omitempty"`
	Destination     *string             `json:"destination,omitempty"`
	DestinationType *string             `json:"destinationType,omitempty"`
	Key             *string             `json:"key,omitempty"`
	Arguments       *topology.Arguments `json:"arguments,omitempty"`
}

type fieldJSON struct {
	plan.Field
	// Fix says what to write in the file so that a blocked object can stay as it is.
	Fix string `json:"fix,omitempty"`
}

// WriteJSON writes p for scripts. dlxctl is the version of the program, and process the command
// that starts a processor for the topology. Empty: dlxctl process.
func WriteJSON(w io.Writer, p plan.Plan, dlxctl, process string) error {
	return jsondoc.Write(w, newDocument(p, dlxctl, process))
}

func newDocument(p plan.Plan, dlxctl, process string) Document {
	out := Document{
		Version: 1, Dlxctl: dlxctl, Topology: p.Topology, VHost: p.VHost,
		Broker: brokerJSON{p.Version, p.Cluster}, Fingerprint: p.Fingerprint,
		Summary: map[plan.Action]int{}, Changes: changesJSON(p, p.Changes), Drift: changesJSON(p, p.Drift),
		Warnings: withProcessor(p, process), Unchanged: p.Unchanged,
	}
	for _, a := range plan.Actions() {
		out.Summary[a] = p.Count(a)
	}
	for _, r := range p.Rescheduled {
		out.Backoffs = append(out.Backoffs, rescheduleJSON{
			r.After.Name, delaysOf(r.Before), delaysOf(r.After), r.Queues, r.After.Place,
		})
	}
	return out
}

func delaysOf(b topology.Backoff) []string {
	return text.Each(b.Tiers, func(t topology.Tier) string { return text.Duration(t.Delay) })
}

func changesJSON(p plan.Plan, changes []plan.Change) []changeJSON {
	owners := ownersOf(p)
	out := make([]changeJSON, 0, len(changes))
	for _, c := range changes {
		j := changeJSON{
			Action: c.Action, Kind: c.Kind, Name: c.Name, Hazards: slices.Clone(c.Hazards), Reason: c.Reason,
			Stake: c.Stake, Replacement: c.Replacement, Owner: ownerOf(c, owners), Position: placeOf(p, c),
		}
		for _, f := range c.Fields {
			j.Fields = append(j.Fields, fieldJSON{f, c.Fixes[f.Name]})
		}
		if c.AtMostOnce {
			j.Hazards = append(j.Hazards, topology.AtMostOnce)
		}
		if b, ok := c.Object().(topology.Binding); ok {
			j.Source, j.Destination, j.DestinationType = &b.Source, &b.Destination, &b.DestinationType
			j.Key, j.Arguments = &b.Key, &b.Arguments
		}
		out = append(out, j)
	}
	return out
}
