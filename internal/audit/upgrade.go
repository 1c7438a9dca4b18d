package audit

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Upgrade is what happens to an object on another line of RabbitMQ.
type Upgrade string

// What happens at an upgrade.
const (
	// Refused: the line does not accept the object as it is, nor does a service declare it there.
	Refused Upgrade = "refused"
	// Changed: the object is the same, and behaves otherwise.
	Changed Upgrade = "changed"
	// Dropped: the line accepts the object, and a part of it has no effect.
	Dropped Upgrade = "dropped"
)

// UpgradeLines returns the lines of RabbitMQ for which an audit can ask, the oldest first.
func UpgradeLines() []string { return []string{"4.0", "4.1", "4.2", "4.3", "4.4"} }

// forLine returns the input of an audit for the line of in.For: the virtual host as that line would
// have it. It notes the version of before.
func forLine(in Input) Input {
	if in.For != "" {
		in.from, in.State.Version = in.State, in.For
	}
	return in
}

// passes reports whether the upgrade leads to the line 4.minor of RabbitMQ, or over it, from one
// before, or from one that is not known.
func (x *index) passes(minor int) bool {
	return x.in.For != "" && x.State.AtLeast(4, minor) &&
		(x.in.from.Version == "" || !x.in.from.AtLeast(4, minor))
}

// unseenFor says what an upgrade changes and no audit sees, because it is neither in definitions
// nor told by a broker.
func unseenFor(line string) []string {
	var out []string
	target := topology.State{Version: line}
	switch line {
	case "4.1", "4.2":
		out = append(out, "what RabbitMQ "+line+" refuses: it was not measured, and is judged by what both 4.0.5 and 4.3.6 refuse")
	case "4.4":
		out = append(out, "what RabbitMQ 4.4 refuses: it was not measured, and is judged as 4.3.6; its release notes name no "+
			"argument and no key that it refuses")
	}
	if target.AtLeast(4, 3) {
		out = append(out, "which clients set the prefetch of a whole channel (basic.qos with global true): 4.3.6 gives it to each "+
			"consumer, without an error, so that a channel with several has more messages in flight; "+
			"deprecated_features.permit.global_qos = true permits it")
		out = append(out, "whether rabbitmq.conf sets consumer_timeout: since 4.3 it ends consumers of quorum queues only")
	}
	return append(out,
		"what services declare when they start, and the default type of queues of the nodes (default_queue_type)")
}

// upgradeChecks are the rules about what another line refuses, changes or drops, next to those of
// other families that have an Upgrade.
func upgradeChecks() []check {
	return []check{
		transientQueue(), lazyMode(), storageVersion(), defaultDeliveryLimit(), classicConsumerTimeout(), messagePriorities(),
		uncountedNack(),
	}
}

