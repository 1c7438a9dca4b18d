package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// changes reports whether a key of a policy makes the queue do something else
// than its arguments say. Of argument and policy the smaller limit holds, the
// overflow of a quorum queue is the policy's, that of a classic one the argument's.
func (s *Set) changes(q topology.Queue, key string, value any) bool {
	own, given := q.Arguments["x-"+key]
	switch key {
	case topology.KeyMessageTTL, topology.KeyExpires, topology.KeyMaxLength, topology.KeyMaxLengthBytes,
		topology.KeyDeliveryLimit:
		limit, isNumber := value.(int64)
		before, _ := own.(int64)
		if key != topology.KeyDeliveryLimit {
			return isNumber && (!given || limit < before)
		}
		unlimited := limit < 0 && s.state.Major() >= 4 // 3.10 takes it for 0
		return isNumber && given && q.Type() == topology.Quorum && !unlimited && limit < before
	case topology.KeyOverflow:
		limited := q.Arguments.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes)
		switch {
		case given && q.Type() == topology.Quorum:
			return own != value
		case given:
			return false
		}
		return limited && value != dropHead
	case topology.KeyDeadLetterRoutingKey:
		return !given
	case topology.KeyDelayedRetryType:
		return value != DelaysNothing && q.Type() == topology.Quorum && s.state.AtLeast(4, 3)
	default:
		return false
	}
}

// dropHead is what a queue that is full does unless told otherwise.
const dropHead = "drop-head"

// Consequence says in words what a harmful key of a policy does to a queue that dlxctl made, and to
// others like it: what follows "the policy p would". definition is all of the policy, and queues
// names the queues.
func Consequence(q topology.Queue, key string, definition topology.Arguments, queues string) string {
	v := definition[key]
	number, _ := v.(int64)
	refuses := strings.HasPrefix(overflow(q, definition), topology.RejectPublish)
	to, moves := q.Arguments[topology.ArgDeadLetterExchange].(string) // it overrides that of the policy
	if !moves {
		to, moves = definition[topology.KeyDeadLetterExchange].(string)
	}
	tier, part := q.Label.Role == topology.RoleRetry, PartOf(q)
	one := "a retry whose queue cannot accept it"
	if part != "" {
		one = "a message that the due queue cannot accept"
	}
	unit := "messages"
	if key == topology.KeyMaxLengthBytes {
		unit = "bytes"
	}
	switch {
	case key == topology.KeyMessageTTL && part == Level:
		return fmt.Sprintf("end the wait in %s after %s, so that messages wait there again and again until they are due", queues,
			text.Millis(number))
	case key == topology.KeyMessageTTL && tier && part != Timer:
		return fmt.Sprintf("end the wait in %s after %s", queues, text.Millis(number))
	case key == topology.KeyMessageTTL && moves:
		return fmt.Sprintf("move the messages in %s to the exchange %s after %s", queues, text.Name(to), text.Millis(number))
	case key == topology.KeyMessageTTL:
		return fmt.Sprintf("delete the messages in %s after %s", queues, text.Millis(number))
	case key == topology.KeyExpires:
		return fmt.Sprintf("delete %s, with all messages in it, after %s without a consumer", queues, text.Millis(number))
	case key == topology.KeyDeliveryLimit && moves:
		return fmt.Sprintf("move messages of %s that were returned more than %d times to the exchange %s", queues, number, text.Name(to))
	case key == topology.KeyDeliveryLimit:
		return fmt.Sprintf("drop messages from %s that were returned more than %d times", queues, number)
	case key == topology.KeyOverflow && (tier || part == Intake):
		return fmt.Sprintf("turn off the at-least-once dead-lettering of %s (overflow %s), so that %s is lost", queues, topology.FormatValue(v), one)
	case key == topology.KeyOverflow:
		return fmt.Sprintf("set the overflow of %s to %s, contrary to the file", queues, topology.FormatValue(v))
	case key == topology.KeyDelayedRetryType:
		least, _ := definition[topology.KeyDelayedRetryMin].(int64)
		return fmt.Sprintf("hide messages that are returned to %s for %s or longer", queues, text.Millis(least))
	case key == topology.KeyDeadLetterRoutingKey && part == Intake:
		return fmt.Sprintf("give every message that expires in %s the routing key %s, also when it is due", queues, topology.FormatValue(v))
	case key == topology.KeyDeadLetterRoutingKey && (part == Level || part == Timer):
		return fmt.Sprintf("give every message that leaves %s the routing key %s, also when it is due", queues, topology.FormatValue(v))
	case key == topology.KeyDeadLetterRoutingKey:
		return fmt.Sprintf("send every retry that leaves %s to the routing key %s instead of its work queue", queues,
			topology.FormatValue(v))
	case part == Level && refuses:
		return fmt.Sprintf("refuse messages in %s above %d %s, so that they wait in shorter levels, or where they come from, and are late",
			queues, number, unit)
	case tier && part == "" && (refuses || q.Type() == topology.Quorum):
		return fmt.Sprintf("refuse retries in %s above %d %s, and hold up the others", queues, number, unit)
	case tier && part == "":
		return fmt.Sprintf("end the wait of the oldest retry in %s above %d %s", queues, number, unit)
	case refuses:
		return fmt.Sprintf("refuse messages for %s above %d %s", queues, number, unit)
	case moves:
		return fmt.Sprintf("move the oldest message of %s to the exchange %s above %d %s", queues, text.Name(to),
			number, unit)
	default:
		return fmt.Sprintf("drop the oldest message of %s above %d %s", queues, number, unit)
	}
}

