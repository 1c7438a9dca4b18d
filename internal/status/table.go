package status

import (
	"fmt"
	"io"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// table has columns of texts, and behind them columns of numbers.
type table struct {
	head   []string
	texts  int // how many of the columns are texts
	rows   [][]string
	styles []func(string) string // of each row; nil: none
}

func (t *table) add(cells []string, style func(string) string) {
	t.rows, t.styles = append(t.rows, cells), append(t.styles, style)
}

const (
	gap = 2
	// leastText is the width to which a column of texts is cut at most.
	leastText = 8
)

// widths returns how wide each column is: as its widest cell, and where the table is wider than
// the terminal, less for texts. The first column, which people copy, is cut last, and only for the
// others: a longer name gets a line of its own.
func (t *table) widths(terminal int) []int {
	widths := make([]int, len(t.head))
	total := gap * (len(t.head) - 1)
	for i, name := range t.head {
		widths[i] = text.Columns(name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], text.Columns(row[i]))
		}
		total += widths[i]
	}
	for i := t.texts - 1; i >= 0 && terminal > 0 && total > terminal; i-- {
		cut := min(total-terminal, max(0, widths[i]-max(leastText, text.Columns(t.head[i]))))
		widths[i], total = widths[i]-cut, total-cut
	}
	return widths
}

// write writes the table.
func (t *table) write(w io.Writer, o TextOptions) {
	widths := t.widths(o.Width)
	fmt.Fprintln(w, text.Paint(o.Style.Strong, t.row(t.head, widths)))
	for i, row := range t.rows {
		line := t.row(row, widths)
		if text.Columns(row[0]) > widths[0] { // df does it so too: names stay whole
			fmt.Fprintln(w, text.Paint(t.styles[i], row[0]))
			line = t.row(append([]string{""}, row[1:]...), widths)
		}
		fmt.Fprintln(w, text.Paint(t.styles[i], line))
	}
}

// row aligns texts to the left and numbers to the right.
func (t *table) row(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		if i < t.texts {
			b.WriteString(text.Pad(text.Fit(cell, widths[i]), widths[i]))
		} else {
			b.WriteString(strings.Repeat(" ", max(0, widths[i]-len(cell))) + cell)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
