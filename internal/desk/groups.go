package desk

import (
	"context"
	"fmt"
	"io"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
)

// GroupBy looks at a queue, and counts the messages that a request chooses by what they have in
// common.
func (d *Desk) GroupBy(ctx context.Context, r Request, by deadletter.By) ([]deadletter.Group, Picked, error) {
	groups := deadletter.NewGroups(by)
	p, err := d.pick(ctx, r, by.NeedsBody(), func(_ deadletter.Message, v deadletter.View) error {
		groups.Add(v)
		return nil
	})
	return groups.List(), p, err
}

// WriteGroups writes groups as a table for a terminal with so many columns; 0 is no terminal.
func WriteGroups(w io.Writer, by string, groups []deadletter.Group, width int) error {
	if len(groups) == 0 {
		return nil
	}
	rows := [][]string{{"MESSAGES", "SHARE", "FIRST", "LAST", "EXAMPLE", text.Name(by)}}
	for _, g := range groups {
		rows = append(rows, []string{
			fmt.Sprint(g.Count), fmt.Sprintf("%.0f%%", g.Share*100), moment(g.First), moment(g.Last), g.Example.String(),
			groupName(g),
		})
	}
	return text.Table{Rows: rows, Whole: []int{4}}.Write(w, width)
}
