package planview

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Saved is a plan from a file, with all that is needed to plan again: apply carries it out only
// if a new plan for the broker is the same.
type Saved struct {
	Want topology.Compiled
	// Options are those of the plan, with a consent for each object in place of one for every change.
	Options plan.Options
	// VHost and Cluster name the broker for which the plan was made.
	VHost, Cluster string
	// Fingerprint is that of the plan.
	Fingerprint string
	// Source is what the plan was made from.
	Source Source
	// Dlxctl is the version that saved it.
	Dlxctl string
	// changes has a line for each change that the plan showed, and hazards a consent for each object
	// that it showed with a hazard.
	changes []string
	hazards []plan.Consent
}

// Source names what a plan was made from, as the command line of plan does, for the commands that a
// later apply prints.
type Source struct {
	Files    []string `json:"files,omitempty"`
	Overlays []string `json:"overlays,omitempty"`
	VHost    string   `json:"vhost,omitempty"` // of --vhost
}

// maxSavedBytes is the size of the largest saved plan that is read: twice what
// making a topology of 20,000 queues takes.
const maxSavedBytes = 256 << 20

// savedJSON is the file: the plan as plan -o json prints it, for people and
// scripts, and behind it what was wanted. It holds no credentials.
type savedJSON struct {
	Plan    Document        `json:"plan"`
	Source  Source          `json:"source"`
	Options plan.Options    `json:"options"`
	Hazards []plan.Consent  `json:"hazards"`
	Want    json.RawMessage `json:"want"` // in the form of its own tags
}

// Save writes p, which was made with o from want, and that from source. dlxctl and process are as
// for [WriteJSON]. The fingerprint does not cover what queues hold: a consent for every change is
// saved as one for each object that p shows with the hazard, so that it allows no more later.
func Save(w io.Writer, p plan.Plan, want topology.Compiled, source Source, o plan.Options,
	dlxctl, process string,
) error {
	wanted, err := json.Marshal(want)
	if err != nil {
		return err
	}
	o.Allow = p.Narrowed(o.Allow)
	hazards := p.Narrowed(plan.Allow(topology.Hazards()...))
	return jsondoc.Write(w, savedJSON{newDocument(p, dlxctl, process), source, o, hazards, wanted})
}

// ReadSaved reads what Save has written.
func ReadSaved(r io.Reader) (Saved, error) {
	var s struct { // what apply needs of it: the changes are made again
		Plan struct {
			Version     int        `json:"version"`
			Dlxctl      string     `json:"dlxctl"`
			VHost       string     `json:"vhost"`
			Broker      brokerJSON `json:"broker"`
			Fingerprint string     `json:"fingerprint"`
			Changes     []struct {
				Action plan.Action   `json:"action"`
				Kind   topology.Kind `json:"kind"`
				Name   string        `json:"name"`
			} `json:"changes"`
		} `json:"plan"`
		Source  Source            `json:"source"`
		Options plan.Options      `json:"options"`
		Hazards []plan.Consent    `json:"hazards"`
		Want    topology.Compiled `json:"want"`
	}
	rest := &io.LimitedReader{R: r, N: maxSavedBytes + 1}
	err := json.NewDecoder(rest).Decode(&s)
	switch {
	case rest.N == 0:
		return Saved{}, fmt.Errorf("this is not a saved plan: it is larger than %d MiB; run plan again with a smaller topology", maxSavedBytes>>20)
	case err != nil:
		return Saved{}, fmt.Errorf("this is not a saved plan: %w", err)
	case s.Plan.Version > 1:
		return Saved{}, fmt.Errorf("this is a saved plan of version %d, and this release reads version 1; run plan again",
			s.Plan.Version)
	case s.Plan.Version < 1 || s.Plan.Fingerprint == "" || s.Want.Name == "":
		return Saved{}, errors.New("this is not a saved plan: it has no version, fingerprint or topology")
	}
	var changes []string
	for _, c := range s.Plan.Changes {
		changes = append(changes, title(c.Action, c.Kind, c.Name))
	}
	return Saved{
		Want: s.Want, Options: s.Options, VHost: s.Plan.VHost, Cluster: s.Plan.Broker.Cluster,
		Fingerprint: s.Plan.Fingerprint, Source: s.Source, Dlxctl: s.Plan.Dlxctl,
		changes: changes, hazards: s.Hazards,
	}, nil
}

