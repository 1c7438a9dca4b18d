package policy

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Dropping names the quorum queues of the virtual host, foreign ones included, that
// have consumers and drop a message which was returned too many times: they
// have a delivery limit, since 4.0 by default, and no dead-letter exchange.
func Dropping(state topology.State) []string {
	s := All(state)
	var out []string
	for _, q := range state.Have.Queues {
		if state.Usage[q.Name].Consumers > 0 && s.drops(q) {
			out = append(out, q.Name)
		}
	}
	return out
}

// Drops reports whether a queue drops a message that was returned too many times; see
// [Dropping].
func Drops(state topology.State, q topology.Queue) bool {
	s := All(state)
	return s.drops(q)
}

func (s *Set) drops(q topology.Queue) bool {
	effective := s.Effective(q)
	limit, limited := DeliveryLimit(s.state, q, effective)
	return limited && limit != topology.Unlimited && !effective.HasAny(topology.ArgDeadLetterExchange)
}

// FullAt returns how many messages a queue holds when it is full, by its arguments and
// the policies in effect, and whether it then refuses more, or drops its oldest. Zero:
// it does not count messages, or does not exist.
func FullAt(state topology.State, queue string) (limit int64, refuses bool) {
	s := All(state)
	for _, q := range state.Have.Queues {
		if q.Name != queue {
			continue
		}
		effective := s.Effective(q)
		limit, _ = effective[topology.ArgMaxLength].(int64)
		refuses = strings.HasPrefix(OverflowOf(q, effective), topology.RejectPublish)
	}
	return limit, refuses
}

// DeadLettersRefused reports whether a queue that is full dead-letters each message that it
// refuses. It nacks the message, so that a publisher who sends it again makes another dead letter
// each time.
func DeadLettersRefused(state topology.State, queue string) bool {
	at := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
	if at < 0 {
		return false
	}
	q := state.Have.Queues[at]
	effective := Effective(state, q)
	return OverflowOf(q, effective) == RejectPublishDLX && effective.HasAny(topology.ArgDeadLetterExchange)
}
