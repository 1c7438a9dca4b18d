package audit

import (
	"io"

	"github.com/dlxctl/dlxctl/internal/text"
)

// WriteJSON writes a result for programs to read, in a stable form with a version. Lists are never
// null. All findings are in it: notes, and those that the baseline accepts.
func WriteJSON(w io.Writer, r Result, program string) error {
	fates := r.Fates()
	d := resultJSON{
		Version: 1, Program: program, Source: r.Source,
		Summary: summaryJSON{
			Queues: fates[Kept] + fates[Endless] + fates[Lost] + fates[Undecided], Kept: fates[Kept],
			Endless: fates[Endless], Lost: fates[Lost], Unknown: fates[Undecided], Errors: r.Count(Error),
			Warnings: r.Count(Warning), Notes: r.Count(Note), Accepted: len(r.Accepted),
		},
		VHosts: []hostJSON{}, Findings: []findingJSON{},
		Baseline: baselineJSON{Expired: entriesJSON(r.Expired), Unmatched: entriesJSON(r.Unmatched)},
	}
	for _, report := range r.Reports {
		h := hostJSON{Name: report.VHost, Broker: report.Version, Fates: report.Fates, Unseen: report.Unseen}
		if h.Fates == nil {
			h.Fates = map[string]Fate{}
		}
		if h.Unseen == nil {
			h.Unseen = []string{}
		}
		d.VHosts = append(d.VHosts, h)
	}
	for _, f := range r.Findings {
		d.Findings = append(d.Findings, toJSON(f))
	}
	for _, a := range r.Accepted {
		f := toJSON(a.Finding)
		f.Accepted = &acceptedJSON{a.Entry.Reason, a.Entry.Until}
		d.Findings = append(d.Findings, f)
	}
	return text.WriteJSON(w, d)
}

type resultJSON struct {
	Version  int           `json:"version"`
	Program  string        `json:"dlxctl"`
	Source   string        `json:"source"`
	Summary  summaryJSON   `json:"summary"`
	VHosts   []hostJSON    `json:"vhosts"`
	Findings []findingJSON `json:"findings"`
	Baseline baselineJSON  `json:"baseline"`
}

type summaryJSON struct {
	Queues   int `json:"queues"`
	Kept     int `json:"kept"`
	Endless  int `json:"endless"`
	Lost     int `json:"lost"`
	Unknown  int `json:"unknown"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
	Accepted int `json:"accepted"`
}

type hostJSON struct {
	Name   string          `json:"name"`
	Broker string          `json:"broker"`
	Fates  map[string]Fate `json:"fates"`
	Unseen []string        `json:"unseen"`
}

type findingJSON struct {
	Rule        string        `json:"rule"`
	Severity    Severity      `json:"severity"`
	VHost       string        `json:"vhost"`
	Kind        string        `json:"kind"`
	Name        string        `json:"name"`
	Evidence    string        `json:"evidence"`
	Consequence string        `json:"consequence"`
	Remedy      string        `json:"remedy"`
	File        string        `json:"file,omitempty"`
	Line        int           `json:"line,omitempty"`
	Accepted    *acceptedJSON `json:"accepted,omitempty"`
}

type acceptedJSON struct {
	Reason string `json:"reason"`
	Until  string `json:"until,omitempty"`
}

type baselineJSON struct {
	Expired   []entryJSON `json:"expired"`
	Unmatched []entryJSON `json:"unmatched"`
}

type entryJSON struct {
	Rule   string `json:"rule"`
	Object string `json:"object"`
	VHost  string `json:"vhost,omitempty"`
	Until  string `json:"until,omitempty"`
}

func toJSON(f Finding) findingJSON {
	return findingJSON{
		Rule: f.Rule, Severity: f.Severity, VHost: f.VHost, Kind: string(f.Object.Kind), Name: f.DisplayName(),
		Evidence: f.Evidence, Consequence: f.Consequence, Remedy: f.Remedy, File: f.Position.File, Line: f.Position.Line,
	}
}

func entriesJSON(entries []Entry) []entryJSON {
	out := []entryJSON{}
	for _, e := range entries {
		out = append(out, entryJSON{e.Rule, e.Object, e.VHost, e.Until})
	}
	return out
}
