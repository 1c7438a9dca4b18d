package graph

import (
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"
)

// label returns what an arrow says in one line.
func label(e Edge) string {
	const most = 2
	labels := e.Labels
	more := ""
	if len(labels) > most+1 {
		more = fmt.Sprintf(" +%d", len(labels)-most)
		labels = labels[:most]
	}
	said := strings.Join(labels, ", ")
	if utf8.RuneCountInString(said) > labelWidth {
		said = string([]rune(said)[:labelWidth-1]) + "…"
	}
	return said + more
}

// WriteSVG draws g. The picture needs no other file, and follows the light or dark setting of its
// reader.
func WriteSVG(w io.Writer, g Graph) error {
	l, legend := place(g), g.legend()
	below := l.height + legendRow/2
	if len(legend) > 0 {
		l.width, l.height = max(l.width, legendWidth), l.height+legendRow*float64(len(legend)+1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`,
		l.width, l.height, l.width, l.height)
	b.WriteString("\n<title>Where messages go</title>\n<style>" + svgStyle + "</style>\n")
	b.WriteString("<defs>\n")
	for _, s := range []Style{Route, Alternate, Dead, Retry, Lost} {
		fmt.Fprintf(&b, `<marker id="%s" class="tip %s" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" `+
			`orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"/></marker>`+"\n", s, s)
	}
	fmt.Fprintf(&b, "</defs>\n<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n", l.width, l.height)
	for _, e := range g.Edges {
		writeArrow(&b, l, e)
	}
	for i, n := range g.Nodes {
		writeBox(&b, l.boxes[i], n)
	}
	arrived := map[int]int{}
	for _, e := range g.Edges {
		writeLabel(&b, l, e, arrived)
	}
	writeLegend(&b, legend, below)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeArrow draws an arrow from the right side of a box to the left side of another. One that
// leads back goes the other way round.
func writeArrow(b *strings.Builder, l layout, e Edge) {
	from, to := l.boxes[e.From], l.boxes[e.To]
	x1, y1, x2, y2 := from.x+from.width, from.y+boxHeight/2.0, to.x, to.y+boxHeight/2.0
	bend := 40.0
	if l.columns[e.To] <= l.columns[e.From] {
		x1, x2, bend = from.x, to.x+to.width, -40
		if l.columns[e.To] == l.columns[e.From] {
			x1, bend = from.x+from.width, 60
			y2 += 6
		}
	}
	end := x2 - bend
	if l.columns[e.To] == l.columns[e.From] {
		end = x2 + bend
	}
	both := ""
	if e.Style == Retry && !e.Onward {
		both = fmt.Sprintf(` marker-start="url(#%s)"`, e.Style)
	}
	fmt.Fprintf(b, `<path class="arrow %s" d="M%.0f %.0f`, e.Style, x1, y1)
	for _, w := range l.around(e) { // along the edge of a box that the arrow would cross
		fmt.Fprintf(b, " C%.0f %.0f %.0f %.0f %.0f %.0f L%.0f %.0f", x1+bend, y1, w.x-bend, w.y, w.x, w.y, w.x+w.width, w.y)
		x1, y1 = w.x+w.width, w.y
	}
	fmt.Fprintf(b, ` C%.0f %.0f %.0f %.0f %.0f %.0f" marker-end="url(#%s)"%s/>`+"\n",
		x1+bend, y1, end, y2, x2, y2, e.Style, both)
}

func writeBox(b *strings.Builder, at box, n Node) {
	fmt.Fprintf(b, `<g class="%s"><rect x="%.0f" y="%.0f" width="%.0f" height="%d" rx="%d"/>`,
		n.Kind, at.x, at.y, at.width, boxHeight, map[bool]int{true: 18, false: 5}[n.Kind == Exchange])
	y := at.y + boxHeight/2.0
	if n.Detail == "" {
		y += 5
	} else {
		fmt.Fprintf(b, `<text class="small" x="%.0f" y="%.0f">%s</text>`, at.x+at.width/2, y+13,
			html.EscapeString(n.Detail))
	}
	fmt.Fprintf(b, `<text class="name" x="%.0f" y="%.0f">%s</text></g>`+"\n", at.x+at.width/2, y-1,
		html.EscapeString(n.Name))
}

// writeLabel writes the label of an arrow in front of the box that it leads to, above others there.
// That of a dead letter stands behind the queue that it is about.
func writeLabel(b *strings.Builder, l layout, e Edge, arrived map[int]int) {
	said := label(e)
	if said == "" {
		return
	}
	if (e.Style == Retry || e.Style == Dead) && l.columns[e.To] > l.columns[e.From] {
		from := l.boxes[e.From]
		fmt.Fprintf(b, `<text class="label %s" x="%.0f" y="%.0f">%s</text>`+"\n",
			e.Style, from.x+from.width+14, from.y+boxHeight/2.0-6, html.EscapeString(said))
		return
	}
	to := l.boxes[e.To]
	y := to.y + boxHeight/2.0 - 4 - 13*float64(arrived[e.To])
	arrived[e.To]++
	x, anchor := to.x-14, "end"
	if l.columns[e.To] <= l.columns[e.From] {
		x, anchor = to.x+to.width+14, "start"
	}
	fmt.Fprintf(b, `<text class="label %s" x="%.0f" y="%.0f" text-anchor="%s">%s</text>`+"\n",
		e.Style, x, y, anchor, html.EscapeString(said))
}

// svgStyle has the colors, for light and dark.
const svgStyle = `
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
    fill: #1f2328; }
  .name { font-weight: 600; text-anchor: middle; }
  .small { font-size: 11px; fill: #59636e; text-anchor: middle; }
  .label { font-size: 11px; fill: #59636e; paint-order: stroke; stroke: #ffffff; stroke-width: 4px;
    stroke-linejoin: round; }
  rect { fill: #f6f8fa; stroke: #818b98; stroke-width: 1.2; }
  rect.page { fill: #ffffff; stroke: none; }
  .exchange rect { fill: #fff8c5; stroke: #9a6700; }
  .queue rect { fill: #ddf4ff; stroke: #0969da; }
  .backoff rect, .waiting rect { fill: #dafbe1; stroke: #1a7f37; }
  .kept rect { fill: #ffebe9; stroke: #cf222e; }
  .loss rect { fill: none; stroke: #cf222e; stroke-dasharray: 4 3; }
  .loss .name { fill: #cf222e; }
  .arrow { fill: none; stroke: #818b98; stroke-width: 1.4; }
  .arrow.retry { stroke: #1a7f37; }
  .arrow.dead { stroke: #bc4c00; }
  .arrow.alternate { stroke-dasharray: 2 3; }
  .arrow.lost { stroke: #cf222e; stroke-dasharray: 5 4; stroke-width: 1.8; }
  .tip path { fill: #818b98; }
  .tip.retry path { fill: #1a7f37; }
  .tip.dead path { fill: #bc4c00; }
  .tip.lost path { fill: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .label { fill: #9198a1; stroke: #0d1117; }
    rect { fill: #151b23; stroke: #656c76; }
    rect.page { fill: #0d1117; }
    .exchange rect { fill: #3a2d04; stroke: #d29922; }
    .queue rect { fill: #0c2d4d; stroke: #4493f8; }
    .backoff rect, .waiting rect { fill: #0f3018; stroke: #3fb950; }
    .kept rect { fill: #4a1512; stroke: #f85149; }
    .loss rect { fill: none; stroke: #f85149; }
    .loss .name { fill: #f85149; }
    .arrow { stroke: #656c76; }
    .arrow.retry { stroke: #3fb950; }
    .arrow.dead { stroke: #db6d28; }
    .arrow.lost { stroke: #f85149; }
    .tip path { fill: #656c76; }
    .tip.retry path { fill: #3fb950; }
    .tip.dead path { fill: #db6d28; }
    .tip.lost path { fill: #f85149; }
  }
`
