package main

import (
	"fmt"
	"html"
	"strings"
)

// drawing is a picture of boxes, arrows between them, and notes. Sizes and places are in pixels.
type drawing struct {
	title         string // what a reader hears who does not see the picture
	width, height int
	boxes         []box
	arrows        []arrow
	notes         []note
}

// box is a station of a message. Its position and size are in pixels.
type box struct {
	name, role string // role is the second line, and may be empty
	class      string // "queue", "exchange", "program", "dlxctl", "dead" or "absent"
	x, y, w, h int
}

// arrow is a line with a head along the points, with a label at a place of its own.
type arrow struct {
	points [][2]int
	label  string
	x, y   int    // of the label: its start, or its center
	anchor string // "start" or "middle"
	class  string // "", "bad", "good", or "tick" for a line without a head
}

// note is a text at a place of its own.
type note struct {
	text, class string // "name" or "label"
	x, y        int    // its start
}

// String returns the drawing as SVG, which follows the light or dark setting of its reader.
func (p drawing) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">
<title id="title">%s</title>
%s
<defs>
`, p.width, p.height, p.title, drawingStyle)
	for _, class := range []string{"", "bad", "good"} {
		fmt.Fprintf(&b, `<marker id="tip%s" class="%s" markerWidth="9" markerHeight="8" refX="8" refY="4"`+
			` orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 9 4 0 8z"/></marker>`+"\n",
			class, strings.TrimSpace("tip "+class))
	}
	fmt.Fprintf(&b, "</defs>\n"+`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n",
		p.width-1, p.height-1)
	for _, a := range p.arrows {
		a.draw(&b)
	}
	for _, x := range p.boxes {
		x.draw(&b)
	}
	for _, n := range p.notes {
		fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", n.class, n.x, n.y, html.EscapeString(n.text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (x box) draw(b *strings.Builder) {
	radius := 5
	if x.class == "program" || x.class == "dlxctl" {
		radius = 14
	}
	fmt.Fprintf(b, `<g class="%s"><rect x="%d" y="%d" width="%d" height="%d" rx="%d"/>`,
		x.class, x.x, x.y, x.w, x.h, radius)
	y := x.y + x.h/2 + 5
	if x.role != "" {
		y -= 7
		centered(b, "role", x.x+x.w/2, y+15, x.role)
	}
	centered(b, "name", x.x+x.w/2, y, x.name)
	b.WriteString("</g>\n")
}

func centered(b *strings.Builder, class string, x, y int, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" text-anchor="middle">%s</text>`, class, x, y, html.EscapeString(text))
}

func (a arrow) draw(b *strings.Builder) {
	var d strings.Builder
	for i, p := range a.points {
		command := " L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&d, "%s%d %d", command, p[0], p[1])
	}
	head := fmt.Sprintf(` marker-end="url(#tip%s)"`, a.class)
	if a.class == "tick" {
		head = ""
	}
	fmt.Fprintf(b, `<path class="%s" d="%s"%s/>`, a.class, &d, head)
	if a.label != "" {
		fmt.Fprintf(b, `<text class="label" x="%d" y="%d" text-anchor="%s">%s</text>`,
			a.x, a.y, a.anchor, html.EscapeString(a.label))
	}
	b.WriteString("\n")
}

// drawingStyle has the colors, for light and dark.
const drawingStyle = `<style>
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .role { font-size: 11px; fill: #59636e; }
  .absent rect { fill: none; stroke-dasharray: 3 3; }
  .absent text { fill: #818b98; font-weight: 400; }
  .label { font-size: 12px; fill: #59636e; }
  .name { font-weight: 600; }
  rect.page { fill: #ffffff; stroke: #d1d9e0; }
  rect { fill: #f6f8fa; stroke: #818b98; stroke-width: 1.2; }
  .queue rect { fill: #ddf4ff; stroke: #0969da; }
  .exchange rect { fill: #fff8c5; stroke: #9a6700; }
  .dlxctl rect { fill: #dafbe1; stroke: #1a7f37; stroke-width: 2; }
  .dead rect { fill: #ffebe9; stroke: #cf222e; }
  path { fill: none; stroke: #59636e; stroke-width: 1.4; }
  path.bad { stroke: #cf222e; }
  path.good { stroke: #1a7f37; }
  .tip path { fill: #59636e; stroke: none; }
  .tip.bad path { fill: #cf222e; }
  .tip.good path { fill: #1a7f37; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .role, .label { fill: #9198a1; }
    .absent text { fill: #656c76; }
    rect.page { fill: #0d1117; stroke: #3d444d; }
    rect { fill: #151b23; stroke: #656c76; }
    .queue rect { fill: #0c2d4d; stroke: #4493f8; }
    .exchange rect { fill: #3a2d04; stroke: #d29922; }
    .dlxctl rect { fill: #0f3018; stroke: #3fb950; }
    .dead rect { fill: #4a1512; stroke: #f85149; }
    path { stroke: #9198a1; }
    path.bad { stroke: #f85149; }
    path.good { stroke: #3fb950; }
    .tip path { fill: #9198a1; }
    .tip.bad path { fill: #f85149; }
    .tip.good path { fill: #3fb950; }
  }
</style>`
