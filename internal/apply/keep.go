package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// tierKeeper leaves retired retry and failed queues in which messages still wait for a
// later run, and with them the return bindings of these messages; also previous dead-letter queues
// that are not empty. The broker refuses to delete such queues: nothing is lost. Once a queue of a
// delay is not empty, nothing else of that delay is deleted.
type tierKeeper struct {
	Converger

	mu   sync.Mutex
	kept map[topology.Key]bool
	// refusal says of a queue among kept why the broker has refused to delete it. Nil: none is kept.
	refusal *refusal
	// delays are the queues that stay, by the delay of which they are.
	delays map[string][]string
}

// refusal is the deletion of a queue that the broker has refused.
type refusal struct {
	queue string
	why   error
}

// String says why the queue stays.
func (r refusal) String() string {
	return fmt.Sprintf("%s is not deleted: %s", text.Name(r.queue), r.why)
}

// Apply carries out a change, or notes that it has to wait.
func (k *tierKeeper) Apply(ctx context.Context, c plan.Change) error {
	// The queues come before the bindings that lead their messages back.
	if c.ReturnPath && k.keepsAny() || c.Action == plan.Delete && k.keepsDelay(c.Label.Delay) {
		k.keep(c)
		return nil
	}
	err := k.Converger.Apply(ctx, c)
	generated := c.Label.Role == topology.RoleRetry || c.Label.Role == topology.RoleFailed || c.Outdated
	deletesQueue := c.Action == plan.Delete && c.Kind == topology.KindQueue
	mayLose := slices.Contains(c.Hazards, topology.LosesMessages)
	if deletesQueue && generated && !mayLose && errors.Is(err, broker.ErrRefused) {
		k.keep(c)
		k.note(refusal{c.Name, err})
		return nil
	}
	return err
}

// note notes the first refusal.
func (k *tierKeeper) note(r refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refusal == nil {
		k.refusal = &r
	}
}

// keep notes that c has to wait.
func (k *tierKeeper) keep(c plan.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[keyOf(c)] = true
	if delay := c.Label.Delay; delay != "" && c.Kind == topology.KindQueue {
		k.delays[delay] = append(k.delays[delay], c.Name)
	}
}

// keepsDelay reports whether a queue of a delay stays.
func (k *tierKeeper) keepsDelay(delay string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.delays[delay]) > 0
}

// undelayed returns why a delay is not removed, of which messages still wait. Nil: there is none.
func (k *tierKeeper) undelayed(want topology.Compiled) error {
	for _, delay := range slices.Sorted(maps.Keys(k.delays)) {
		if _, stays := want.Delay(delay); stays { // only levels of it went
			continue
		}
		slices.Sort(k.delays[delay])
		return unfinished("the delay %s is not removed whole: %s stay, as messages still waited there; put the delay back into the file, run apply, and remove it once 'dlxctl status' has counted none for 10 seconds",
			text.Name(delay), strings.Join(k.delays[delay], ", "))
	}
	return nil
}

// keepsAny reports whether a queue stays.
func (k *tierKeeper) keepsAny() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.kept) > 0
}

// lastOfKept returns the part of the last plan that is about what the run has kept.
func (r *Runner) lastOfKept() plan.Plan {
	out := r.last
	out.Changes = slices.DeleteFunc(slices.Clone(out.Changes), func(c plan.Change) bool { return !r.kept[keyOf(c)] })
	return out
}

// usedMeanwhile returns an error if a change of left is not allowed. The run began without such
// changes: a message or a consumer came after its plan, and it has kept the queue and what leads
// back to it.
func (r *Runner) usedMeanwhile(left plan.Plan) error {
	stay := staying(left)
	late := plan.Skipped(left, r.Options.Allow, fmt.Sprintf("a queue was used meanwhile, so that %s %s",
		text.Some(text.Names(stay)), text.Choose(len(stay), "stays", "stay")))
	if late == nil {
		return nil
	}
	return &UnfinishedError{late}
}

// staying names the objects that stay while left is not carried out.
func staying(left plan.Plan) []string {
	out := slices.Clone(left.Retiring)
	for _, c := range left.Changes {
		if c.Kind != topology.KindBinding {
			out = append(out, c.Name)
		}
	}
	return out
}

// holding names the queues that stay while left is not carried out: no other object holds messages.
func holding(left plan.Plan) []string {
	left.Changes = slices.DeleteFunc(slices.Clone(left.Changes), func(c plan.Change) bool {
		return c.Kind != topology.KindQueue
	})
	return staying(left)
}

// keyOf returns the key of the object that c changes.
func keyOf(c plan.Change) topology.Key { return topology.Key{Kind: c.Kind, Name: c.Name} }
