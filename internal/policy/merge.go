package policy

import (
	"maps"

	"github.com/dlxctl/dlxctl/topology"
)

// Merge returns the definition of a policy of dlxctl that starts from base, the
// policy that is in effect on the queue without it. Of the keys of the
// dead-lettering, those of own hold. Where base or the queue itself limits the
// length, or sets what happens then, that stays, as publishers rely on it: the queue
// then dead-letters at most once. limits are the arguments that own stands for: x-max-length,
// x-max-length-bytes and x-overflow of the file. They count as those of a queue do next to base: of
// two limits the smaller one, and in quorum queues the overflow of base.
func Merge(q topology.Queue, base, own, limits topology.Arguments) topology.Arguments {
	out := maps.Clone(base)
	if out == nil {
		out = topology.Arguments{}
	}
	maps.Copy(out, own)
	for _, name := range []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes} {
		if v, ok := limits[name]; ok {
			key := topology.PolicyKey(name)
			out[key] = smaller(v, base[key])
		}
	}
	const overflow, strategy = topology.KeyOverflow, topology.KeyDeadLetterStrategy
	chosen, given := base[overflow]
	copied := given
	if v, ok := limits[topology.ArgOverflow]; ok && (!given || q.Type() != topology.Quorum) {
		chosen, given = v, true
	}
	limited := given || base.HasAny(topology.KeyMaxLength, topology.KeyMaxLengthBytes)
	if q.External {
		limited = limited || q.Arguments.HasAny(topology.ArgOverflow, topology.ArgMaxLength, topology.ArgMaxLengthBytes)
	}
	switch {
	case q.Type() != topology.Quorum || limited && chosen != topology.RejectPublish:
		// A policy with a key that the type does not know applies to no such queue.
		delete(out, strategy)
		delete(out, overflow)
		if given {
			out[overflow] = chosen
		}
	case q.External || copied:
		out[strategy], out[overflow] = topology.AtLeastOnce, topology.RejectPublish
	}
	return out
}

// Arguments returns the queue arguments that a policy's definition stands for.
func Arguments(definition topology.Arguments) topology.Arguments {
	out := topology.Arguments{}
	for key, v := range definition {
		out["x-"+key] = v
	}
	return out
}