// Narrowed returns allow with a consent for each object that the saved plan showed with the hazard,
// in place of one for every change.
func (s Saved) Narrowed(allow []plan.Consent) []plan.Consent {
	var out []plan.Consent
	for _, a := range allow {
		if a.Object != "" {
			out = append(out, a)
			continue
		}
		for _, shown := range s.hazards {
			if shown.Hazard == a.Hazard {
				out = append(out, shown)
			}
		}
	}
	return out
}

// title names a change in a few words.
func title(action plan.Action, kind topology.Kind, name string) string {
	return fmt.Sprintf("%s %s %s", action, kind, topology.Printable(name))
}

// CheckVersion refuses a plan that another version of dlxctl has saved. The fingerprint covers what
// is changed, and not how: in which steps a version does it, and what it does not know of the file.
func (s Saved) CheckVersion(dlxctl string) error {
	if s.Dlxctl == dlxctl {
		return nil
	}
	return fmt.Errorf("dlxctl %s saved this plan, and this is dlxctl %s, which may carry it out in another way; run plan again with this one, or apply with the other",
		s.Dlxctl, dlxctl)
}

// Check refuses p, made just now, unless it is the plan that was saved.
func (s Saved) Check(p plan.Plan) error {
	switch {
	case p.VHost != s.VHost || p.Cluster != s.Cluster:
		return fmt.Errorf("the saved plan was made for vhost %q of cluster %q, and this is vhost %q of cluster %q; nothing was written; connect to that broker, or make a plan for this one",
			s.VHost, s.Cluster, p.VHost, p.Cluster)
	case p.Fingerprint != s.Fingerprint && p.Empty() && len(s.changes) > 0:
		return errors.New("the saved plan is stale: the broker has changed since the plan was made, and none of its changes is needed any more; nothing was written; 'dlxctl plan' shows that there are no changes")
	case p.Fingerprint != s.Fingerprint:
		difference := s.difference(p)
		if difference == "" { // another build of one version may word reasons in another way, and they count
			difference = ", or the build of dlxctl has: a new plan has the same changes, and differs in their details"
		}
		return fmt.Errorf("the saved plan is stale: the broker has changed since the plan was made%s; nothing was written; save a new plan with 'dlxctl plan --save', read it, and apply that one",
			difference)
	}
	return nil
}

// difference says how many changes only one of the two plans has, and names the first. It is empty
// if both have the same, and differ in what the broker had before.
func (s Saved) difference(p plan.Plan) string {
	now := text.Each(p.Changes, func(c plan.Change) string { return title(c.Action, c.Kind, c.Name) })
	only := func(a, b []string) []string {
		in := map[string]bool{}
		for _, line := range b {
			in[line] = true
		}
		return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return in[line] })
	}
	first := func(lines []string) string {
		more := ""
		if len(lines) > 1 {
			more = fmt.Sprintf(" and %d more", len(lines)-1)
		}
		return fmt.Sprintf("%q%s", lines[0], more)
	}
	added, dropped := only(now, s.changes), only(s.changes, now)
	switch {
	case len(added) > 0 && len(dropped) > 0:
		return fmt.Sprintf(": a new plan has %s in addition, and no longer has %s", first(added), first(dropped))
	case len(added) > 0:
		return fmt.Sprintf(": a new plan has %s in addition", first(added))
	case len(dropped) > 0:
		return fmt.Sprintf(": a new plan no longer has %s", first(dropped))
	}
	return ""
}
