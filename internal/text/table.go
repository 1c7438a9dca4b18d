package text

import (
	"io"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
)

const (
	// columnGap is how many spaces are between two columns of a table.
	columnGap = 2
	// leastColumn is the width to which a column is shrunk at most.
	leastColumn = 8
)

// Fit returns s, cut to so many columns of a terminal: the end becomes an ellipsis. A character
// that takes two columns is never cut in half. With a width of 0 or less, s stays whole.
func Fit(s string, width int) string {
	if width <= 0 || uniseg.StringWidth(s) <= width {
		return s
	}
	var b strings.Builder
	for used, state := 0, -1; s != ""; {
		var cluster string
		var columns int
		cluster, s, columns, state = uniseg.FirstGraphemeClusterInString(s, state)
		if used += columns; used > width-1 {
			break
		}
		b.WriteString(cluster)
	}
	return b.String() + "…"
}

// Pad returns s with spaces behind it, so that it takes at least so many columns of a terminal.
func Pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-uniseg.StringWidth(s)))
}

// Table is a table of texts, and behind them of numbers, which are aligned to the right.
type Table struct {
	// Rows are the heading and the other rows. All have the same number of cells.
	Rows [][]string
	// Styles decorate the rows. A row without a style is plain.
	Styles []func(string) string
	// Numbers is how many of the columns are numbers: the last ones.
	Numbers int
	// Whole are columns that are not cut: names that a person copies.
	Whole []int
	// Last are columns that are cut only where no other can be: what a person came to read.
	Last []int
}

// Add adds a row with a style.
func (t *Table) Add(style func(string) string, cells ...string) {
	t.Rows, t.Styles = append(t.Rows, cells), append(t.Styles, style)
}

// Write writes the table. Where it is wider than width, the columns of a terminal, its widest texts
// are cut. With a width of 0 nothing is cut. Where the first column is one of the whole ones and
// has too little room, its longer names get lines of their own.
func (t Table) Write(w io.Writer, width int) error {
	widths := t.widths(width)
	var b strings.Builder
	for i, row := range t.Rows {
		var style func(string) string
		if i < len(t.Styles) {
			style = t.Styles[i]
		}
		if slices.Contains(t.Whole, 0) && Columns(row[0]) > widths[0] { // df does it so too
			b.WriteString(Paint(style, row[0]) + "\n")
			row = append([]string{""}, row[1:]...)
		}
		b.WriteString(Paint(style, t.line(row, widths)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths returns how wide each column is: as its widest cell, or less where the table is too wide.
func (t Table) widths(width int) []int {
	head := t.Rows[0]
	widths := make([]int, len(head))
	total := columnGap * (len(head) - 1)
	for i := range widths {
		for _, row := range t.Rows {
			widths[i] = max(widths[i], Columns(row[i]))
		}
		total += widths[i]
	}
	widestOf := func(last bool) int {
		widest := -1
		for i := range len(head) - t.Numbers {
			if !slices.Contains(t.Whole, i) && slices.Contains(t.Last, i) == last && widths[i] > leastColumn &&
				(widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		return widest
	}
	for width > 0 && total > width {
		widest := widestOf(false)
		if widest < 0 {
			widest = widestOf(true)
		}
		if widest < 0 && slices.Contains(t.Whole, 0) && widths[0] > max(leastColumn, Columns(head[0])) {
			widest = 0
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// line aligns the cells of a row.
func (t Table) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		if i >= len(cells)-t.Numbers {
			b.WriteString(strings.Repeat(" ", widths[i]-Columns(cell)) + cell)
		} else {
			b.WriteString(Pad(Fit(cell, widths[i]), widths[i]))
		}
		b.WriteString(strings.Repeat(" ", columnGap))
	}
	return strings.TrimRight(b.String(), " ")
}
