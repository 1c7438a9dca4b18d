package deadletter

import (
	"slices"
	"strings"
)

// Ways are the ways in which messages are grouped while they are read once. They also note what
// other ways would tell apart.
type Ways struct {
	by    []By
	found []bool // whether a message has a value, for each way
	other []distinct
	total int
}

// distinct are the values that messages have in another way.
type distinct struct {
	by     By
	values map[string]bool // nil: too many
}

// mostDistinct is how many values another way may have: with more, it tells nothing.
const mostDistinct = 100

// NewWays returns the way to group that a person asks for, as [ParseBy] reads it. Where that is
// empty, messages are grouped by error if any has one, and otherwise by cause.
func NewWays(asked string) (*Ways, error) {
	names := []string{"error", "cause"}
	if asked != "" {
		names = []string{asked}
	}
	w := &Ways{found: make([]bool, len(names))}
	for _, name := range names {
		by, err := ParseBy(name)
		if err != nil {
			return nil, err
		}
		w.by = append(w.by, by)
	}
	for _, name := range []string{"error", "type", "key", "queue", "exchange", "cause"} {
		by, err := ParseBy(name)
		if err != nil {
			return nil, err
		}
		if !by.NeedsBody() || w.NeedsBody() {
			w.other = append(w.other, distinct{by, map[string]bool{}})
		}
	}
	return w, nil
}

// By returns the ways: two at most.
func (w *Ways) By() []By { return w.by }

// NeedsBody reports whether grouping needs the body, as [By.NeedsBody] does.
func (w *Ways) NeedsBody() bool { return slices.ContainsFunc(w.by, By.NeedsBody) }

// Add counts a message, and returns its value in each of the ways.
func (w *Ways) Add(v View) []string {
	w.total++
	values := make([]string, len(w.by))
	for i, by := range w.by {
		values[i] = by.Value(v)
		w.found[i] = w.found[i] || values[i] != ""
	}
	for i := range w.other {
		d := &w.other[i]
		switch at := slices.IndexFunc(w.by, func(by By) bool { return by.source == d.by.source }); {
		case at >= 0:
			d.add(values[at])
		case d.values != nil:
			d.add(d.by.Value(v))
		}
	}
	return values
}

func (d *distinct) add(value string) {
	if d.values == nil {
		return
	}
	if !d.values[value] {
		d.values[strings.Clone(value)] = true
	}
	if len(d.values) > mostDistinct {
		d.values = nil
	}
}

// Chosen returns the index of the first way in which a message has a value, or of the last one.
func (w *Ways) Chosen() int {
	if i := slices.Index(w.found, true); i >= 0 {
		return i
	}
	return len(w.found) - 1
}

// Apart is a way to group that tells messages apart.
type Apart struct {
	By     string `json:"by"`
	Groups int    `json:"groups"`
}

// Apart returns the other ways in which the messages are several groups, if they are one group in
// the chosen way. A way in which each message is a group of its own tells nothing.
func (w *Ways) Apart(groups int) []Apart {
	if groups != 1 {
		return nil
	}
	var out []Apart
	for _, d := range w.other {
		if n := len(d.values); n > 1 && n < w.total && d.by.source != w.by[w.Chosen()].source {
			out = append(out, Apart{d.by.source, n})
		}
	}
	return out
}
