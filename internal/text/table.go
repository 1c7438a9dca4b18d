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

// Table writes rows as a table, whose first row is the heading. All rows have the same number of
// cells. Where the table is wider than width, the columns of a terminal, its widest columns are
// cut, but for those in whole: names that a person copies. With a width of 0 nothing is cut.
func Table(w io.Writer, rows [][]string, width int, whole ...int) error {
	columns := make([]int, 0)
	for _, row := range rows {
		for i, cell := range row {
			if i == len(columns) {
				columns = append(columns, 0)
			}
			columns[i] = max(columns[i], uniseg.StringWidth(cell))
		}
	}
	if width > 0 {
		shrink(columns, width-columnGap*(len(columns)-1), whole)
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			if cell = Fit(cell, columns[i]); i < len(row)-1 {
				cell = Pad(cell, columns[i]+columnGap)
			}
			b.WriteString(cell)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shrink makes the widest columns narrower until all together fit a width, as far as that goes.
func shrink(columns []int, width int, whole []int) {
	for {
		total, widest := 0, -1
		for i, c := range columns {
			total += c
			if !slices.Contains(whole, i) && (widest < 0 || c > columns[widest]) {
				widest = i
			}
		}
		if total <= width || widest < 0 || columns[widest] <= leastColumn {
			return
		}
		columns[widest]--
	}
}
