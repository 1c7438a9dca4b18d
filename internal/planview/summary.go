package planview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
)

// Summary counts the changes in one line: "5 to create, 1 blocked; 223 unchanged". It leaves out
// what there is none of.
func Summary(p plan.Plan) string {
	if p.Empty() && len(p.Drift) > 0 {
		return "no changes, and drift in " + text.Count(len(p.Drift), "place")
	}
	if n := len(p.Withheld); p.Empty() && n > 0 {
		return fmt.Sprintf("no changes, and %s for dlxctl migrate", text.Count(n, "binding")+
			text.Choose(n, " waits", " wait"))
	}
	if p.Empty() { // the broker may have more: what a service bound to an external queue is not drift
		return "no changes: the broker has what the file declares"
	}
	var parts []string
	replaced := len(p.Replacements(p.Allow))
	for _, a := range plan.Actions() {
		n := p.Count(a)
		if a == plan.Blocked {
			n -= replaced
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, inSummary(a)))
		}
	}
	if replaced > 0 {
		names := text.Choose(replaced, "its name", "their names")
		parts = append(parts, fmt.Sprintf("%d to replace under %s", replaced, names))
	}
	line := strings.Join(parts, ", ")
	if p.Unchanged > 0 {
		line += fmt.Sprintf("; %d unchanged", p.Unchanged)
	}
	return line
}

// inSummary returns the words for an action behind its number.
func inSummary(a plan.Action) string {
	if a == plan.Blocked {
		return string(a)
	}
	return "to " + string(a)
}

// mostNamed is how many objects a line of the end of a plan names.
const mostNamed = 20

// attention returns the lines that repeat, by name, what stops apply: what is blocked, and what
// needs consent.
func attention(p plan.Plan) []string {
	var names []string
	replaced := p.Replacements(p.Allow) // by consent
	for _, c := range p.Changes {
		if c.Action != plan.Blocked || c.ReplacesQueue() && slices.Contains(replaced, c.Name) {
			continue
		}
		name := fmt.Sprintf("%s %s", c.Kind, nameOf(c))
		if place := placeOf(p, c); !place.IsZero() {
			name += " (" + place.String() + ")"
		}
		names = append(names, name)
	}
	var lines []string
	if len(names) > 0 {
		lines = append(lines, "blocked: "+text.FirstOf(names, mostNamed))
	}
	if needs := p.Needs(p.Allow); needs != "" {
		lines = append(lines, "needs consent: "+needs)
	}
	return lines
}
