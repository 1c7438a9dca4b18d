package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Effect says what a key of somebody's policy does to a queue or an exchange of
// ours.
type Effect string

// The effects.
const (
	// Harmless: nothing changes, or nothing that matters for messages.
	Harmless Effect = "harmless"
	// Followed: it is the owner's choice. A policy of ours on the queue starts
	// from it, and a warning (overruled) names it where the queue has no such
	// policy and the file says something else.
	Followed Effect = "followed"
	// Differs: the queue no longer does what the file says, and nothing is lost
	// or misrouted. A warning (overruled) names it.
	Differs Effect = "differs"
	// Harmful: messages are lost, misrouted, or do not wait as long as the file
	// says. A policy of ours overrides it; where none can, a hazard needs consent.
	Harmful Effect = "harmful"
)

// PolicyEffect is a cell of the table of what policies do to what dlxctl made.
type PolicyEffect struct {
	Key  string
	Role topology.Role
	// Exchange says that the cell is about the exchanges of the role, not its queues.
	Exchange bool
	Effect   Effect
	// Hazard is that of a harmful key which no policy of ours can override. Empty:
	// nothing is lost or misrouted, and a warning is enough.
	Hazard Hazard
	Why    string
}

// GeneratedRoles are the roles of the queues that dlxctl protects from policies
// of others, in the order of the table.
func GeneratedRoles() []topology.Role {
	return []topology.Role{topology.RoleFailed, topology.RoleRetry, topology.RoleDead, topology.RoleUnroutable}
}

// PolicyEffects gives the table: each key of a policy and each role. A key that is
// not in it is kept and not judged.
func PolicyEffects() []PolicyEffect {
	var out []PolicyEffect
	row := func(keys string, work, failed, retry, dead, unroutable PolicyEffect) {
		roles := append([]topology.Role{topology.RoleWork}, GeneratedRoles()...)
		for key := range strings.FieldsSeq(keys) {
			for i, cell := range []PolicyEffect{work, failed, retry, dead, unroutable} {
				cell.Key, cell.Role = key, roles[i]
				out = append(out, cell)
			}
		}
	}
	same := func(keys string, work, all PolicyEffect) { row(keys, work, all, all, all, all) }
	loses := func(why string) PolicyEffect { return PolicyEffect{Effect: Harmful, Hazard: LosesMessages, Why: why} }
	early := func(why string) PolicyEffect { return PolicyEffect{Effect: Harmful, Why: why} }
	harmless := func(why string) PolicyEffect { return PolicyEffect{Effect: Harmless, Why: why} }
	followed := func(why string) PolicyEffect { return PolicyEffect{Effect: Followed, Why: why} }

	expired := loses("deletes what is not taken out in time, or moves it to the policy's dead-letter exchange")
	row("message-ttl", followed("what expires counts as failed and is retried"), expired,
		early("the smaller TTL holds: the wait ends too soon, and all attempts are used up"), expired, expired)

	same("expires", followed("deletes the queue while it has no consumer; what returns to it is unroutable until the next apply"),
		loses("deletes the queue with all that is in it while it has no consumer, as most of them never have"))

	full := loses("drops the oldest message when it is full, or moves it to the policy's dead-letter exchange, or refuses the next one")
	row("max-length max-length-bytes", followed("what is dropped counts as failed and is retried; a full queue that refuses holds up the tier that it shares"), full,
		early("classic: the oldest message returns too soon; quorum: a full tier refuses, and holds up the retries"), full, full)

	limit := loses("quorum: drops what was returned too often, by a processor that is killed or by a person who looks; classic queues count no deliveries")
	row("delivery-limit", PolicyEffect{Effect: Differs, Why: "quorum: a lower limit counts a message as failed earlier"}, limit,
		PolicyEffect{Effect: Differs, Why: "quorum: nobody consumes from a tier; what a person returns too often comes back too soon"}, limit, limit)

	refuse := loses("only where the file limits the length of the queue: it then refuses, or drops, against the file")
	row("overflow", PolicyEffect{Effect: Differs, Why: "quorum: the policy's value holds; any but reject-publish turns at-least-once dead-lettering off"},
		harmless("the queue has no limit"),
		loses("quorum: the policy's value holds; any but reject-publish turns at-least-once dead-lettering off, and a retry whose queue cannot take it is lost"),
		refuse, harmless("the queue has no limit"))

	ofQueue := harmless("the queue's argument beats it, or our policy overrides it")
	unused := harmless("nothing dies there by itself; what a person rejects, or a limit of the file drops, would be gone without it")
	row("dead-letter-exchange", ofQueue, unused, harmless("the queue's argument beats it"), unused, unused)
	row("dead-letter-routing-key", ofQueue, unused,
		PolicyEffect{Effect: Harmful, Hazard: DropsRouting, Why: "a tier has no such argument, as each message keeps its own keys: every retry goes to the policy's key and ends in the unroutable queue"}, unused, unused)
	row("dead-letter-strategy", ofQueue, unused, harmless("the queue's argument beats it"), unused, unused)

	returned := harmless("4.3: what is returned waits before it is delivered again; nothing is lost")
	same("delayed-retry-type delayed-retry-min delayed-retry-max", followed("4.3: the broker's own retry, before ours"), returned)
	same("consumer-timeout", followed("a delivery that is not acknowledged in time is returned"),
		harmless("a delivery that is not acknowledged in time is returned; the processor reconnects and may double what was in flight"))
	stored := harmless("says how and where messages are stored, not which")
	same("ha-mode ha-params ha-sync-mode ha-sync-batch-size ha-promote-on-shutdown ha-promote-on-failure queue-mode queue-version queue-leader-locator queue-master-locator "+
		"max-in-memory-length max-in-memory-bytes target-group-size", stored, stored)
	return append(out, exchangeEffects()...)
}

