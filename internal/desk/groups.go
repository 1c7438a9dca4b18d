package desk

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Grouped is messages by what they have in common.
type Grouped struct {
	// By is what that is.
	By     string
	Groups []deadletter.Group
	// Apart are other ways in which the messages are several groups, if they are one.
	Apart []deadletter.Apart
	// Uncommented says why the comments on the groups are not known. Nil: they are.
	Uncommented error
}

// GroupBy looks at a queue once, and counts the messages that a request chooses by what they have
// in common.
func (d *Desk) GroupBy(ctx context.Context, r Request, ways *deadletter.Ways) (Grouped, Picked, error) {
	counts := text.Each(ways.By(), deadletter.NewGroups)
	p, err := d.pick(ctx, r, ways.NeedsBody(), func(_ deadletter.Message, v deadletter.View) error {
		for i, value := range ways.Add(v) {
			counts[i].AddValue(value, v)
		}
		return nil
	})
	chosen := ways.Chosen()
	groups := counts[chosen].List()
	out := Grouped{By: ways.By()[chosen].String(), Groups: groups, Apart: ways.Apart(len(groups))}
	if err == nil {
		out.Uncommented = d.annotate(ctx, r.Queue, groups)
	}
	return out, p, err
}

// WriteGroups writes groups as a table.
func WriteGroups(w io.Writer, found Grouped, s Screen) error {
	if len(found.Groups) == 0 {
		return nil
	}
	commented := slices.ContainsFunc(found.Groups, func(g deadletter.Group) bool { return g.Note != nil })
	row := func(comment string, cells ...string) []string {
		if commented {
			cells = slices.Insert(cells, len(cells)-1, comment)
		}
		return cells
	}
	rows := [][]string{row("COMMENT", "MESSAGES", "SHARE", "FIRST", "LAST", "EXAMPLE", text.Name(found.By))}
	for _, g := range found.Groups {
		rows = append(rows, row(noted(g),
			fmt.Sprint(g.Count), fmt.Sprintf("%.0f%%", g.Share*100), s.when(g.First), s.when(g.Last), g.Example.String(),
			groupName(g),
		))
	}
	return text.Table{Rows: rows, Whole: []int{4}}.Write(w, s.Width)
}

// WriteUncommented says why no comments are shown, if they are not known.
func WriteUncommented(w io.Writer, found Grouped) error {
	if found.Uncommented == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "comments on the groups are not shown: %s\n", topology.Printable(found.Uncommented.Error()))
	return err
}

// WriteMasked says of how many messages the value is not shown: they are one group, and may differ.
func WriteMasked(w io.Writer, found Grouped) error {
	i := slices.IndexFunc(found.Groups, func(g deadletter.Group) bool { return g.Masked() })
	if i < 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "note: %s is masked in %s: those that differ in it are one group\n",
		text.Name(found.By), text.Count(found.Groups[i].Count, "message"))
	return err
}

// WriteApart says in one line which other ways tell the messages of the only group apart, if any
// does.
func WriteApart(w io.Writer, found Grouped) error {
	if len(found.Apart) == 0 {
		return nil
	}
	ways := text.Each(found.Apart, func(a deadletter.Apart) string {
		return fmt.Sprintf("--by %s makes %d groups", a.By, a.Groups)
	})
	_, err := fmt.Fprintf(w, "by %s, the %d messages are one group; %s\n",
		text.Name(found.By), found.Groups[0].Count, text.List(ways))
	return err
}
