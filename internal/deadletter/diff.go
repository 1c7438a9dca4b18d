package deadletter

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Comparison is how two messages differ, as a person may see them.
type Comparison struct {
	// A and B are the handles of the messages.
	A string `json:"a"`
	B string `json:"b"`
	// AQueue and BQueue are the queues where they lie.
	AQueue string `json:"aLiesIn"`
	BQueue string `json:"bLiesIn"`
	// Differences are what they differ in, but for their places.
	Differences []Difference `json:"differences"`
	// Masked reports that rules mask a part of one of them. What is masked is not compared: whether
	// two values are equal could tell one of them.
	Masked bool `json:"masked"`
}

// Difference is one thing in which two messages differ.
type Difference struct {
	// Part is failure, timeline, properties, headers, envelope or body.
	Part string `json:"part"`
	// Name is the property, header or fact. Empty: the text of the timeline or of the body.
	Name string `json:"name,omitempty"`
	// A and B are the values, as desk show prints them. Empty: the message has none.
	A string `json:"aHas,omitempty"`
	B string `json:"bHas,omitempty"`
	// Lines are how texts of several lines differ: those of the first message alone begin with "-",
	// those of the second with "+".
	Lines string `json:"lines,omitempty"`
}

// Compare compares two messages. As they were published, they have no failure and no timeline, and
// no headers of dlxctl or RabbitMQ.
func Compare(a, b View, published bool) Comparison {
	out := Comparison{
		A: a.Name(), B: b.Name(), AQueue: a.Queue, BQueue: b.Queue, Differences: []Difference{},
		Masked: a.Masked || b.Masked,
	}
	ofA, ofB := a.parts(published), b.parts(published)
	for i, part := range ofA {
		valuesA, valuesB := byName(part.rows), byName(ofB[i].rows)
		var seen []string
		for _, row := range slices.Concat(part.rows, ofB[i].rows) {
			name := row[0]
			if slices.Contains(seen, name) || valuesA[name] == valuesB[name] {
				continue
			}
			seen = append(seen, name)
			d := Difference{Part: part.title, Name: name, A: valuesA[name], B: valuesB[name]}
			if name == "" || strings.Contains(d.A+d.B, "\n") {
				d = Difference{Part: part.title, Name: name, Lines: hunks(d.A, d.B)}
			}
			if d.Lines != "" || d.A != d.B {
				out.Differences = append(out.Differences, d)
			}
		}
	}
	return out
}

// part is what a message has under a title, rows with a name and a value.
type part struct {
	title string
	rows  [][2]string
}

// parts returns what two messages are compared by. The text of the timeline and of the body is a
// row without a name.
func (v View) parts(published bool) []part {
	var headers [][2]string
	for _, f := range v.Families() {
		for _, name := range f.Headers {
			if topology.IsDeliveryCount(name) {
				continue // each look changes it
			}
			if !published || f.Name != familyDlxctl && f.Name != familyRabbitMQ {
				headers = append(headers, [2]string{name, literal(v.Headers[name])})
			}
		}
	}
	body := [][2]string{
		{"format", string(v.Body.Format)},
		{"from", strings.Join(v.Body.Steps, ", ")},
		{"note", v.Body.Note},
		{"", v.Body.Text},
	}
	if v.Bytes >= 0 {
		body = append([][2]string{{"size", text.Count(v.Bytes, "byte")}}, body...)
	}
	out := []part{
		{"properties", v.properties()}, {"headers", headers}, {"envelope", v.envelope()}, {"body", body},
	}
	if published {
		return out
	}
	timeline := page{width: 1 << 20}
	timeline.timeline(v.Hops)
	return append([]part{
		{"failure", v.failure()}, {"timeline", [][2]string{{"", strings.TrimPrefix(timeline.String(), "\ntimeline\n")}}},
	}, out...)
}

func byName(rows [][2]string) map[string]string {
	out := make(map[string]string, len(rows))
	for _, row := range rows {
		out[row[0]] = row[1]
	}
	return out
}

// hunks returns the lines of [Diff] without those that name the texts.
func hunks(a, b string) string {
	out := Diff("a", a, "b", b)
	for range 3 {
		_, out, _ = strings.Cut(out, "\n")
	}
	return out
}

// Write writes the comparison for a person: what only A has behind "-", and what only B has behind
// "+".
func (c Comparison) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s in %s\n+ %s in %s\n", c.A, safe(c.AQueue), c.B, safe(c.BQueue))
	last := ""
	for _, d := range c.Differences {
		if d.Part != last {
			fmt.Fprintf(&b, "\n%s\n", d.Part)
		}
		last = d.Part
		if d.Lines != "" && d.Name != "" {
			fmt.Fprintf(&b, "  %s\n", safe(d.Name))
		}
		b.WriteString(d.Lines)
		for _, side := range []struct{ sign, value string }{{"-", d.A}, {"+", d.B}} {
			if side.value != "" {
				fmt.Fprintf(&b, "%s %s  %s\n", side.sign, safe(d.Name), safe(side.value))
			}
		}
	}
	if len(c.Differences) == 0 {
		b.WriteString("the messages do not differ, except in their places\n")
	}
	if c.Masked {
		b.WriteString("masked values are not compared\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
