package policy

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Effect is what a key of a foreign policy does to a queue or an exchange of the
// topology.
type Effect string

// The effects.
const (
	// Harmless: nothing changes, or nothing that matters for messages.
	Harmless Effect = "harmless"
	// Followed: it is the owner's choice. A policy of dlxctl on the queue starts
	// from it, and a warning (overruled) names it where the queue has no such
	// policy and the file says something else.
	Followed Effect = "followed"
	// Differs: the queue no longer does what the file says, and nothing is lost
	// or misrouted. A warning (overruled) names it.
	Differs Effect = "differs"
	// Harmful: messages are lost, misrouted, or do not wait as long as the file
	// says. A policy of dlxctl overrides it; where none can, a hazard needs consent.
	Harmful Effect = "harmful"
)

// Part is which queue of a delay a queue is. Empty: none.
type Part string

// The parts of a delay. Their roles are retry where messages wait, and else failed.
const (
	Intake   Part = "intake of a delay"
	Level    Part = "level of a delay"
	Timer    Part = "timer of a delay"
	DueQueue Part = "due queue of a delay"
)

// PartOf returns which queue of a delay a queue with its label is.
func PartOf(q topology.Queue) Part {
	switch {
	case q.Label.Delay == "":
		return ""
	case q.IsTimer():
		return Timer
	case q.Label.Role == topology.RoleRetry:
		return Level
	case q.IsIntake():
		return Intake
	default:
		return DueQueue
	}
}

// Cell is a cell of the table of what policies do to what dlxctl made.
type Cell struct {
	Key  string
	Role topology.Role
	Part Part
	// Exchange says that the cell is about the exchanges of the role, not its queues.
	Exchange bool
	Effect   Effect
	// Hazard is that of a harmful key which no other policy can override. Empty:
	// nothing is lost or misrouted, and a warning is enough.
	Hazard topology.Hazard
	Why    string
}

// ProtectedRoles returns the roles of the queues that dlxctl protects from policies
// of others, in the order of the table.
func ProtectedRoles() []topology.Role {
	return []topology.Role{topology.RoleFailed, topology.RoleRetry, topology.RoleDeadLetter, topology.RoleUnroutable}
}

// Table returns the table: each key of a policy and each role. A key that is
// not in it is kept and not judged.
func Table() []Cell {
	var out []Cell
	row := func(keys string, work, failed, retry, dead, unroutable Cell) {
		roles := append([]topology.Role{topology.RoleWork}, ProtectedRoles()...)
		for key := range strings.FieldsSeq(keys) {
			for i, cell := range []Cell{work, failed, retry, dead, unroutable} {
				cell.Key, cell.Role = key, roles[i]
				out = append(out, cell)
			}
		}
	}
	same := func(keys string, work, all Cell) { row(keys, work, all, all, all, all) }
	loses := func(why string) Cell { return Cell{Effect: Harmful, Hazard: topology.LosesMessages, Why: why} }
	early := func(why string) Cell { return Cell{Effect: Harmful, Why: why} }
	harmless := func(why string) Cell { return Cell{Effect: Harmless, Why: why} }
	followed := func(why string) Cell { return Cell{Effect: Followed, Why: why} }

	expired := loses("deletes or dead-letters messages that are not consumed in time")
	row(topology.KeyMessageTTL, followed("what expires counts as failed and is retried"), expired,
		early("the smaller TTL applies: the wait ends too soon, and all attempts are used up"), expired, expired)

	same(topology.KeyExpires,
		followed("deletes the queue while it has no consumer; messages that return to it are unroutable until the next apply"),
		loses("deletes the queue with all its messages while it has no consumer"))

	full := loses("drops or dead-letters the oldest message when it is full, or refuses the next one")
	row(topology.KeyMaxLength+" "+topology.KeyMaxLengthBytes,
		followed("what is dropped counts as failed and is retried; a full queue that refuses holds up the tier that it shares"), full,
		early("classic: the oldest message returns too soon; quorum: a full tier refuses, and holds up the retries"),
		full, full)

	limit := loses("quorum: drops messages returned too many times, as by a killed processor")
	row(topology.KeyDeliveryLimit,
		Cell{Effect: Differs, Why: "quorum: a lower limit counts a message as failed earlier"}, limit,
		Cell{
			Effect: Differs,
			Why:    "quorum: what an operator returns too many times comes back too soon",
		},
		limit, limit)

	refuse := loses("only where the file limits its length: it then refuses, or drops, contrary to the file")
	row(topology.KeyOverflow, Cell{
		Effect: Differs,
		Why:    "quorum: the policy's value applies; any but reject-publish turns off at-least-once dead-lettering",
	},
		harmless("the queue has no limit"),
		loses("quorum: any but reject-publish turns off at-least-once dead-lettering: a retry whose queue cannot accept it is lost"),
		refuse, harmless("the queue has no limit"))

	ofQueue := harmless("the queue's argument or dlxctl's policy overrides it")
	unused := harmless("no message dies there by itself; without it, what an operator rejects or a limit in the file drops is lost")
	row(topology.KeyDeadLetterExchange, ofQueue, unused, harmless("the queue's argument overrides it"), unused, unused)
	row(topology.KeyDeadLetterRoutingKey, ofQueue, unused,
		Cell{
			Effect: Harmful, Hazard: topology.DropsRouting,
			Why: "every retry goes to the policy's key and ends in the unroutable queue",
		}, unused, unused)
	row(topology.KeyDeadLetterStrategy, ofQueue, unused, harmless("the queue's argument overrides it"), unused, unused)

	broker := followed("4.3: the broker's own retry runs before that of dlxctl")
	hidden := early("4.3, quorum: hides what was returned until the delay has passed")
	idle := harmless("tiers have no consumers that return messages")
	row(topology.KeyDelayedRetryType, broker, hidden, idle, hidden, hidden)
	same(topology.KeyDelayedRetryMin+" "+topology.KeyDelayedRetryMax, broker,
		harmless("has no effect without the type, which dlxctl overrides"))
	same(topology.KeyConsumerTimeout, followed("a delivery that is not acknowledged in time is returned"),
		harmless("a delivery that is not acknowledged in time is returned; the processor reconnects and may double what was in flight"))
	stored := harmless("says how and where messages are stored, not which")
	same("ha-mode ha-params ha-sync-mode ha-sync-batch-size ha-promote-on-shutdown ha-promote-on-failure queue-mode queue-version queue-leader-locator queue-master-locator "+
		"max-in-memory-length max-in-memory-bytes target-group-size member-placement-tag", stored, stored)
	return slices.Concat(out, delayEffects(), exchangeEffects())
}

