package main

import (
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const (
	columns = 104 // characters of a line
	visible = 30  // lines of the screen
	height  = 18  // pixels of a line
	advance = 7.9 // pixels of a character of the font, at most
	margin  = 16  // pixels around the screen
	bar     = 30  // pixels of the title bar
)

// record returns the output of the demo without what differs between two runs: times of
// day, the name of the node, and fractions of a second.
func record(output string) string {
	for _, r := range []struct{ find, write string }{
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z`, "2026-01-02T03:04:05.678Z"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "2026-01-02T03:04:05Z"},
		{`\b\d{8}-\d{6}-[0-9a-z]{6}\b`, "20260102-030405-1a2b3c"},
		{`\b[0-9a-f]{12}\b`, "0a1b2c3d4e5f"},
		{`in [0-9.]+m?s, order kept`, "in 12ms, order kept"},
		{`in (\d+)\.\d+s; none failed`, "in ${1}s; none failed"},
		{`cluster \S+,`, "cluster rabbit@host,"},
		{`begun (\S+) by \S+`, "begun $1 by team@host"},
		{`waited (\d+)\.\d+s`, "waited ${1}s"},
		{`(?m)^(applied|took|replayed) \d+ of \d+ .*\n|^pausing: .*\n`, ""}, // the progress of a slow command
	} {
		output = regexp.MustCompile(r.find).ReplaceAllString(output, r.write)
	}
	var b strings.Builder
	for line := range strings.Lines(output) {
		if at, ok := elapsed(line); ok {
			line = fmt.Sprintf("%5ds  %s", int(math.Floor(at)), line[strings.Index(line, "s  ")+3:])
		}
		b.WriteString(line)
	}
	return strings.TrimLeft(b.String(), "\n")
}

// elapsed returns the seconds at the beginning of a line of the journey, if it is one.
func elapsed(line string) (float64, bool) {
	found := regexp.MustCompile(`^ *([0-9.]+)s  m-`).FindStringSubmatch(line)
	if found == nil {
		return 0, false
	}
	at, err := strconv.ParseFloat(found[1], 64)
	return at, err == nil
}

// frame is a line of the screen and the moment at which it is printed, in seconds.
type frame struct {
	text, class string
	at          float64
}

// frames breaks the record into lines of the screen and gives each its moment: a
// command follows after a pause, its output at once, and the journey as it was.
func frames(text string) []frame {
	var all []frame
	now, journey := 0.5, -1.0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		at, moves := elapsed(line)
		switch {
		case moves && journey < 0:
			journey = now + 0.5 - at
			now = journey + at
		case moves:
			now = max(now, journey+at)
		case strings.HasPrefix(line, "$ "), regexp.MustCompile(`^\d\. `).MatchString(line):
			now += 1.5
		default:
			now += 0.06
		}
		class := classOf(line)
		for rest := []rune(line); ; {
			n := min(len(rest), columns)
			all = append(all, frame{string(rest[:n]), class, now})
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
	}
	return all
}

func classOf(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return "command"
	case regexp.MustCompile(`^\d\. |^   m-|^Done\. |^Next: `).MatchString(line):
		return "title"
	case regexp.MustCompile(`^\+ |^done: |^no changes|done, acknowledged|none failed again`).MatchString(line):
		return "good"
	case strings.Contains(line, "failed, rejected"), strings.Contains(line, "level=WARN"):
		return "bad"
	case strings.HasPrefix(line, "warning "):
		return "warning"
	}
	return ""
}

// terminal draws a record as a terminal that plays it again and again. Without
// animations it shows the end of the record.
func terminal(text string) string {
	all := frames(text)
	last := all[len(all)-1].at
	whole := last + 8 // the end stays for a while
	w, h := int(math.Ceil(columns*advance))+2*margin, visible*height+bar+2*margin
	end := max(0, len(all)-visible) * height
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title">
<title id="title">make demo in a terminal: a topology file, plan, apply, a processor, and a message that fails four
times</title>
<style>
  text {
    font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    fill: #d1d7e0; white-space: pre;
  }
  .command { fill: #f0f6fc; font-weight: 600; }
  .title { fill: #79c0ff; font-weight: 600; }
  .good { fill: #56d364; }
  .bad { fill: #ff7b72; }
  .warning { fill: #e3b341; }
  .bar { fill: #9198a1; }
  .roll { transform: translateY(-%[3]dpx); }
  .cover { fill: #0d1117; transform: translateY(%[4]dpx); }
  @media (prefers-reduced-motion: no-preference) {
    .roll { animation: roll %.1[5]fs step-end infinite; }
    .cover { animation: cover %.1[5]fs step-end infinite; }
  }
`, w, h, end, len(all)*height, whole)
	keyframes(&b, "roll", all, whole, func(shown int) int { return -max(0, shown-visible) * height })
	keyframes(&b, "cover", all, whole, func(shown int) int { return shown * height })
	fmt.Fprintf(&b, `</style>
<rect width="%d" height="%d" rx="8" fill="#0d1117"/>
<circle cx="18" cy="16" r="5" fill="#ff5f57"/>
<circle cx="36" cy="16" r="5" fill="#febc2e"/>
<circle cx="54" cy="16" r="5" fill="#28c840"/>
<text class="bar" x="%d" y="20" text-anchor="middle">make demo</text>
<clipPath id="screen"><rect x="0" y="%d" width="%d" height="%d"/></clipPath>
<g clip-path="url(#screen)"><g class="roll">
`, w, h, w/2, bar, w, visible*height+margin)
	for i, f := range all {
		if f.text != "" {
			fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d" xml:space="preserve">%s</text>`+"\n",
				f.class, margin, bar+(i+1)*height-4, html.EscapeString(f.text))
		}
	}
	fmt.Fprintf(&b, `<rect class="cover" x="0" y="%d" width="%d" height="%d"/>
</g></g>
</svg>
`, bar, w, len(all)*height+margin)
	return b.String()
}

// keyframes writes the moments at which something moves, in percent of the whole.
func keyframes(b *strings.Builder, name string, all []frame, whole float64, y func(shown int) int) {
	fmt.Fprintf(b, "  @keyframes %s {\n    0%% { transform: translateY(%dpx); }\n", name, y(0))
	before := y(0)
	for i, f := range all {
		if i+1 < len(all) && all[i+1].at == f.at {
			continue // both appear at once
		}
		if now := y(i + 1); now != before {
			fmt.Fprintf(b, "    %.2f%% { transform: translateY(%dpx); }\n", 100*f.at/whole, now)
			before = now
		}
	}
	fmt.Fprintf(b, "    100%% { transform: translateY(%dpx); }\n  }\n", y(len(all)))
}
