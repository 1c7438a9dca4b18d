package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
)

// retire waits until the retired tiers are empty, and deletes them. It returns the
// plan that remains then.
func (r *Runner) retire(ctx context.Context, first plan.Plan) (plan.Plan, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	said, begun := "", time.Now()
	var refused time.Time // when the broker first refused a deletion
	for wrote := !first.Empty(); ; wrote = true {
		p, err := r.plan(ctx)
		if err != nil && wrote {
			return p, &UnfinishedError{err}
		}
		if err != nil {
			return p, err
		}
		todo := plan.Allowed(p, r.Options.Allow)
		r.refusal = nil
		var failed error
		switch {
		case todo.Empty() && len(todo.Retiring) == 0: // skipped objects may need other tiers
			return p, nil
		case !todo.Empty():
			// To prove that a tier is empty takes seconds, so this loop does not spin.
			failed = r.write(ctx, todo)
			if failed == nil && r.refusal == nil {
				continue
			}
			if failed != nil && refused.IsZero() {
				refused = time.Now()
			}
			// A message of a tier may have reached a queue after the count by which the queue was to be
			// deleted. The broker keeps that queue, and the plan of a later count needs consent to it.
			if failed != nil && (!errors.Is(failed, broker.ErrRefused) ||
				time.Since(refused) > min(r.Wait, management.StatisticsLag)) {
				return p, &UnfinishedError{failed}
			}
		}
		if err := r.handOver(ctx, todo.Retiring); err != nil {
			return p, err
		}
		if line := r.waitsFor(todo); line != "" && line != said {
			said = line
			r.Reporter.Notice(line)
		}
		if time.Since(begun) > r.Wait {
			return p, r.waitedFor(p, failed)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return p, unfinished("interrupted while waiting until retired tiers are empty; run %s again", r.command())
		}
	}
}

// waitsFor says what the run waits for: retired tiers, or else a queue that the plan does not know
// to be in use, and that the broker has refused to delete.
func (r *Runner) waitsFor(todo plan.Plan) string {
	switch hold, read := retiring(todo); {
	case hold+read == "" && r.refusal != nil:
		return "waiting: " + r.refusal.String()
	case hold+read == "":
		return ""
	case read == "":
		return "waiting until retired tiers are empty: " + hold
	case hold == "":
		return "waiting until no processor with an older file reads " + read
	default:
		return "waiting until retired tiers are empty: " + hold +
			"; and until no processor with an older file reads " + read
	}
}

// retiring names the retired queues of a plan that hold messages, and those that processors with an
// older file read.
func retiring(p plan.Plan) (hold, read string) {
	var holding, reading []string
	for _, name := range p.Retiring {
		if slices.Contains(p.StillRead, name) {
			reading = append(reading, name)
		} else {
			holding = append(holding, name)
		}
	}
	return strings.Join(holding, ", "), strings.Join(reading, ", ")
}

// waitedFor is the error of a run that has waited as long as it may. failed is why its last write
// failed, if it did.
func (r *Runner) waitedFor(p plan.Plan, failed error) error {
	var why []string
	if r.refusal != nil {
		why = append(why, r.refusal.String())
	}
	hold, read := retiring(p)
	if hold != "" {
		why = append(why, "retired tiers still hold messages: "+hold)
	}
	then := "run " + r.command() + " again"
	if read != "" {
		why = append(why, "a processor with an older file still reads "+read)
		then = "restart it with the new file, then " + then
	}
	if len(why) == 0 && failed != nil {
		why = append(why, failed.Error())
	}
	return unfinished("waited for %s: %s; %s", text.Duration(r.Wait), strings.Join(why, ", and "), then)
}