// delayEffects is the part of the table that is about the queues of delays. A key that it leaves
// out does to them what it does to other queues of the role.
func delayEffects() []Cell {
	var out []Cell
	cell := func(keys string, effect Effect, hazard topology.Hazard, why string, parts ...Part) {
		for key := range strings.FieldsSeq(keys) {
			for _, part := range parts {
				role := topology.RoleFailed
				if part == Level || part == Timer {
					role = topology.RoleRetry
				}
				out = append(out, Cell{Key: key, Role: role, Part: part, Effect: effect, Hazard: hazard, Why: why})
			}
		}
	}
	const lengths = topology.KeyMaxLength + " " + topology.KeyMaxLengthBytes
	cell(topology.KeyMessageTTL, Differs, "",
		"what the processor has not read in time comes to the due queue, and waits from there on; nothing is early", Intake)
	cell(topology.KeyMessageTTL, Harmful, "",
		"the smaller TTL applies, and the processor lets the message wait again; nothing is early", Level)
	cell(topology.KeyMessageTTL, Differs, "", "what the processor has not read in time waits in levels; nothing is early", Timer)
	cell(lengths, Harmful, topology.LosesMessages,
		"refuses what is published, which is lost for a publisher without confirms; the overflow drop-head of a policy may lose the oldest message", Intake)
	cell(lengths, Harmful, "", "when full, messages wait in shorter levels, or where they come from, and are late", Level, Timer)
	cell(topology.KeyDeliveryLimit, Differs, "",
		"what is returned too many times, as by an operator, comes to the due queue, and waits from there on", Intake, Level, Timer)
	cell(topology.KeyOverflow, Harmful, topology.LosesMessages,
		"any but reject-publish turns off at-least-once dead-lettering: a message is lost if the due queue cannot accept it", Intake, Level, Timer)
	cell(topology.KeyDeadLetterRoutingKey, Harmful, topology.DropsRouting,
		"a message that expires before the processor reads it gets the policy's key, also when it is due", Intake)
	cell(topology.KeyDeadLetterRoutingKey, Harmful, topology.DropsRouting,
		"every message that waited gets the policy's key, also when it is due: the queue sets none", Level, Timer)
	cell(topology.KeyDelayedRetryType, Harmful, "",
		"4.3: hides what the processor gave back, as when it ends, until the delay has passed: late", Timer)
	return out
}

// exchangeEffects is the part of the table that is about exchanges.
func exchangeEffects() []Cell {
	cell := func(role topology.Role, why string) Cell {
		return Cell{Key: topology.ArgAlternateExchange, Role: role, Exchange: true, Effect: Harmless, Why: why}
	}
	argument, bound := "the exchange's argument overrides it",
		"it applies only to messages that the exchange cannot route: none while its queue is bound; plan shows a missing binding"
	return []Cell{
		cell(topology.RoleBusiness,
			"an argument overrides it; without one it receives messages that no queue is bound for"),
		cell(topology.RoleFailed, bound),
		cell(topology.RoleRetry, argument), cell(topology.RoleReturn, argument),
		cell(topology.RoleDeadLetter, argument), cell(topology.RoleUnroutable, bound),
	}
}

// cells is the table of what policies do to queues, by key, role and part of a delay.
type cells map[cellKey]Cell

type cellKey struct {
	key  string
	role topology.Role
	part Part
}

func queueCells() cells {
	out := cells{}
	for _, c := range Table() {
		if !c.Exchange {
			out[cellKey{c.Key, c.Role, c.Part}] = c
		}
	}
	return out
}