// exchangeEffects is the part of the table that is about exchanges.
func exchangeEffects() []PolicyEffect {
	cell := func(role topology.Role, why string) PolicyEffect {
		return PolicyEffect{Key: topology.ArgAlternateExchange, Role: role, Exchange: true, Effect: Harmless, Why: why}
	}
	argument, bound := "the exchange's argument beats it", "it holds only for what the exchange cannot route: none, while its queue is bound; plan shows a binding that is missing"
	return []PolicyEffect{
		cell(topology.RoleBusiness, "an argument beats it; without one it takes what no queue wants"), cell(topology.RoleFailed, bound),
		cell(topology.RoleRetry, argument), cell(topology.RoleReturn, argument), cell(topology.RoleDead, argument), cell(topology.RoleUnroutable, bound),
	}
}

// changes reports whether a key of a policy makes the queue do something else
// than its arguments say. Of argument and policy the smaller limit holds, the
// overflow of a quorum queue is the policy's, that of a classic one the argument's.
func (r *resolver) changes(q topology.Queue, key string, value any) bool {
	own, given := q.Arguments["x-"+key]
	switch key {
	case "message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit":
		limit, isNumber := value.(int64)
		before, _ := own.(int64)
		if key != "delivery-limit" {
			return isNumber && (!given || limit < before)
		}
		unlimited := limit < 0 && Major(r.state.Version) >= 4 // 3.10 takes it for 0
		return isNumber && given && q.Type() == topology.Quorum && !unlimited && limit < before
	case "overflow":
		limited := hasAny(q.Arguments, topology.ArgMaxLength, topology.ArgMaxLengthBytes)
		switch {
		case given && q.Type() == topology.Quorum:
			return own != value
		case given:
			return false
		}
		return limited && value != dropHead
	case "dead-letter-routing-key":
		return !given
	default:
		return false
	}
}

// dropHead is what a queue that is full does unless told otherwise.
const dropHead = "drop-head"

// consequence says in words what a harmful key of a policy does to queues of a
// role: what follows "the policy p would". definition is all of the policy.
func consequence(role topology.Role, queueType, key string, definition topology.Arguments, queues string) string {
	v := definition[key]
	number, _ := v.(int64)
	refuses := strings.HasPrefix(fmt.Sprint(definition["overflow"]), topology.RejectPublish)
	to, moves := definition["dead-letter-exchange"].(string)
	tier := role == topology.RoleRetry
	unit := "messages"
	if key == "max-length-bytes" {
		unit = "bytes"
	}
	switch {
	case key == "message-ttl" && tier:
		return fmt.Sprintf("end the wait in %s after %s", queues, formatMillis(number))
	case key == "message-ttl" && moves:
		return fmt.Sprintf("move what is in %s to the exchange %s after %s", queues, display(to), formatMillis(number))
	case key == "message-ttl":
		return fmt.Sprintf("delete what is in %s after %s", queues, formatMillis(number))
	case key == "expires":
		return fmt.Sprintf("delete %s, with all that is there, after %s without a consumer", queues, formatMillis(number))
	case key == "delivery-limit":
		return fmt.Sprintf("drop from %s what was returned more than %d times", queues, number)
	case key == "overflow" && tier:
		return fmt.Sprintf("turn the at-least-once dead-lettering of %s off (overflow %s), so that a retry whose queue cannot take it is lost", queues, topology.FormatValue(v))
	case key == "overflow":
		return fmt.Sprintf("set the overflow of %s to %s, against the file", queues, topology.FormatValue(v))
	case key == "dead-letter-routing-key":
		return fmt.Sprintf("send every retry that leaves %s to the routing key %s, away from its queue", queues, topology.FormatValue(v))
	case tier && (refuses || queueType == topology.Quorum):
		return fmt.Sprintf("refuse retries in %s above %d %s, and hold the others up", queues, number, unit)
	case tier:
		return fmt.Sprintf("end the wait of the oldest retry in %s above %d %s", queues, number, unit)
	case refuses:
		return fmt.Sprintf("refuse messages for %s above %d %s", queues, number, unit)
	case moves:
		return fmt.Sprintf("move the oldest message of %s to the exchange %s above %d %s", queues, display(to), number, unit)
	default:
		return fmt.Sprintf("drop the oldest message of %s above %d %s", queues, number, unit)
	}
}

// effects is the table, by key and role.
type effects map[effectKey]PolicyEffect

type effectKey struct {
	key  string
	role topology.Role
}

func newEffects() effects {
	out := effects{}
	for _, e := range PolicyEffects() {
		if !e.Exchange {
			out[effectKey{e.Key, e.Role}] = e
		}
	}
	return out
}

// harms gives the keys of a policy that are harmful for a queue of ours, sorted.
func (r *resolver) harms(q topology.Queue, definition topology.Arguments) []string {
	var out []string
	for key, v := range definition {
		if r.effects[effectKey{key, q.Label.Role}].Effect == Harmful && r.changes(q, key, v) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
