package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// ReplacesQueue reports whether c replaces a queue under its own name. apply writes nothing for it:
// dlxctl migrate carries it out.
func (c Change) ReplacesQueue() bool {
	return c.Action == Blocked && slices.Contains(c.Hazards, topology.ReplacesQueue)
}

// Replacements returns the queues that dlxctl migrate may replace under their names: those of p
// with a consent. apply would replace an empty one too, while messages for it have no queue.
func (p Plan) Replacements(allow []Consent) []string {
	var out []string
	for _, c := range p.Changes {
		isWork := c.Kind == topology.KindQueue && c.Label.Role == topology.RoleWork
		if isWork && (c.ReplacesQueue() || c.Action == Replace) && p.consents(allow).cover(c, topology.ReplacesQueue) {
			out = append(out, c.Name)
		}
	}
	return out
}

// CannotReplace is the text in the reason of a blocked queue before why it cannot be replaced under
// its name.
const CannotReplace = "it cannot be replaced under its name: "

// replacing lets a work queue that the broker cannot change be replaced under its name, if that can
// be done without losing a message. c is the blocked change of the queue.
func (r resolved) replacing(c Change, have, want topology.Queue) Change {
	if want.Label.Role != topology.RoleWork {
		return c
	}
	if why := r.irreplaceable(have); why != "" {
		c.Reason += "; " + CannotReplace + why
		c.Brief = strings.TrimPrefix(c.Brief+"; "+CannotReplace+why, "; ")
		return c
	}
	c.Hazards, c.Immutable = []topology.Hazard{topology.ReplacesQueue}, false
	way := fmt.Sprintf("with consent (%s, or replace: true in the file), 'dlxctl migrate %s' replaces the queue",
		Consent{topology.ReplacesQueue, c.Name}.Flag(), text.ShellQuote(c.Name))
	c.Reason += ". Under its name: " + way
	c.Brief = strings.TrimSuffix(way+"; or "+c.Brief, "; or ")
	return c
}

// irreplaceable says why a queue cannot be replaced under its name. Empty: it can.
func (r resolved) irreplaceable(q topology.Queue) string {
	switch {
	case q.Exclusive:
		return "it is exclusive: it belongs to one connection and ends with it"
	case q.AutoDelete:
		return "the broker deletes it with its last consumer (auto-delete)"
	case q.Type() == topology.Stream:
		return "it is a stream: messages cannot be removed from it"
	case q.Arguments.HasAny(topology.ArgExpires):
		return "the broker deletes it, with its messages, while it has no consumer (x-expires)"
	}
	now := r.present().after(nil)
	if _, expires := now.policy(q)[topology.KeyExpires]; expires {
		return "the broker deletes it, with its messages, while it has no consumer (a policy with expires)"
	}
	if feeders := now.feeders()[q.Name]; len(feeders) > 0 {
		return fmt.Sprintf("%s %s to it by its name: such messages would be lost while there is no queue",
			text.Some(feeders), text.Choose(len(feeders), "dead-letters", "dead-letter"))
	}
	return ""
}

// unfinished reports whether the replacement of a queue under its name has begun and not ended.
func (r *resolver) unfinished(queue string) bool { return r.begun[queue] }

// unfinishedReason says what to do about a replacement that was stopped.
func unfinishedReason(queue string) string {
	return fmt.Sprintf("the queue is being replaced under its name, and that is not finished; run 'dlxctl migrate %s', which goes on where it was stopped", text.ShellQuote(queue))
}

// replacementsOf returns the queues of the file, and of the broker, that are being replaced under
// their names: each has a hold. stray are holds of queues that are not in the file.
func replacementsOf(want topology.Compiled, state topology.State) (begun map[string]bool, stray []topology.Queue) {
	holds, begun := map[string]topology.Queue{}, map[string]bool{}
	for _, q := range state.Have.Queues {
		if topology.IsReplacementHold(want.Name, q) {
			holds[q.Name] = q
		}
	}
	if len(holds) == 0 {
		return begun, nil
	}
	for _, q := range state.Have.Queues {
		if _, held := holds[topology.ReplacementHoldName(want.Name, q.Name)]; held {
			begun[q.Name] = true
		}
	}
	for _, q := range want.Queues {
		name := topology.ReplacementHoldName(want.Name, q.Name)
		if _, held := holds[name]; held {
			begun[q.Name] = true
			delete(holds, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		stray = append(stray, holds[name])
	}
	return begun, stray
}

// strayReason says what to do about a hold of a queue that is not in the file.
const strayReason = "messages of a queue that is being replaced under its name wait there, and that is not finished; run 'dlxctl migrate' with the file that has the queue, and delete the queue afterwards"

// Differs reports whether a queue exists and the broker cannot turn it into the one of the file:
// its type or its arguments differ.
func Differs(want topology.Compiled, state topology.State, queue string) bool {
	r := newResolver(policy.WithMatched(want, state.Have.Queues), state)
	have, exists := r.existing[queue]
	if !exists {
		return false
	}
	for _, want := range r.want.Queues {
		if want.Name == queue && !want.External {
			have.Arguments = r.attached(have, aligned(have.Arguments, want.Arguments, comparedQueueArguments()))
			return len(differing(asFields(have.Properties()), asFields(want.Properties()))) > 0
		}
	}
	return false
}
