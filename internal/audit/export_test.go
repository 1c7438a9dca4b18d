package audit

// GroupedRules returns the rules that are in a group of consequences.
func GroupedRules() []string {
	var out []string
	for _, g := range resultGroups() {
		out = append(out, g.rules...)
	}
	return out
}

// Untried returns the report of an audit that tries no fixes.
func Untried(in Input) Report {
	in = forLine(in)
	x := newIndex(in)
	x.trying = true
	return Report{Findings: x.findings(in), Fates: x.Fates()}
}
