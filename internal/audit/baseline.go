package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	yamlv3 "gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Entry is a finding that a team accepts for some time.
type Entry struct {
	// Rule and Object are those of the finding. Object is the name that the outputs print.
	Rule   string `yaml:"rule" json:"rule"`
	Object string `yaml:"object" json:"object"`
	// Kind is that of the object: a queue and an exchange may have one name. Empty is any.
	Kind topology.Kind `yaml:"kind,omitempty" json:"-"`
	// Severity is the worst that is accepted. Empty is any.
	Severity Severity `yaml:"severity,omitempty" json:"-"`
	// VHost is its virtual host. Empty is any.
	VHost string `yaml:"vhost,omitempty" json:"vhost,omitempty"`
	// Reason says why it is accepted.
	Reason string `yaml:"reason" json:"-"`
	// Until is the last day on which it is accepted, as 2026-12-31. Empty is forever.
	Until string `yaml:"until,omitempty" json:"until,omitempty"`
	line  int
}

// Baseline are the findings that a team accepts.
type Baseline struct {
	Entries []Entry
	file    string
}

// dayFormat is the format of Entry.Until.
const dayFormat = time.DateOnly

// maxBaselineProblems is how many problems of a baseline are shown.
const maxBaselineProblems = 20

// ReadBaseline reads a baseline: a list in YAML or JSON. The error names each problem and its line.
func ReadBaseline(name string, data []byte) (Baseline, error) {
	b := Baseline{file: name}
	var nodes []yamlv3.Node
	switch err := yamlv3.Unmarshal(data, &nodes); {
	case errors.Is(err, io.EOF):
		return b, nil
	case isTypeError(err):
		return b, fmt.Errorf("%s: it is not a list; write a list of entries with rule, object and reason", name)
	case err != nil:
		first, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), "\n")
		return b, fmt.Errorf("%s: %s; write a list of entries with rule, object and reason", name, first)
	}
	var problems []error
	for _, node := range nodes {
		e, err := b.entry(&node)
		if err != nil {
			problems = append(problems, err)
		}
		b.Entries = append(b.Entries, e)
	}
	return b, text.FirstErrors(problems, maxBaselineProblems)
}

// isTypeError reports whether YAML is valid, and not what was expected.
func isTypeError(err error) bool {
	_, is := errors.AsType[*yamlv3.TypeError](err)
	return is
}

func (b Baseline) entry(node *yamlv3.Node) (Entry, error) {
	fail := func(format string, args ...any) (Entry, error) {
		return Entry{}, fmt.Errorf("%s:%d: %s", b.file, node.Line, fmt.Sprintf(format, args...))
	}
	if node.Kind != yamlv3.MappingNode {
		return fail("an entry is not an object; write rule, object and reason")
	}
	keys := []string{"rule", "object", "kind", "severity", "vhost", "reason", "until"}
	for i := 0; i < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !slices.Contains(keys, key) {
			return fail("an entry has no key %q; the keys are %s", key, strings.Join(keys, ", "))
		}
	}
	e := Entry{line: node.Line}
	if err := node.Decode(&e); err != nil {
		return fail("a value of an entry is not text; write it in quotes")
	}
	for _, missing := range []struct{ key, value string }{{"rule", e.Rule}, {"object", e.Object}, {"reason", e.Reason}} {
		if strings.TrimSpace(missing.value) == "" {
			return fail("an entry has no %s; each entry needs rule, object and reason", missing.key)
		}
	}
	if _, known := RuleByID(e.Rule); !known {
		return fail("there is no rule %q; 'dlxctl audit --rules' lists them", e.Rule)
	}
	kinds := []topology.Kind{topology.KindQueue, topology.KindExchange, topology.KindBinding, topology.KindPolicy}
	if e.Kind != "" && !slices.Contains(kinds, e.Kind) {
		return fail("kind is %q; write queue, exchange, binding or policy", e.Kind)
	}
	if e.Severity != "" && e.Severity.rank() < 0 {
		return fail("severity is %q; write error, warning or note", e.Severity)
	}
	if _, err := time.Parse(dayFormat, e.Until); e.Until != "" && err != nil {
		return fail("until is %q; write a day, as in 2026-12-31", e.Until)
	}
	return e, nil
}

