package graph

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// MostMermaid is how many arrows Mermaid draws so that a person can read them. Its limit is 500.
const MostMermaid = 200

// TooLargeError is a graph that Mermaid cannot draw well.
type TooLargeError struct{ Edges int }

// Error says what to do.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the graph has %d arrows, and Mermaid is unreadable above %d; name the queues that matter, or write -o svg",
		e.Edges, MostMermaid)
}

// WriteText lists each box with its arrows.
func WriteText(w io.Writer, g Graph) error {
	lines := make([][]string, len(g.Nodes))
	for _, e := range g.Edges {
		lines[e.From] = append(lines[e.From], g.describe(e))
	}
	var b strings.Builder
	for i, n := range g.Nodes {
		if len(lines[i]) == 0 {
			continue
		}
		b.WriteString(text.Name(n.Name))
		if n.Detail != "" {
			fmt.Fprintf(&b, " (%s)", topology.Printable(n.Detail))
		}
		b.WriteString("\n  " + strings.Join(lines[i], "\n  ") + "\n")
	}
	for _, line := range g.legend() {
		if line.label != "" { // words say what an arrow is
			b.WriteString(line.label + ": a message " + line.said + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describe says what an arrow does.
func (g Graph) describe(e Edge) string {
	to := g.Nodes[e.To]
	said := "-> " + text.Name(to.Name)
	switch e.Style {
	case Retry:
		said = "rejected -> " + to.Name + " (" + to.Detail + ") -> " + text.Name(g.Nodes[e.From].Name)
		if e.Onward {
			said = "rejected -> " + to.Name + " (" + to.Detail + ")"
			for _, next := range g.Edges {
				if next.Onward && next.From == e.To && next.Of == e.Of {
					said += " -> " + text.Name(g.Nodes[next.To].Name)
				}
			}
		}
		if g.Nodes[e.From].Kind == Backoff {
			said = "retries of " + text.Name(e.Of) + " -> " + text.Name(to.Name)
		}
	case Dead:
		said = "dead letter -> " + text.Name(to.Name)
		if e.Of != "" && g.Nodes[e.From].Kind == Backoff {
			said = "of " + text.Name(e.Of) + " -> " + text.Name(to.Name)
		}
	case Lost:
		return "LOST: " + topology.Printable(to.Detail)
	case Route, Alternate:
	}
	if len(e.Labels) > 0 {
		said += "  " + topology.Printable(strings.Join(e.Labels, ", "))
	}
	return said
}

// WriteDot writes g for Graphviz.
func WriteDot(w io.Writer, g Graph) error {
	var b strings.Builder
	b.WriteString("digraph messages {\n  rankdir=LR;\n  node [shape=box, style=filled, fontname=\"Helvetica\"];\n")
	for i, n := range g.Nodes {
		said := n.Name
		if n.Detail != "" {
			said += "\n" + n.Detail
		}
		fmt.Fprintf(&b, "  n%d [label=%s, %s];\n", i, dotQuote(said), dotStyle(n.Kind))
	}
	for _, e := range g.Edges {
		both := "both"
		if e.Onward {
			both = "forward"
		}
		style := map[Style]string{
			Alternate: ", style=dotted", Retry: ", dir=" + both + ", color=darkgreen", Dead: ", color=chocolate",
			Lost: ", style=dashed, color=red",
		}[e.Style]
		fmt.Fprintf(&b, "  n%d -> n%d [label=%s%s];\n", e.From, e.To, dotQuote(label(e)), style)
	}
	if legend := g.inWords(); len(legend) > 0 {
		fmt.Fprintf(&b, "  labeljust=l; fontname=\"Helvetica\"; fontsize=10;\n  label=%s;\n", dotLines(legend))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// dotLines quotes lines for Graphviz, which starts each at the left.
func dotLines(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.Trim(dotQuote(line), `"`) + `\l`)
	}
	return `"` + b.String() + `"`
}

// dotQuote quotes a text for Graphviz, which knows \n and \" alone.
func dotQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func dotStyle(k Kind) string {
	switch k {
	case Exchange:
		return "shape=oval, fillcolor=lemonchiffon"
	case Backoff, Waiting:
		return "fillcolor=honeydew"
	case Kept:
		return "fillcolor=mistyrose"
	case Loss:
		return "style=dashed, color=red, fontcolor=red"
	case Queue:
		return "fillcolor=lightcyan"
	default:
		return "fillcolor=white"
	}
}

// WriteMermaid writes g for Mermaid, which GitHub and GitLab draw. It refuses a graph that is too
// large for it with a [*TooLargeError].
func WriteMermaid(w io.Writer, g Graph) error {
	if len(g.Edges) > MostMermaid {
		return &TooLargeError{len(g.Edges)}
	}
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i, n := range g.Nodes {
		said := mermaidQuote(n.Name)
		if n.Detail != "" {
			said += "<br>" + mermaidQuote(n.Detail)
		}
		shape := [2]string{"[", "]"}
		if n.Kind == Exchange {
			shape = [2]string{"([", "])"}
		}
		fmt.Fprintf(&b, "  n%d%s\"%s\"%s:::%s\n", i, shape[0], said, shape[1], n.Kind)
	}
	links := map[Style][]string{}
	for i, e := range g.Edges {
		arrow := map[Style]string{Retry: "<-->", Alternate: "-.->", Lost: "-.->"}[e.Style]
		if arrow == "" || e.Onward {
			arrow = "-->"
		}
		if said := label(e); said != "" {
			arrow += `|"` + mermaidQuote(said) + `"|`
		}
		fmt.Fprintf(&b, "  n%d %s n%d\n", e.From, arrow, e.To)
		links[e.Style] = append(links[e.Style], strconv.Itoa(i))
	}
	if legend := g.inWords(); len(legend) > 0 {
		fmt.Fprintf(&b, "  legend[\"%s\"]:::legend\n", strings.Join(text.Each(legend, mermaidQuote), "<br>"))
	}
	b.WriteString(`  classDef exchange fill:#fff8c5,stroke:#9a6700,color:#1f2328
  classDef queue fill:#ddf4ff,stroke:#0969da,color:#1f2328
  classDef backoff fill:#dafbe1,stroke:#1a7f37,color:#1f2328
  classDef waiting fill:#dafbe1,stroke:#1a7f37,color:#1f2328
  classDef kept fill:#ffebe9,stroke:#cf222e,color:#1f2328
  classDef loss fill:#ffffff,stroke:#cf222e,color:#cf222e,stroke-dasharray:4 3
  classDef legend fill:none,stroke:none,text-align:left
`)
	for _, link := range []struct {
		style Style
		css   string
	}{{Retry, "stroke:#1a7f37"}, {Dead, "stroke:#bc4c00"}, {Lost, "stroke:#cf222e,stroke-dasharray:5 4"}} {
		if list := links[link.style]; len(list) > 0 {
			fmt.Fprintf(&b, "  linkStyle %s %s\n", strings.Join(list, ","), link.css)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mermaidQuote writes characters that mean something to Mermaid, or to HTML, by their number.
func mermaidQuote(s string) string {
	var b strings.Builder
	for _, r := range topology.Printable(s) {
		if strings.ContainsRune("\"#<>&`|{}[]()\\;*_", r) {
			fmt.Fprintf(&b, "#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
