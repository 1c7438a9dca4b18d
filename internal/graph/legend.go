package graph

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// atMostOnce is the label of a hop on which RabbitMQ may lose a message.
const atMostOnce = "at-most-once"

// legendLine is a line of the legend: an arrow, or a label.
type legendLine struct {
	style  Style
	label  string // in place of an arrow
	said   string
	onward bool // the arrow has one tip; see Edge
}

// legend explains the arrows and labels that g has.
func (g Graph) legend() []legendLine {
	var out []legendLine
	for _, line := range []legendLine{
		{style: Retry, said: "a rejected message waits and comes back"},
		{style: Retry, said: "a rejected message waits and comes to another queue", onward: true},
		{style: Dead, said: "a dead letter"},
		{style: Alternate, said: "what no binding matches"},
		{style: Lost, said: "messages are lost"},
	} {
		if slices.ContainsFunc(g.Edges, func(e Edge) bool { return e.Style == line.style && e.Onward == line.onward }) {
			out = append(out, line)
		}
	}
	if slices.ContainsFunc(g.Edges, func(e Edge) bool { return slices.Contains(e.Labels, atMostOnce) }) {
		out = append(out, legendLine{label: atMostOnce, said: "may be lost while a node fails or the next queue is not available"})
	}
	return out
}

// inWords returns the lines of the legend as texts, for formats that cannot draw an arrow next to
// each. The arrows look the same in all formats.
func (g Graph) inWords() []string {
	look := map[Style]string{
		Retry: "green, with two tips", Dead: "orange", Alternate: "dotted", Lost: "red and dashed",
	}
	var out []string
	for _, line := range g.legend() {
		name := line.label
		switch {
		case line.onward:
			name = "green, with one tip"
		case name == "":
			name = look[line.style]
		}
		out = append(out, name+": "+line.said)
	}
	return out
}

const (
	legendRow   = 18.0
	legendWidth = 520.0 // of the longest line
)

// writeLegend draws the legend below the boxes, from y on.
func writeLegend(b *strings.Builder, lines []legendLine, y float64) {
	for i, line := range lines {
		y, x := y+legendRow*float64(i), 20.0
		if line.label == "" {
			both := ""
			if line.style == Retry && !line.onward {
				both = fmt.Sprintf(` marker-start="url(#%s)"`, line.style)
			}
			fmt.Fprintf(b, `<path class="arrow %s" d="M20 %.0f L60 %.0f" marker-end="url(#%s)"%s/>`+"\n",
				line.style, y-4, y-4, line.style, both)
			x = 72
		} else {
			line.said = line.label + ": " + line.said
		}
		fmt.Fprintf(b, `<text class="label" x="%.0f" y="%.0f">%s</text>`+"\n", x, y, html.EscapeString(line.said))
	}
}
