package main

import (
	"fmt"
	"html"
	"strings"
)

// box is a station of a message. Its position and size are in pixels.
type box struct {
	name, role string // role is the second line, and may be empty
	class      string // "queue", "exchange", "program" or "dead"
	x, y, w, h int
}

// arrow is a line with a head along the points, with a label at a place of its own.
type arrow struct {
	points [][2]int
	label  string
	x, y   int    // of the label: its start, or its center
	anchor string // "start" or "middle"
	class  string // "", "bad" or "good"
}

// message draws the way of a message: from the publisher to the consumer, and what
// happens when the consumer rejects it. The names are those of the README's file.
func message() string {
	boxes := []box{
		{"publisher", "", "program", 20, 40, 100, 48},
		{"events", "exchange", "exchange", 160, 40, 110, 48},
		{"billing", "work queue", "queue", 320, 40, 130, 48},
		{"your service", "consumer", "program", 580, 40, 140, 48},
		{"shop.standard.failed", "failed queue", "queue", 555, 150, 190, 48},
		{"dlxctl process", "processor", "dlxctl", 575, 260, 150, 60},
		{"…retry.10s", "retry queue", "queue", 350, 150, 120, 44},
		{"…retry.1m", "retry queue", "queue", 350, 212, 120, 44},
		{"…retry.10m", "retry queue", "queue", 350, 274, 120, 44},
		{"billing.dead", "dead-letter queue", "dead", 810, 236, 140, 48},
		{"shop.unroutable", "unroutable queue", "dead", 810, 306, 140, 48},
	}
	arrows := []arrow{
		{points: [][2]int{{120, 64}, {156, 64}}},
		{points: [][2]int{{270, 64}, {316, 64}}},
		{
			points: [][2]int{{450, 64}, {576, 64}},
			label:  "deliver", x: 513, y: 56, anchor: "middle",
		},
		{
			points: [][2]int{{720, 64}, {806, 64}},
			label:  "ack: done", x: 812, y: 69, anchor: "start", class: "good",
		},
		{
			points: [][2]int{{650, 88}, {650, 146}},
			label:  "reject", x: 660, y: 122, anchor: "start", class: "bad",
		},
		{points: [][2]int{{650, 198}, {650, 256}}},
		{
			points: [][2]int{{575, 276}, {538, 276}, {538, 172}, {474, 172}},
			label:  "count=1", x: 476, y: 164, anchor: "start",
		},
		{
			points: [][2]int{{575, 288}, {552, 288}, {552, 234}, {474, 234}},
			label:  "count=2", x: 476, y: 226, anchor: "start",
		},
		{
			points: [][2]int{{575, 300}, {474, 300}},
			label:  "count=3", x: 476, y: 292, anchor: "start",
		},
		{points: [][2]int{{350, 172}, {300, 172}}},
		{points: [][2]int{{350, 234}, {300, 234}}},
		{
			points: [][2]int{{350, 296}, {300, 296}, {300, 120}, {370, 120}, {370, 92}},
			label:  "after the delay", x: 192, y: 226, anchor: "start",
		},
		{
			points: [][2]int{{725, 276}, {770, 276}, {770, 260}, {806, 260}},
			label:  "count=-1", x: 736, y: 250, anchor: "start", class: "bad",
		},
		{
			points: [][2]int{{725, 300}, {770, 300}, {770, 330}, {806, 330}},
			label:  "unroutable", x: 716, y: 348, anchor: "start", class: "bad",
		},
	}
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 970 380" role="img" aria-labelledby="title">
<title id="title">The path of a message: a rejected message waits in the failed queue.
The processor counts it and moves it to a retry queue or to the dead-letter queue.</title>
<style>
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .role { font-size: 11px; fill: #59636e; }
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
</style>
<defs>
`)
	for _, class := range []string{"", "bad", "good"} {
		fmt.Fprintf(&b, `<marker id="tip%s" class="%s" markerWidth="9" markerHeight="8" refX="8" refY="4"`+
			` orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 9 4 0 8z"/></marker>`+"\n",
			class, strings.TrimSpace("tip "+class))
	}
	b.WriteString("</defs>\n" + `<rect class="page" x="0.5" y="0.5" width="969" height="379" rx="8"/>` + "\n")
	for _, a := range arrows {
		a.draw(&b)
	}
	for _, x := range boxes {
		x.draw(&b)
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
	fmt.Fprintf(b, `<path class="%s" d="%s" marker-end="url(#tip%s)"/>`, a.class, &d, a.class)
	if a.label != "" {
		fmt.Fprintf(b, `<text class="label" x="%d" y="%d" text-anchor="%s">%s</text>`,
			a.x, a.y, a.anchor, html.EscapeString(a.label))
	}
	b.WriteString("\n")
}
