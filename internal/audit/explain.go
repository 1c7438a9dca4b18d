package audit

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/dlxctl/dlxctl/internal/definitions"
)

// WriteRules lists the rules, a line for each: severity, name and title. A rule that runs only
// when it is asked for, or only for a live broker, says so.
func WriteRules(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, r := range Rules() {
		fmt.Fprintf(b, "%-8s %-34s %s%s\n", r.Severity, r.ID, lowerFirst(r.Title), conditions(r))
	}
	return b.Flush()
}

// conditions says when a rule runs, unless it always does.
func conditions(r Rule) string {
	switch {
	case r.For:
		return " (with --for)"
	case r.Off && r.Live:
		return " (live broker; only with --rule)"
	case r.Off:
		return " (only with --rule)"
	case r.Live:
		return " (live broker)"
	}
	return ""
}

// WriteExplanation writes what a rule finds, why, what to do, and an example.
func WriteExplanation(w io.Writer, r Rule) error {
	t := resultText{w: bufio.NewWriter(w)}
	t.line("%s (%s)%s", r.ID, r.Severity, conditions(r))
	t.line("")
	t.wrapped("", "", r.Title+".")
	t.line("")
	t.wrapped("", "", r.Why)
	t.line("")
	t.wrapped("Fix: ", "     ", r.Fix)
	found, err := r.Hit.findings(r.ID)
	if err != nil {
		return fmt.Errorf("the example of rule %s: %w", r.ID, err)
	}
	if len(found) > 0 {
		t.line("\nExample:\n")
		for line := range strings.Lines(r.Hit.Definitions) {
			t.line("  %s", strings.TrimRight(line, "\n"))
		}
		t.line("")
		f := found[0]
		t.wrapped("  "+f.DisplayName()+": ", "    ", f.Evidence)
		t.wrapped("  ", "    ", upperFirst(f.Consequence)+".")
		prefix := "  fix: "
		if !f.pasted() {
			t.wrapped(prefix, "       ", f.Remedy)
			f.Remedy = ""
		}
		for line := range strings.Lines(f.Remedy) {
			t.line("%s%s", prefix, strings.TrimRight(line, "\n"))
			prefix = "       "
		}
		if f.requests() {
			t.line("\n  %s", requestNote)
		}
	}
	t.line("\n%s", RulePage(r.ID))
	return t.w.Flush()
}

// input returns the example as an audit reads it.
func (e Example) input() (Input, error) {
	hosts, err := definitions.Read([]definitions.File{{Name: "definitions.json", Data: []byte(e.Definitions)}})
	if err != nil {
		return Input{}, err
	}
	if len(hosts) != 1 {
		return Input{}, fmt.Errorf("it has %d virtual hosts, and must have 1", len(hosts))
	}
	in := Input{
		State: hosts[0].State, Positions: hosts[0].Positions, Oddities: hosts[0].Oddities, Live: e.Live, For: e.For,
	}
	if e.Version != "" {
		in.State.Version = e.Version
	}
	in.State.Usage, in.State.QueuePolicies = e.Usage, e.QueuePolicies
	return in, nil
}

func (e Example) findings(rule string) ([]Finding, error) {
	in, err := e.input()
	if err != nil {
		return nil, err
	}
	in.Rules = []string{rule}
	return Run(in).Findings, nil
}
