package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Saved is a plan that was kept in a file, with what it takes to make it again:
// apply carries it out only if the broker still leads to the same plan.
type Saved struct {
	Want    topology.Topology
	Options Options
	// VHost and Cluster are those that the plan was made for.
	VHost, Cluster string
	// Fingerprint is that of the plan.
	Fingerprint string
	// changes are those that the plan showed, a line each.
	changes []string
}

// MaxSavedBytes is the size of the largest saved plan that is read: twice what
// making a topology of 20,000 queues takes.
const MaxSavedBytes = 256 << 20

// ErrStale is wrapped by the error of Check for a saved plan that no longer holds.
var ErrStale = errors.New("the saved plan no longer holds")

// savedJSON is the file: the plan as plan -o json prints it, for people and
// scripts, and behind it what was wanted. It holds no credentials.
type savedJSON struct {
	Plan    planJSON          `json:"plan"`
	Options Options           `json:"options"`
	Want    topology.Topology `json:"want"`
}

// Save writes p, which was made from want with o.
func Save(w io.Writer, p Plan, want topology.Topology, o Options, dlxctl string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(savedJSON{Plan: newPlanJSON(p, dlxctl), Options: o, Want: want})
}

// ReadSaved reads what Save has written.
func ReadSaved(r io.Reader) (Saved, error) {
	var s struct { // what apply needs of it: the changes are made again
		Plan struct {
			Version     int        `json:"version"`
			VHost       string     `json:"vhost"`
			Broker      brokerJSON `json:"broker"`
			Fingerprint string     `json:"fingerprint"`
			Changes     []struct {
				Action Action        `json:"action"`
				Kind   topology.Kind `json:"kind"`
				Name   string        `json:"name"`
			} `json:"changes"`
		} `json:"plan"`
		Options Options           `json:"options"`
		Want    topology.Topology `json:"want"`
	}
	rest := &io.LimitedReader{R: r, N: MaxSavedBytes + 1}
	err := json.NewDecoder(rest).Decode(&s)
	switch {
	case rest.N == 0:
		return Saved{}, fmt.Errorf("this is no saved plan: it is larger than %d MiB; plan again, with a smaller topology", MaxSavedBytes>>20)
	case err != nil:
		return Saved{}, fmt.Errorf("this is no saved plan: %w", err)
	case s.Plan.Version > 1:
		return Saved{}, fmt.Errorf("this is a saved plan of version %d, and this release reads version 1; make it again", s.Plan.Version)
	case s.Plan.Version < 1 || s.Plan.Fingerprint == "" || s.Want.Name == "":
		return Saved{}, errors.New("this is no saved plan: it has no version, fingerprint or topology")
	}
	var changes []string
	for _, c := range s.Plan.Changes {
		changes = append(changes, title(c.Action, c.Kind, c.Name))
	}
	return Saved{
		Want: s.Want, Options: s.Options, VHost: s.Plan.VHost, Cluster: s.Plan.Broker.Cluster, Fingerprint: s.Plan.Fingerprint,
		changes: changes,
	}, nil
}

// title names a change in a few words.
func title(action Action, kind topology.Kind, name string) string {
	return fmt.Sprintf("%s %s %s", action, kind, topology.Printable(name))
}

// Check refuses p, made just now, unless it is the plan that was saved.
func (s Saved) Check(p Plan) error {
	switch {
	case p.VHost != s.VHost || p.Cluster != s.Cluster:
		return fmt.Errorf("%w: it was made for vhost %q of cluster %q, and this is vhost %q of cluster %q", ErrStale, s.VHost, s.Cluster, p.VHost, p.Cluster)
	case p.Fingerprint != s.Fingerprint:
		return fmt.Errorf("%w: the broker has changed since it was made%s; plan again", ErrStale, s.difference(p))
	}
	return nil
}

// difference names the first change that only one of the two plans has. It is empty
// if both have the same, and differ in what the broker had before.
func (s Saved) difference(p Plan) string {
	var now []string
	for _, c := range p.Changes {
		now = append(now, title(c.Action, c.Kind, c.Name))
	}
	only := func(a, b []string) (string, bool) {
		i := slices.IndexFunc(a, func(line string) bool { return !slices.Contains(b, line) })
		if i < 0 {
			return "", false
		}
		return a[i], true
	}
	if line, ok := only(now, s.changes); ok {
		return fmt.Sprintf(": a plan made now has %q as well", line)
	}
	if line, ok := only(s.changes, now); ok {
		return fmt.Sprintf(": a plan made now has no %q", line)
	}
	return ""
}
