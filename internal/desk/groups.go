package desk

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

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

// WriteGroups writes groups as a table.
func WriteGroups(w io.Writer, by string, groups []deadletter.Group) error {
	if len(groups) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "MESSAGES\tSHARE\tFIRST\tLAST\tEXAMPLE\t%s\n", text.Name(by))
	for _, g := range groups {
		fmt.Fprintf(t, "%d\t%.0f%%\t%s\t%s\t%s\t%s\n", g.Count, g.Share*100, moment(g.First), moment(g.Last), g.Example,
			groupName(g))
	}
	return t.Flush()
}
