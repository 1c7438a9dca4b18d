package audit

// Document is a result, and the version of dlxctl that made it, for programs to read. All
// findings are in it: notes, and those that the baseline accepts.
type Document struct {
	Result
	Program string
}

type resultJSON struct {
	Version int `json:"version"`
	// Program is the version of dlxctl.
	Program string `json:"dlxctl"`
	// Source is what was read: a broker or files.
	Source  string      `json:"source"`
	Summary summaryJSON `json:"summary"`
	VHosts  []Report    `json:"vhosts"`
	// Findings are those that count, and then those that the baseline accepts.
	Findings []findingJSON `json:"findings"`
	Baseline baselineJSON  `json:"baseline"`
}

// summaryJSON counts queues by what happens to their failed messages, and findings.
type summaryJSON struct {
	Queues int `json:"queues"`
	// Kept is how many queues keep their failed messages.
	Kept int `json:"kept"`
	// Endless is in how many queues failed messages are delivered again without end.
	Endless int `json:"endless"`
	// Lost is how many queues lose failed messages.
	Lost int `json:"lost"`
	// Unknown is of how many queues that is not known.
	Unknown  int `json:"unknown"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
	// Accepted counts the findings that the baseline accepts.
	Accepted int `json:"accepted"`
}

type findingJSON struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	VHost    string   `json:"vhost"`
	// Kind and Name are those of the object that the finding is about.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Evidence is one line that names the binding, argument or policy.
	Evidence string `json:"evidence"`
	// Consequence says what happens to messages.
	Consequence string `json:"consequence"`
	// Remedy says what to do: commands, lines of YAML for a topology file, or what to decide.
	Remedy string `json:"remedy"`
	// Upgrade is what happens on the line of --for: refused, changed or dropped.
	Upgrade Upgrade `json:"upgrade,omitempty"`
	// Source is where the fact about the upgrade is from.
	Source string `json:"source,omitempty"`
	// File and Line are where a file has the object, or the work queue that it was made for.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Overlay is the file and line at which an overlay changes what stands there.
	Overlay string `json:"overlay,omitempty"`
	// Accepted is the entry of the baseline that accepts the finding.
	Accepted *acceptedJSON `json:"accepted,omitempty"`
}

type acceptedJSON struct {
	Reason string `json:"reason"`
	// Until is the last day on which it is accepted, such as 2026-12-31.
	Until string `json:"until,omitempty"`
}

// baselineJSON is what is wrong with the baseline.
type baselineJSON struct {
	// Expired are the entries whose last day has passed.
	Expired []Entry `json:"expired"`
	// Unmatched are the entries that accept no finding, though their rule ran.
	Unmatched []Entry `json:"unmatched"`
}

// JSON implements jsondoc.Former.
func (d Document) JSON() any {
	r, fates := d.Result, d.Fates()
	out := resultJSON{
		Version: 1, Program: d.Program, Source: r.Source, VHosts: r.Reports,
		Summary: summaryJSON{
			Queues: fates[Kept] + fates[Endless] + fates[Lost] + fates[Undecided], Kept: fates[Kept],
			Endless: fates[Endless], Lost: fates[Lost], Unknown: fates[Undecided], Errors: r.Count(Error),
			Warnings: r.Count(Warning), Notes: r.Count(Note), Accepted: len(r.Accepted),
		},
		Baseline: baselineJSON{r.Expired, r.Unmatched},
	}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, f.json(nil))
	}
	for _, a := range r.Accepted {
		out.Findings = append(out.Findings, a.json(&acceptedJSON{a.Entry.Reason, a.Entry.Until}))
	}
	return out
}

func (f Finding) json(accepted *acceptedJSON) findingJSON {
	return findingJSON{
		f.Rule, f.Severity, f.VHost, string(f.Object.Kind), f.DisplayName(), f.Evidence, f.Consequence, f.Remedy,
		f.Upgrade, f.Source,
		f.Position.File, f.Position.Line, f.Position.Overlay, accepted,
	}
}

// RuleList lists rules for programs.
type RuleList []Rule

type rulesJSON struct {
	Version int        `json:"version"`
	Rules   []ruleJSON `json:"rules"`
}

type ruleJSON struct {
	Rule
	// Default reports that the rule runs unless rules are chosen with --rule.
	Default bool `json:"default"`
	// Page is the URL of the page of the rule.
	Page string `json:"page"`
}

// JSON implements jsondoc.Former.
func (l RuleList) JSON() any {
	out := rulesJSON{Version: 1}
	for _, r := range l {
		out.Rules = append(out.Rules, ruleJSON{r, !r.Off, RulePage(r.ID)})
	}
	return out
}
