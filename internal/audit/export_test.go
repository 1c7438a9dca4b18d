package audit

// GroupedRules returns the rules that are in a group of consequences.
func GroupedRules() []string {
	var out []string
	for _, g := range resultGroups() {
		out = append(out, g.rules...)
	}
	return out
}