// isAbout reports whether the entry is about a finding, which may be worse than what it accepts.
func (e Entry) isAbout(f Finding) bool {
	return e.Rule == f.Rule && e.isOn(f)
}

// isOn reports whether the entry is about the object of a finding.
func (e Entry) isOn(f Finding) bool {
	return (e.VHost == "" || e.VHost == f.VHost) && (e.Kind == "" || e.Kind == f.Object.Kind) &&
		(e.Object == f.DisplayName() || e.Object == f.Object.Name)
}

// isChecked reports whether reports would have the finding: its virtual host was read, and its rule
// ran there.
func (e Entry) isChecked(reports []Report) (checked bool) {
	for _, r := range reports {
		if e.VHost != "" && e.VHost != r.VHost {
			continue
		}
		if r.Rules != nil && !slices.Contains(r.Rules, e.Rule) {
			return false
		}
		checked = true
	}
	return checked
}

// tooMild reports whether a finding is worse than what the entry accepts.
func (e Entry) tooMild(f Finding) bool {
	return e.Severity != "" && f.Severity.rank() < e.Severity.rank()
}

// expired reports whether the entry's last day is over. now is in the time zone of the reader.
func (e Entry) expired(now time.Time) bool {
	return e.Until != "" && now.Format(dayFormat) > e.Until
}

// Apply returns the result of reports with a baseline: the findings that it accepts do not count.
// An entry that has expired accepts nothing.
func (b Baseline) Apply(reports []Report, now time.Time) Result {
	out := NewResult(reports)
	out.At = now
	matched := make([]bool, len(b.Entries))
	out.Findings = slices.DeleteFunc(out.Findings, func(f Finding) (accepted bool) {
		for i, e := range b.Entries {
			if !e.isAbout(f) {
				continue
			}
			matched[i] = true
			if !accepted && !e.expired(now) && !e.tooMild(f) {
				out.Accepted = append(out.Accepted, Accepted{f, e})
				accepted = true
			}
		}
		return accepted
	})
	for i, e := range b.Entries {
		switch {
		case !matched[i] && !e.isChecked(reports):
			out.Unchecked = append(out.Unchecked, e)
		case !matched[i]:
			out.Unmatched = append(out.Unmatched, e)
		case e.expired(now):
			out.Expired = append(out.Expired, e)
		}
	}
	return out
}

// notes says what an entry of the baseline needs.
func (r Result) baselineNotes() []string {
	var out []string
	for _, e := range r.Expired {
		out = append(out, fmt.Sprintf("the baseline accepted %s of %s until %s; it counts again", e.Rule,
			text.Name(e.Object), e.Until))
	}
	for _, e := range r.Unmatched {
		out = append(out, fmt.Sprintf("the baseline accepts %s of %s, which is not found; remove the entry in line %d", e.Rule,
			text.Name(e.Object), e.line))
	}
	return out
}

// WriteBaseline writes a baseline that accepts all findings that count. Its reasons are for people
// to write. Entries of which the audit cannot tell stay as they are.
func WriteBaseline(w io.Writer, r Result) error {
	entries := append(text.Each(r.Accepted, func(a Accepted) Entry { return a.Entry }), r.Unchecked...)
	for _, f := range r.Findings {
		entries = append(entries, Entry{
			Rule: f.Rule, Object: f.DisplayName(), Kind: f.Object.Kind, Severity: f.Severity, VHost: f.VHost,
			Reason: "accepted before it was looked at; write why",
		})
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.VHost, b.VHost), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Object, b.Object),
			cmp.Compare(a.Kind, b.Kind))
	})
	entries = slices.CompactFunc(entries, func(a, b Entry) bool {
		return a.Rule == b.Rule && a.Object == b.Object && a.VHost == b.VHost && a.Kind == b.Kind && a.Severity == b.Severity
	})
	if entries == nil {
		entries = []Entry{}
	}
	if _, err := io.WriteString(w, "# Findings of 'dlxctl audit' that are accepted. Add 'until: 2026-12-31' to look again.\n"); err != nil {
		return err
	}
	enc := yamlv3.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(entries); err != nil {
		return err
	}
	return enc.Close()
}
