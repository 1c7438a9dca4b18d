package text

// Style colors fragments of text. The zero Style adds nothing.
type Style struct {
	// Create, Change, Delete and Blocked are for the signs of actions.
	Create, Change, Delete, Blocked func(string) string
	// Danger is for hazards and errors, Caution for warnings, Strong for headings and summaries,
	// Faint for places in files.
	Danger, Caution, Strong, Faint func(string) string
}

// Colors returns the style of a terminal.
func Colors() Style {
	color := func(code string) func(string) string {
		return func(s string) string { return "\x1b[" + code + "m" + s + "\x1b[0m" }
	}
	return Style{
		Create: color("32"), Change: color("33"), Delete: color("31"), Blocked: color("1;31"),
		Danger: color("31"), Caution: color("33"), Strong: color("1"), Faint: color("2"),
	}
}

// Paint applies one function of a [Style].
func Paint(style func(string) string, s string) string {
	if style == nil || s == "" {
		return s
	}
	return style(s)
}