func transientQueue() check {
	return check{Rule{
		ID: "upgrade-transient-queue", Severity: Error, Group: groupUpgrade, Upgrade: Refused, For: true,
		Source: "release notes of RabbitMQ 4.3.0; 4.3.6 measured, with the feature denied and as it is installed",
		Title:  "RabbitMQ 4.3 may refuse queues that are neither durable nor exclusive",
		Why: "The deprecated feature transient_nonexcl_queues is denied by default since 4.3.0, and the package of 4.3.6 that " +
			"was measured permits it: the configuration of the nodes decides. Where it is denied, a service that declares such " +
			"a queue loses its connection (541). Before 4.3 all lines accept the queue, and the rule is a note.",
		Fix:  "Declare the queue as durable, or as exclusive if one connection uses it.",
		Hit:  Example{Definitions: `{"queues": [{"name": "billing", "durable": false, "auto_delete": false}]}`, For: "4.3"},
		Miss: Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "auto_delete": false}]}`, For: "4.3"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Durable || q.Exclusive || q.External {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    "queue with durable false and exclusive false",
			Consequence: "RabbitMQ refuses to declare it, unless its configuration permits transient_nonexcl_queues",
			Remedy: fmt.Sprintf("decide whether %s should be durable, or exclusive, and change the service that declares it",
				text.Name(q.Name)),
		}
		if !q.AutoDelete && q.only() {
			f.Tries = choosing(x.replacing(q), "replaces %s by a durable queue: the service that declares it has to use that",
				text.Name(q.Name))
		}
		if !x.State.AtLeast(4, 3) {
			f.Severity, f.Upgrade = Note, Changed
			f.Consequence = "RabbitMQ accepts it and logs a warning: 4.3.0 refuses it"
		}
		return f, true
	})}
}

// only reports whether a queue has no argument but some others, and those about how RabbitMQ 3
// stores it: then its successor needs none.
func (q *queue) only(others ...string) bool {
	return len(q.Arguments.Without(append(others, topology.ArgQueueType, "x-queue-mode", "x-queue-version")...)) == 0
}

func lazyMode() check {
	return check{Rule{
		ID: "upgrade-lazy-mode", Severity: Note, Group: groupUpgrade, Upgrade: Dropped, For: true,
		Source: "documentation of lazy queues (ignored since 3.12); 4.0.5 and 4.3.6 measured: accepted",
		Title:  "The lazy mode of a queue has no effect any more",
		Why: "RabbitMQ accepts x-queue-mode and the key queue-mode, and ignores both: since 3.12 every classic queue writes to " +
			"the disk early. Memory and speed differ from those of a queue with the mode default on 3.11 and before.",
		Fix:  "Leave it until the upgrade is done. Then remove the key from the policy; an argument can stay.",
		Hit:  Example{Definitions: oneQueue(`"x-queue-mode": "lazy"`), For: "4.3"},
		Miss: Example{Definitions: oneQueue(""), For: "4.3"},
	}, ofQueues(func(_ *index, q *queue) (Finding, bool) {
		const key = "queue-mode"
		if q.Type() != topology.Classic || q.Args["x-"+key] != "lazy" {
			return Finding{}, false
		}
		return Finding{
			Evidence:    q.argument("x-" + key),
			Consequence: "RabbitMQ ignores the mode",
			Remedy:      "nothing has to be done before the upgrade",
		}, true
	})}
}

func storageVersion() check {
	return check{Rule{
		ID: "upgrade-storage-version", Severity: Note, Group: groupUpgrade, Upgrade: Changed, For: true,
		Source: "release notes of RabbitMQ 4.3.0; 4.0.5 and 4.3.6 measured: storage_version 2, with the key 1 too",
		Title:  "A classic queue is stored in version 2",
		Why: "RabbitMQ 3 stores classic queues in version 1, if x-queue-version or the key queue-version does not say 2. A node " +
			"of 4.x stores them in version 2, whatever the key says. 4.3 cannot read version 1, and takes only nodes that were on " +
			"4.2 before. It refuses the argument x-queue-version 1: see argument-refused.",
		Fix:  "Plan time for the first start of each node, which converts the queues. Remove a key queue-version 1.",
		Hit:  Example{Definitions: oneQueue(""), Version: "3.13.7", For: "4.3"},
		Miss: Example{Definitions: oneQueue(`"x-queue-version": 2`), Version: "3.13.7", For: "4.3"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		const argument = "x-queue-version"
		version, set := q.Args[argument]
		if q.Type() != topology.Classic || version == int64(2) || !set && !x.passes(0) || !q.Durable {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    "classic queue without x-queue-version, which is stored in version 1 on RabbitMQ 3",
			Consequence: "RabbitMQ stores it in version 2: the node converts it when it starts",
			Remedy:      "nothing has to be decided: plan time for the first start of each node",
		}
		if set {
			f.Evidence = q.argument(argument)
		}
		return f, true
	})}
}

func defaultDeliveryLimit() check {
	const dlx = `, "x-dead-letter-exchange": "dlx"`
	return check{Rule{
		ID: "upgrade-delivery-limit", Severity: Warning, Group: groupUpgrade, Upgrade: Changed, For: true,
		Source: "release notes of RabbitMQ 4.0.1; 3.10.8 (none), 4.0.5 and 4.3.6 (20) measured",
		Title:  "A quorum queue gets a delivery limit of 20",
		Why: "Before 4.0 a quorum queue without x-delivery-limit returns a message without end. Since 4.0 it gives a message up " +
			"that was returned more than 20 times: the message is dead-lettered, or dropped where there is no dead-letter " +
			"exchange. With one, the rule is a note. Since 4.3 basic.nack does not count.",
		Fix: "Attach dead-lettering, or keep the queue as it is with the delivery limit 2147483647, which is none on all lines.",
		Hit: Example{Definitions: oneQueue(`"x-queue-type": "quorum"`), Version: "3.13.7", For: "4.3"},
		Miss: Example{
			Definitions: oneQueue(`"x-queue-type": "quorum", "x-delivery-limit": 5` + dlx), Version: "3.13.7", For: "4.3",
		},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Type() != topology.Quorum || q.Args.HasAny(topology.ArgDeliveryLimit) || !x.passes(0) {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    "quorum queue without a delivery limit",
			Consequence: "a message that is returned more than 20 times" + x.uncounted() + " is lost",
			Remedy: fmt.Sprintf("decide how often messages of %s may be returned, and set delivery-limit by a policy",
				text.Name(q.Name)),
			Tries: choosing(x.setting(q, topology.Arguments{topology.KeyDeliveryLimit: topology.Unlimited}),
				"keeps what RabbitMQ 3 does: a message is returned without end"),
		}
		if q.DeadLetters {
			f.Severity, f.Tries = Note, nil
			f.Consequence = "a message that is returned more than 20 times" + x.uncounted() + " is dead-lettered"
		}
		return f, true
	})}
}

func classicConsumerTimeout() check {
	const policies = `{"queues": [{"name": "billing", "durable": true, "arguments": {%s}}],
 "policies": [{"name": "slow", "pattern": "^billing$", "apply-to": "queues", "priority": 0, "definition": {"consumer-timeout": 3600000}}]}`
	return check{Rule{
		ID: "upgrade-consumer-timeout", Severity: Note, Group: groupUpgrade, Upgrade: Dropped, For: true,
		Source: "release notes of RabbitMQ 4.3.0; 4.3.6 measured: the key is accepted, the argument is for quorum queues",
		Title:  "Consumers of a classic queue have no timeout any more",
		Why: "Since 4.3 a quorum queue takes back a message that a consumer has not acknowledged in time, and keeps the channel " +
			"open. A classic queue has no such timeout: its messages stay with a consumer that is stuck until its " +
			"connection ends. RabbitMQ refuses the argument x-consumer-timeout of a classic queue: see argument-refused.",
		Fix:  "Use a quorum queue where a stuck consumer must not keep messages.",
		Hit:  Example{Definitions: fmt.Sprintf(policies, ""), For: "4.3"},
		Miss: Example{Definitions: fmt.Sprintf(policies, `"x-queue-type": "quorum"`), For: "4.3"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		v, set := q.policy.Definition[topology.KeyConsumerTimeout]
		if q.Type() != topology.Classic || !q.hasPolicy || !set || !x.State.AtLeast(4, 3) {
			return Finding{}, false
		}
		return Finding{
			Evidence: fmt.Sprintf("%s %s (policy %s) of a classic queue", topology.KeyConsumerTimeout,
				describe(topology.KeyConsumerTimeout, v), q.policy.Name),
			Consequence: "RabbitMQ ignores the key: a message stays with a consumer that is stuck",
			Remedy:      fmt.Sprintf("decide whether %s should be a quorum queue: dlxctl import --adopt --as quorum", text.Name(q.Name)),
		}, true
	})}
}

func messagePriorities() check {
	return check{Rule{
		ID: "upgrade-priorities", Severity: Note, Group: groupUpgrade, Upgrade: Changed, For: true,
		Source: "release notes of RabbitMQ 4.0.1 and 4.3.0; 4.0.5 and 4.3.6 measured",
		Title:  "A quorum queue follows the priorities of messages",
		Why: "Before 4.0 a quorum queue ignores the priority of a message. Before 4.3 it delivers more of the messages with a " +
			"priority over 4 than of the others. Since 4.3 it delivers none while it has one of a higher priority, from 31 to 0, " +
			"and a message without a priority has 4: under a steady load, those with 0, which Spring and Java publishers often " +
			"set, wait without end.",
		Fix: "Find out which publishers set a priority that should not count.",
		Hit: Example{
			Definitions: oneQueue(`"x-queue-type": "quorum", "x-delivery-limit": 5`), Version: "3.13.7", For: "4.3",
		},
		Miss: Example{Definitions: oneQueue(""), Version: "3.13.7", For: "4.3"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Type() != topology.Quorum || !x.passes(0) && !x.passes(3) {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    strings.TrimSuffix("quorum queue of RabbitMQ "+x.in.from.Version, " of RabbitMQ "),
			Consequence: "more messages with a priority over 4 are delivered than others",
			Remedy:      fmt.Sprintf("decide whether publishers to %s may set priorities", text.Name(q.Name)),
		}
		if x.State.AtLeast(4, 3) {
			f.Consequence = "messages with the priorities 0 to 3 wait for those without a priority"
		}
		return f, true
	})}
}

func uncountedNack() check {
	return check{Rule{
		ID: "upgrade-uncounted-nack", Severity: Note, Group: groupUpgrade, Upgrade: Changed, For: true,
		Source: "release notes of RabbitMQ 4.3.0; 3.10.8, 4.0.5 and 4.3.6 measured",
		Title:  "A requeue by basic.nack no longer counts for the delivery limit",
		Why: "Before 4.3 each return of a message by a consumer counts for the delivery limit of a quorum queue. Since 4.3 a " +
			"requeue by basic.nack does not, which many libraries do by default: a message that its consumer can never process " +
			"is delivered without end.",
		Fix: "Let consumers reject without requeue what they cannot process, or requeue it by basic.reject, which counts.",
		Hit: Example{
			Definitions: oneQueue(`"x-queue-type": "quorum", "x-delivery-limit": 5`), Version: "4.2.0", For: "4.3",
		},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum"`), Version: "3.13.7", For: "4.3"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		limit, limited := policy.DeliveryLimit(x.in.from, q.Queue.Queue, q.Args)
		if !x.passes(3) || !limited || limit >= topology.Unlimited {
			return Finding{}, false
		}
		return Finding{
			Evidence:    fmt.Sprintf("quorum queue with a delivery limit of %d", limit),
			Consequence: "a message that consumers requeue by basic.nack is delivered without end",
			Remedy: fmt.Sprintf("find out which consumers of %s requeue by basic.nack, and let them reject without requeue",
				text.Name(q.Name)),
		}, true
	})}
}

// without returns the fix that takes keys from a policy, or deletes it if it has no others.
func without(p topology.Policy, keys []string) []Fix {
	rest := p
	rest.Definition = p.Definition.Without(keys...)
	return choosing([]Fix{{Changes: []Change{{Delete: len(rest.Definition) == 0, Object: rest}}}},
		"takes %s from the queues at once: decide first whether they need it until the upgrade", strings.Join(keys, ", "))
}

// upgradeCount says how many findings count, by what happens: "2 refused, 1 changed, 0 dropped".
func (r Result) upgradeCount() string {
	return strings.Join(text.Each([]Upgrade{Refused, Changed, Dropped}, func(u Upgrade) string {
		return fmt.Sprintf("%d %s", r.count(func(f Finding) bool { return f.Upgrade == u }), u)
	}), ", ")
}

// forLine returns the line of the upgrade that was audited. Empty: none.
func (r Result) forLine() string {
	if len(r.Reports) == 0 {
		return ""
	}
	return r.Reports[0].For
}
