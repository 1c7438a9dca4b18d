package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Result is what an audit of one or several virtual hosts found, as the outputs show it.
type Result struct {
	Reports []Report
	// Source names what was audited: files, or the broker.
	Source string
	// Findings are those that count, the worst first.
	Findings []Finding
	// Accepted are those that the baseline accepts.
	Accepted []Accepted
	// Expired are entries of the baseline whose time is over, and Unmatched those that no
	// finding matches. Unchecked are those of which the audit cannot tell: their rule did not run, or
	// their virtual host was not read.
	Expired, Unmatched, Unchecked []Entry
	// At is when the baseline was applied. Zero: there is none.
	At time.Time
}

// Accepted is a finding that an entry of the baseline accepts.
type Accepted struct {
	Finding
	Entry Entry
}

// NewResult makes a result of reports, in which all findings count. See [Baseline.Apply].
func NewResult(reports []Report) Result {
	r := Result{Reports: reports}
	r.Findings = slices.Concat(text.Each(reports, func(x Report) []Finding { return x.Findings })...)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(a.Severity.rank(), b.Severity.rank())
	})
	return r
}

// Severities returns the severities, worst first.
func Severities() []Severity { return []Severity{Error, Warning, Note} }

// Count returns how many findings of a severity count.
func (r Result) Count(s Severity) int {
	return r.count(func(f Finding) bool { return f.Severity == s })
}

func (r Result) count(is func(Finding) bool) (n int) {
	for _, f := range r.Findings {
		if is(f) {
			n++
		}
	}
	return n
}

// Fails reports whether a finding counts that is as bad as s, or worse.
func (r Result) Fails(s Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity.rank() <= s.rank() })
}

// Loses reports whether an error counts, or a work queue loses failed messages and the baseline
// accepts no finding about the queue.
func (r Result) Loses() bool {
	if r.Fails(Error) {
		return true
	}
	for _, report := range r.Reports {
		for name, fate := range report.Fates {
			if fate == Lost && !r.accepts(report.VHost, topology.Key{Kind: topology.KindQueue, Name: name}) {
				return true
			}
		}
	}
	return false
}

// accepts reports whether the baseline accepts a finding about an object.
func (r Result) accepts(vhost string, object topology.Key) bool {
	return slices.ContainsFunc(r.Accepted, func(a Accepted) bool { return a.VHost == vhost && a.Object == object }) ||
		slices.ContainsFunc(r.Unchecked, func(e Entry) bool {
			return !e.expired(r.At) && e.isOn(Finding{VHost: vhost, Object: object})
		})
}

// Fates returns the number of work queues of each fate.
func (r Result) Fates() map[Fate]int {
	out := map[Fate]int{}
	for _, report := range r.Reports {
		for _, fate := range report.Fates {
			out[fate]++
		}
	}
	return out
}

// Score returns the line that says of how many queues failed messages are kept.
func (r Result) Score() string { return survey.Score(r.Fates()) }

// withoutDeadLettering returns how many queues lose what is rejected because they have no
// dead-lettering. That is a note, as some are meant so, and it is the most frequent cause.
func (r Result) withoutDeadLettering() int {
	return r.count(func(f Finding) bool { return f.Rule == "no-dead-lettering" })
}

// counts returns "3 errors, 1 warning, 12 notes".
func (r Result) counts() string {
	return text.Count(r.Count(Error), "error") + ", " + text.Count(r.Count(Warning), "warning") + ", " +
		text.Count(r.Count(Note), "note")
}

type ruleFindings struct {
	rule     string
	severity Severity
	findings []Finding
}

// resultGroup is a consequence, with the rules that found something.
type resultGroup struct {
	title string
	rules []ruleFindings
}

// grouped returns the findings by consequence: the one with the worst finding first, and in each
// the worst rules first, then those with the most findings. Those of lower severity than most
// are left out.
func (r Result) grouped(lowest Severity) []resultGroup {
	of := map[string]Group{}
	for _, rule := range Rules() {
		of[rule.ID] = rule.Group
	}
	order := groups()
	groups := make([]resultGroup, len(order))
	for _, f := range r.Findings {
		if f.Severity.rank() > lowest.rank() {
			continue
		}
		i := slices.Index(order, of[f.Rule])
		g := &groups[i]
		g.title = string(order[i])
		at := slices.IndexFunc(g.rules, func(s ruleFindings) bool { return s.rule == f.Rule && s.severity == f.Severity })
		if at < 0 {
			g.rules = append(g.rules, ruleFindings{rule: f.Rule, severity: f.Severity})
			at = len(g.rules) - 1
		}
		g.rules[at].findings = append(g.rules[at].findings, f)
	}
	groups = slices.DeleteFunc(groups, func(g resultGroup) bool { return len(g.rules) == 0 })
	for _, g := range groups {
		slices.SortStableFunc(g.rules, func(a, b ruleFindings) int {
			return cmp.Or(cmp.Compare(a.severity.rank(), b.severity.rank()), cmp.Compare(len(b.findings),
				len(a.findings)))
		})
	}
	slices.SortStableFunc(groups, func(a, b resultGroup) int {
		return cmp.Compare(a.rules[0].severity.rank(), b.rules[0].severity.rank())
	})
	return groups
}

// severalHosts reports whether names need their virtual host.
func (r Result) severalHosts() bool { return len(r.Reports) > 1 }

// name returns the name of a finding's object, with its virtual host where there are several.
func (r Result) name(f Finding) string {
	if r.severalHosts() {
		return text.Name(f.VHost) + ": " + f.DisplayName()
	}
	return f.DisplayName()
}

// RuleIDs returns the IDs of all rules, sorted.
func RuleIDs() []string { return text.Each(Rules(), func(r Rule) string { return r.ID }) }

// RuleByID returns a rule.
func RuleByID(id string) (Rule, bool) {
	rules := Rules()
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// titleOf returns the title of a rule, or its name.
func titleOf(id string) string {
	if r, ok := RuleByID(id); ok {
		return r.Title
	}
	return id
}
