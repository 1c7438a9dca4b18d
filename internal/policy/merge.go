package policy

import (
	"maps"

	"github.com/dlxctl/dlxctl/topology"
)

// Merge returns the definition of a policy of dlxctl that starts from base, the
// policy that is in effect on the queue without it. Of the keys of the
// dead-lettering, those of own hold. Where base or the queue itself limits the
// length, or sets what happens then, that stays, as publishers rely on it: the queue
// then dead-letters at most once.
func Merge(q topology.Queue, base, own topology.Arguments) topology.Arguments {
	out := maps.Clone(base)
	if out == nil {
		out = topology.Arguments{}
	}
	maps.Copy(out, own)
	const overflow, strategy = topology.KeyOverflow, topology.KeyDeadLetterStrategy
	chosen, given := base[overflow]
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
	case q.External || given:
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
