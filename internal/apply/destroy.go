package apply

import (
	"context"
	"fmt"
	"strings"
)

// Destroy deletes everything of a topology. The session must be opened for the topology of
// plan.Nothing.
//
// It is a run of [Runner.Run], with the same order, hazards and consent. What still holds
// messages on their way stays, and the error, an [UnfinishedError], names it.
func (r *Runner) Destroy(ctx context.Context) error {
	r.Options.Destroy = true
	if err := r.Run(ctx); err != nil {
		return err
	}
	left, err := r.plan(ctx)
	if err != nil {
		return &UnfinishedError{fmt.Errorf("read the broker again: %w; run destroy again", err)}
	}
	if err := r.usedMeanwhile(left); err != nil {
		return err
	}
	stay := staying(left)
	if held := holding(left); len(held) > 0 { // the rest stays for what they hold
		stay = held
	}
	if len(stay) > 0 {
		return unfinished("%s may still hold messages; keep 'dlxctl process' running, and run destroy again, or pass --wait",
			strings.Join(stay, ", "))
	}
	return nil
}
