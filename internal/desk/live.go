package desk

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
)

// FindLive looks for a live message to compare a dead letter with: the first in the work queue in
// which it failed that has its routing key, as the publishers gave it. It refuses a key that is
// masked: what was found would tell it.
func (d *Desk) FindLive(ctx context.Context, m deadletter.Message, o LookOptions) (live deadletter.View, err error) {
	facts := deadletter.Read(m.Delivery, m.Queue, d.known())
	switch {
	case facts.WorkQueue == "":
		return live, refusef("the message does not tell in which queue it failed (%s); compare it with another by its handle",
			cmp.Or(facts.Doubt, "no header names it"))
	case d.Reader.View(m).Key != facts.Key:
		return live, refusef("the routing key of the message is masked; compare it with another by its handle")
	}
	found := false
	looked, err := d.Look(ctx, facts.WorkQueue, o, func(of deadletter.Message) error {
		if deadletter.Read(of.Delivery, of.Queue, d.known()).Key != facts.Key {
			return nil
		}
		live, found = d.Reader.View(of), true
		return ErrEnough
	})
	if err != nil || found {
		return live, err
	}
	return live, fmt.Errorf("no message has the routing key %s among the %d that were looked at in %s; consumers may hold some",
		text.Name(facts.Key), looked.Looked, text.Name(facts.WorkQueue))
}