// overflow returns what a queue does when it is full: with a policy, a quorum queue asks that
// first, and a classic one its argument. Empty: it says nothing.
func overflow(q topology.Queue, definition topology.Arguments) string {
	own, given := q.Arguments[topology.ArgOverflow].(string)
	other, set := definition[topology.KeyOverflow].(string)
	if given && (q.Type() != topology.Quorum || !set) {
		return own
	}
	return other
}

// Cell returns what a key of a policy does to a queue with its label. It is the zero Cell for a key
// that is not judged.
func (s *Set) Cell(key string, q topology.Queue) Cell {
	if c, special := s.cells[cellKey{key, q.Label.Role, PartOf(q)}]; special {
		return c
	}
	return s.cells[cellKey{key, q.Label.Role, ""}]
}

// Harms returns the keys of a policy that are harmful for a generated queue, sorted.
func (s *Set) Harms(q topology.Queue, definition topology.Arguments) []string {
	var out []string
	for key, v := range definition {
		if s.Cell(key, q).Effect == Harmful && s.changes(q, key, v) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// Harmful returns the policy of the set that is in effect on a queue, or would be
// without those that are not in the set, and its harmful keys. Between policies of
// equal priority the broker chooses as it likes: a harmful one is assumed to be chosen.
func (s *Set) Harmful(q topology.Queue) (topology.Policy, []string) {
	if !s.harmful {
		return topology.Policy{}, nil
	}
	p, keys, _ := s.worst(s.policies, q, s.Reaches)
	return p, keys
}

// worst returns the policy of list that is in effect on a queue, and its harmful keys.
func (s *Set) worst(
	list []topology.Policy, q topology.Queue, applies func(topology.Policy, topology.Queue) bool,
) (best topology.Policy, keys []string, found bool) {
	for _, p := range list {
		if found && p.Priority < best.Priority || !applies(p, q) {
			continue
		}
		harms := s.Harms(q, p.Definition)
		if found && p.Priority == best.Priority && (len(keys) > 0 || len(harms) == 0) {
			continue
		}
		best, keys, found = p, harms, true
	}
	return best, keys, found
}

// mayHarm reports whether a policy has a key that is harmful for some queue: as a rule none has,
// and no queue need be looked at.
func (s *Set) mayHarm(p topology.Policy) bool {
	for of, cell := range s.cells {
		if _, set := p.Definition[of.key]; set && cell.Effect == Harmful {
			return true
		}
	}
	return false
}

// Overrides describes what a key of a policy changes on a queue: "sets message-ttl to
// 5000 (5s)" and, behind the names of the queues, ", where the file sets none". It
// reports false if the key changes nothing.
func Overrides(q topology.Queue, key string, value any) (change, instead string, ok bool) {
	own, given := q.Arguments["x-"+key]
	if key == topology.KeyOverflow {
		if q.Type() != topology.Quorum || own == nil || own == value {
			return "", "", false
		}
		return fmt.Sprintf("sets overflow to %s", topology.FormatValue(value)),
			fmt.Sprintf(" instead of %s, which turns off at-least-once dead-lettering", topology.FormatValue(own)), true
	}
	if !slices.Contains([]string{
		topology.KeyMessageTTL, topology.KeyMaxLength, topology.KeyMaxLengthBytes, topology.KeyExpires,
		topology.KeyDeliveryLimit,
	}, key) {
		return "", "", false
	}
	limit, isNumber := value.(int64)
	before, _ := own.(int64)
	if !isNumber || given && limit >= before ||
		key == topology.KeyDeliveryLimit && (q.Type() != topology.Quorum || !given) {
		return "", "", false
	}
	if !given {
		return fmt.Sprintf("sets %s to %s", key, withUnit(key, limit)), ", where the file sets none", true
	}
	return fmt.Sprintf("lowers %s to %s", key, withUnit(key, limit)), "", true
}

// withUnit returns a number, with its duration if it counts milliseconds.
func withUnit(key string, n int64) string {
	if key == topology.KeyMessageTTL || key == topology.KeyExpires {
		return fmt.Sprintf("%d (%s)", n, text.Millis(n))
	}
	return strconv.FormatInt(n, 10)
}
