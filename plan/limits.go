package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// limitsByPolicy returns want with those length limits of queues that exist in the policies that
// give the queues their dead-lettering where RabbitMQ then applies them, and these limits as
// arguments, by queue. A limit that the queue has as the file wants it stays an argument: nothing
// changes. So does one that a policy cannot bring about; the change of the queue is then blocked.
// Queues that are created get their limits as arguments, as the services that declare them repeat
// these.
func limitsByPolicy(
	want topology.Compiled, found map[string]topology.Queue,
) (topology.Compiled, map[string]topology.Arguments) {
	limits := map[string]topology.Arguments{}
	at := map[string]int{}
	for i, q := range want.Queues {
		at[q.Name] = i
	}
	want.Queues, want.Policies = slices.Clone(want.Queues), slices.Clone(want.Policies)
	for i, p := range want.Policies {
		j, ok := at[p.Label.Queue]
		have, exists := found[p.Label.Queue]
		if !ok || !exists || want.Queues[j].External || have.Type() != want.Queues[j].Type() {
			continue
		}
		q := &want.Queues[j]
		for _, name := range lengthArguments() {
			own, given := have.Arguments[name]
			v, wanted := q.Arguments[name]
			if !wanted || own == v || !policySets(have, name, v) {
				continue
			}
			if limits[q.Name] == nil {
				limits[q.Name] = topology.Arguments{}
				want.Policies[i].Definition = maps.Clone(p.Definition)
			}
			limits[q.Name][name] = v
			want.Policies[i].Definition[topology.PolicyKey(name)] = v
			if q.Arguments = q.Arguments.Without(name); given {
				q.Arguments = q.Arguments.With(name, own)
			}
		}
	}
	return want, limits
}

// lengthArguments are the arguments that limit the length of a queue, and that say what happens at
// the limit.
func lengthArguments() []string {
	return []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes, topology.ArgOverflow}
}

// policySets reports whether a policy brings about a value of x-max-length, x-max-length-bytes,
// x-overflow or x-delivery-limit on a queue that exists. Of two limits RabbitMQ applies the smaller
// one. The overflow of a quorum queue is that of the policy, and of a classic queue that of its
// arguments.
func policySets(have topology.Queue, name string, value any) bool {
	own, given := have.Arguments[name]
	switch {
	case value == nil:
		return false
	case !given:
		return true
	case name == topology.ArgOverflow:
		return have.Type() == topology.Quorum
	default:
		return lowers(value, own)
	}
}

// lowers reports whether a limit is less than the one of a queue: RabbitMQ applies the smaller one
// of an argument and a policy. A negative argument means no limit since 4.0, and 0 before.
func lowers(limit, argument any) bool {
	a, limited := argument.(int64)
	n, limits := limit.(int64)
	return limited && limits && n < a
}

// losses are what RabbitMQ does to messages when a policy takes the place of another one, or none.
type losses struct {
	why  []string
	asks bool // it does it to messages that the queues hold
}

// losses returns what leaves these queues.
func (r *resolver) losses(before, after topology.Arguments, queues ...topology.Queue) losses {
	var out losses
	var ends bool
	var stuck []string
	for _, q := range queues {
		if why := r.overfull(before, after, q); why != "" {
			// The queue drops these messages, and dlxctl does not wait until their dead letters are safe.
			out.why, out.asks = append(out.why, why), true
		}
		have := r.existing[q.Name]
		if !atLeastOnce(r.foreign.WithPolicies(have, before)) || atLeastOnce(r.foreign.WithPolicies(have, after)) {
			continue
		}
		ends = true
		if n := r.state.Usage[q.Name].Other; n > 0 {
			stuck = append(stuck, fmt.Sprintf("up to %s of %s", text.Count(n, "message"), text.Name(q.Name)))
		}
	}
	if ends {
		why := "RabbitMQ deletes what it is dead-lettering at that moment"
		if len(stuck) > 0 {
			why, out.asks = why+": "+text.Some(stuck), true
		}
		out.why = append(out.why, why)
	}
	return out
}

// atLeastOnce reports whether a queue with these arguments keeps what it dead-letters until the
// target confirms it. When such a queue is so no more, it deletes what it has kept: switch_from in
// rabbit_fifo_dlx.
func atLeastOnce(args topology.Arguments) bool {
	q := topology.Queue{Arguments: args}
	return q.Type() == topology.Quorum && args.HasAny(topology.ArgDeadLetterExchange) &&
		!deadLettersAtMostOnce(args) && args[topology.ArgOverflow] == topology.RejectPublish
}

// overfull says what leaves a queue when a policy replaces another one, or none, because the queue
// holds more than the file then allows. Empty: nothing does. A quorum queue drops when its new
// overflow is to drop. A classic one applies the limit before the overflow, and drops also if its
// overflow was to drop until then. Both measured on 3.10, 4.0 and 4.3. The count may be 5 s old:
// what came since then is in the place of what comes after the change, which the limit is for.
func (r *resolver) overfull(before, after topology.Arguments, q topology.Queue) string {
	have, exists := r.existing[q.Name]
	held := r.held(q.Name)
	if !exists || held == 0 {
		return ""
	}
	was, becomes := r.foreign.WithPolicies(have, before), r.foreign.WithPolicies(have, after)
	drops := func(effective topology.Arguments) bool {
		overflow, _ := effective[topology.ArgOverflow].(string)
		return overflow == "" || overflow == policy.DropHead
	}
	if !drops(becomes) && (have.Type() == topology.Quorum || !drops(was)) {
		return ""
	}
	leaves := func(name, of string, isOver func(limit int64) bool) string {
		limit, limited := becomes[name].(int64)
		old, wasLimited := was[name].(int64)
		if !limited || wasLimited && limit >= old && drops(was) || !isOver(limit) {
			return ""
		}
		return fmt.Sprintf("%s holds %s, and the oldest leave it at once, down to %s: they count as failed, and are dead-lettered without a confirmation",
			text.Name(q.Name), text.Count(held, "message"), text.Count(limit, of))
	}
	return cmp.Or(
		leaves(topology.ArgMaxLength, "message", func(limit int64) bool { return held > limit }),
		// How many bytes RabbitMQ counts for a message depends on its version.
		leaves(topology.ArgMaxLengthBytes, "byte", func(int64) bool { return true }),
	)
}
