package desk

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
)

// Why is what the messages at the head of a queue died of.
type Why struct {
	Looked Looked
	// Refused says why the queue was not looked at. Empty: it was.
	Refused string
	// All are the groups of all messages that were looked at, and Recent those of the messages that
	// failed within the time asked for, in the same way.
	By          string
	All, Recent []deadletter.Group
	// New is how many messages failed within that time.
	New int
}

// Why looks at a queue once, within limits, and groups its messages as [Desk.GroupBy] does where a
// person asks for no way. A queue that a look would harm is not looked at.
func (d *Desk) Why(ctx context.Context, queue string, o LookOptions, since time.Time) (Why, error) {
	ways, err := deadletter.NewWays("")
	if err != nil {
		return Why{}, err
	}
	var out Why
	all, recent := text.Each(ways.By(), deadletter.NewGroups), text.Each(ways.By(), deadletter.NewGroups)
	out.Looked, err = d.Look(ctx, queue, o, func(m deadletter.Message) error {
		v := d.view(m, ways.NeedsBody())
		isNew := !v.LastFailed.Before(since)
		if isNew {
			out.New++
		}
		for i, value := range ways.Add(v) {
			all[i].AddValue(value, v)
			if isNew {
				recent[i].AddValue(value, v)
			}
		}
		return nil
	})
	if errors.Is(err, ErrRefused) {
		out.Refused, err = strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "), nil
	}
	chosen := ways.Chosen()
	out.By, out.All, out.Recent = ways.By()[chosen].String(), all[chosen].List(), recent[chosen].List()
	return out, err
}
