package audit

// Untried returns the report of an audit that tries no fixes.
func Untried(in Input) Report {
	in = forLine(in)
	x := newIndex(in)
	x.trying = true
	return Report{Findings: x.findings(in), Fates: x.Fates()}
}
