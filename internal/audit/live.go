package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// liveChecks are the rules that need a running broker.
func liveChecks() []check {
	return []check{
		noConsumers(), deadLettersGrowing(), oldestDeadLetter(), policyNotInEffect(), withoutLeader(), fewReplicas(),
		acksAutomatically(),
	}
}

// running returns what a broker tells in an example: one queue with these values.
func running(set func(*topology.Live)) *topology.Live {
	l := &topology.Live{
		Now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), Interval: time.Minute, Consumers: map[string][]topology.Consumer{},
	}
	set(l)
	return l
}

func nothingMore(*topology.Live) {}

// consumers returns how many consumers a queue has, and false if that is not known.
func (x *index) consumers(q *queue) (int64, bool) {
	if usage, ok := x.State.Usage[q.Name]; ok && !usage.ConsumersUnknown {
		return usage.Consumers, true
	}
	if x.in.Live == nil {
		return 0, false
	}
	list, asked := x.in.Live.Consumers[q.Name]
	return int64(len(list)), asked
}

func noConsumers() check {
	return check{Rule{
		ID: "no-consumers", Severity: Warning, Group: groupPublished, Live: true,
		Title: "Messages wait in a queue without consumers",
		Why: "No client consumes the queue, and it has messages. The service may be stopped, or no service uses the queue " +
			"any more. Dead-letter queues and queues with a TTL for retries are left out. The failed queue of a " +
			"topology of dlxctl needs a processor.",
		Fix: "Start the service that consumes the queue. Where none needs its messages any more, unbind the queue, and delete " +
			"it once its messages are moved or can be lost.",
		Hit: Example{
			Definitions: oneQueue(""), Live: running(nothingMore), Usage: map[string]topology.Usage{"billing": {Ready: 12}},
		},
		Miss: Example{
			Definitions: oneQueue(""), Usage: map[string]topology.Usage{"billing": {Ready: 12, Consumers: 1}},
			Live: running(func(l *topology.Live) { l.Consumers["billing"] = []topology.Consumer{{Tag: "a"}} }),
		},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		n, known := x.consumers(q)
		ready := x.State.Usage[q.Name].Ready
		if !known || n > 0 || ready == 0 {
			return Finding{}, false
		}
		if name, ok := failedQueue(q); ok {
			return Finding{
				Evidence:    fmt.Sprintf("%s ready, no processor", text.Count(ready, "message")),
				Consequence: "no processor is consuming " + text.Name(q.Name) + ": failed messages are not retried",
				Remedy:      "dlxctl process" + x.vhost("--vhost") + " -f " + text.ShellQuote(name+".yaml"),
			}, true
		}
		if q.Role != topology.RoleWork {
			return Finding{}, false
		}
		return Finding{
			Evidence:    fmt.Sprintf("%s ready, no consumer", text.Count(ready, "message")),
			Consequence: fmt.Sprintf("the messages in %s are not processed", text.Name(q.Name)),
			Remedy: fmt.Sprintf("decide which service should consume %s, and start it; delete the queue only if its messages can be "+
				"lost", text.Name(q.Name)),
		}, true
	})}
}

// failedQueue returns the topology of a failed queue that dlxctl made.
func failedQueue(q *queue) (string, bool) {
	owner, marked := topology.Owner(q.Arguments)
	_, failed := topology.FailedBackoff(owner, q.Name)
	return owner, marked && failed
}

// lookAt returns the command that shows what is in a dead-letter queue.
func lookAt(x *index, q *queue) string {
	return "dlxctl desk groups" + x.vhost("--vhost") + " " + text.ShellQuote(q.Name)
}

func deadLettersGrowing() check {
	return check{Rule{
		ID: "dead-letters-growing", Severity: Warning, Group: groupNotKept, Live: true,
		Title: "A dead-letter queue grows",
		Why:   "Between two readings messages came to a dead-letter queue: a consumer is rejecting messages right now.",
		Fix:   "Look at the newest dead letters, and at the log of the service that rejects them.",
		Hit:   Example{Definitions: deadLettersIn(""), Live: running(func(l *topology.Live) { l.Growth = map[string]int64{"billing.dead": 7} })},
		Miss:  Example{Definitions: deadLettersIn(""), Live: running(func(l *topology.Live) { l.Growth = map[string]int64{"billing": 7} })},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		grown := x.in.Live.Growth[q.Name]
		if q.Role != topology.RoleDeadLetter || grown <= 0 {
			return Finding{}, false
		}
		return Finding{
			Evidence:    text.Count(grown, "message") + " more within " + text.Duration(x.in.Live.Interval) + q.sources(),
			Consequence: "messages are failing now",
			Remedy:      lookAt(x, q),
		}, true
	})}
}

// tooOld is the age from which a dead letter seems to be forgotten.
const tooOld = 7 * 24 * time.Hour

func oldestDeadLetter() check {
	aged := func(age time.Duration) *topology.Live {
		return running(func(l *topology.Live) { l.Oldest = map[string]time.Time{"billing.dead": l.Now.Add(-age)} })
	}
	return check{Rule{
		ID: "oldest-dead-letter", Severity: Warning, Group: groupNotKept, Live: true,
		Title: "Dead letters are older than a week",
		Why: "The first message of the dead-letter queue was published more than seven days ago, by the timestamp that its " +
			"publisher set. When it died, the broker does not tell. It seems to be forgotten.",
		Fix:  "Look at the dead letters: replay what can succeed now, and discard the rest.",
		Hit:  Example{Definitions: deadLettersIn(""), Live: aged(tooOld + time.Hour)},
		Miss: Example{Definitions: deadLettersIn(""), Live: aged(time.Hour)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		since, known := x.in.Live.Oldest[q.Name]
		if q.Role != topology.RoleDeadLetter || !known || x.in.Live.Now.Sub(since) < tooOld {
			return Finding{}, false
		}
		return Finding{
			Evidence: fmt.Sprintf("the first message was published on %s, %d days ago, by its timestamp", since.UTC().Format(time.DateOnly),
				int(x.in.Live.Now.Sub(since).Hours()/24)),
			Consequence: "failed messages wait, and may be forgotten",
			Remedy:      lookAt(x, q),
		}, true
	})}
}

func policyNotInEffect() check {
	const definitions = `{"queues": [{"name": "billing", "durable": true, "arguments": {}}],
 "policies": [{"name": "dlq", "pattern": "^billing$", "apply-to": "queues", "priority": 0, "definition": {"dead-letter-exchange": ""}}]}`
	return check{Rule{
		ID: "policy-not-in-effect", Severity: Error, Group: groupNoEffect, Live: true,
		Title: "A policy is stored and not in effect",
		Why: "RabbitMQ stores a policy first and applies it to queues afterwards. When the client disconnects in between, the " +
			"broker never applies it. Lists of policies show it as if all were well.",
		Fix: "Write the policy again, with a small change: RabbitMQ does nothing if it is the same.",
		Hit: Example{Definitions: definitions, Live: running(nothingMore), QueuePolicies: map[string]string{}},
		Miss: Example{
			Definitions: definitions, Live: running(nothingMore), QueuePolicies: map[string]string{"billing": "dlq"},
		},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		candidates := x.applying(q, x.matching[q.Name])
		reported := x.State.QueuePolicies[q.Name]
		if x.State.QueuePolicies == nil || len(candidates) == 0 {
			return Finding{}, false // a pattern that only the broker can read may apply
		}
		best := slices.DeleteFunc(candidates, func(p topology.Policy) bool { return p.Priority < candidates[0].Priority })
		if slices.ContainsFunc(best, func(p topology.Policy) bool { return p.Name == reported }) {
			return Finding{}, false
		}
		named := func(p topology.Policy) bool { return p.Name == reported }
		if i := slices.IndexFunc(x.State.Have.Policies, named); i >= 0 &&
			!slices.ContainsFunc(x.matching[q.Name], named) && x.State.Have.Policies[i].Priority >= best[0].Priority {
			return Finding{}, false // the broker reads its pattern in another way
		}
		f := Finding{
			Evidence:    fmt.Sprintf("policy %s matches; the broker reports no policy in effect", best[0].Name),
			Consequence: "no key of the policy has an effect on " + text.Name(q.Name),
			Remedy:      fmt.Sprintf("write the policy %s again, with a small change: RabbitMQ does nothing if it is the same", text.Name(best[0].Name)),
			Tries:       rewriting(best[0]),
		}
		if reported != "" {
			f.Evidence = fmt.Sprintf("policy %s matches with the highest priority; the broker reports %s in effect",
				best[0].Name, reported)
		}
		if best[0].Definition.HasAny(topology.KeyDeadLetterExchange) && !q.DeadLetters {
			f.Consequence = "a message that a consumer of " + text.Name(q.Name) + " rejects is lost"
		}
		return f, true
	})}
}

// noLeader is the rule of queues that no node answers for.
const noLeader = "queue-without-leader"

func withoutLeader() check {
	return check{Rule{
		ID: noLeader, Severity: Error, Group: groupPublished, Live: true,
		Title: "A queue has no leader",
		Why: "No node answers for the queue: its nodes are down, or a majority of them is. Nothing can be published to it or " +
			"consumed from it, and dead letters that are sent to it at most once are lost.",
		Fix:  "Start the nodes that host the queue.",
		Hit:  Example{Definitions: oneQueue(""), Live: running(func(l *topology.Live) { l.Leaderless = []string{"billing"} })},
		Miss: Example{Definitions: oneQueue(""), Live: running(nothingMore)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !slices.Contains(x.in.Live.Leaderless, q.Name) {
			return Finding{}, false
		}
		return Finding{
			Evidence:    fmt.Sprintf("no node answers for the %s queue", q.Type()),
			Consequence: fmt.Sprintf("%s takes no messages and delivers none", text.Name(q.Name)),
			Remedy:      "rabbitmqctl list_unresponsive_queues" + x.vhost("-p"),
		}, true
	})}
}

// maxReplicas is how many replicas RabbitMQ gives to a quorum queue by itself, where there are so
// many nodes.
const maxReplicas = 3

func fewReplicas() check {
	on := func(nodes ...string) *topology.Live {
		return running(func(l *topology.Live) {
			l.Nodes = []string{"rabbit@a", "rabbit@b", "rabbit@c"}
			l.Running, l.Replicas = l.Nodes, map[string][]string{"billing": nodes}
		})
	}
	return check{Rule{
		ID: "too-few-replicas", Severity: Warning, Group: groupPublished, Live: true,
		Title: "A quorum queue has too few replicas",
		Why: "RabbitMQ chooses the nodes of a quorum queue, up to three, when the queue is declared. A node that joins the " +
			"cluster later, or in place of one that was lost, gets no replica of it by default. So the queue has no majority " +
			"after the loss of fewer nodes than the cluster survives.",
		Fix:  "Add the missing replicas: rabbitmq-queues grow NODE all does so for all queues that have none on the node.",
		Hit:  Example{Definitions: oneQueue(`"x-queue-type": "quorum"`), Live: on("rabbit@a", "rabbit@b")},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum"`), Live: on("rabbit@a", "rabbit@b", "rabbit@c")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		replicas, known := x.in.Live.Replicas[q.Name]
		missing := min(maxReplicas, len(x.in.Live.Nodes)) - len(replicas)
		if !known || missing <= 0 {
			return Finding{}, false
		}
		running := x.in.Live.Running
		without := slices.DeleteFunc(slices.Clone(running), func(node string) bool { return slices.Contains(replicas, node) })
		without = without[:min(missing, len(without))]
		f := Finding{
			Evidence: fmt.Sprintf("%s, on %s, in a cluster of %d nodes", text.Count(len(replicas), "replica"),
				strings.Join(replicas, " and "), len(x.in.Live.Nodes)),
			Consequence: fmt.Sprintf("%s takes no messages and delivers none while one of these nodes is down", text.Name(q.Name)),
			Remedy: strings.Join(text.Each(without, func(node string) string {
				return "rabbitmq-queues add_member" + x.vhost("-p") + " " + text.ShellQuote(q.Name) + " " + text.ShellQuote(node)
			}), " && "),
		}
		// A member is added by a majority of those that are there.
		down := slices.ContainsFunc(replicas, func(node string) bool { return !slices.Contains(running, node) })
		if down || len(without) == 0 {
			f.Remedy = "start the nodes that are down, or remove those that are lost with rabbitmqctl forget_cluster_node; " +
				"then run dlxctl audit again"
		}
		if len(replicas) == 1 {
			f.Consequence = fmt.Sprintf("%s stops while the node is down, and its messages are lost with the disk of the node",
				text.Name(q.Name))
		}
		return f, true
	})}
}

func acksAutomatically() check {
	return check{Rule{
		ID: "consumer-acks-automatically", Severity: Warning, Group: groupLost, Live: true,
		Title: "A consumer cannot reject what it fails to process",
		Why: "The consumer uses automatic acknowledgement: RabbitMQ forgets a message when it sends it. A message that fails " +
			"is never dead-lettered, and one that is on its way to a crashing consumer is lost.",
		Fix: "Let the consumer acknowledge each message after it is processed, and reject the message that failed.",
		Hit: Example{
			Definitions: deadLettersIn(""),
			Live: running(func(l *topology.Live) {
				l.Consumers["billing"] = []topology.Consumer{{Tag: "a", AutoAck: true}}
			}),
		},
		Miss: Example{
			Definitions: deadLettersIn(""),
			Live:        running(func(l *topology.Live) { l.Consumers["billing"] = []topology.Consumer{{Tag: "a"}} }),
		},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		list := x.in.Live.Consumers[q.Name]
		i := slices.IndexFunc(list, func(c topology.Consumer) bool { return c.AutoAck })
		if !q.DeadLetters || i < 0 {
			return Finding{}, false
		}
		consumer := "consumer " + text.Name(list[i].Tag)
		if list[i].Connection != "" {
			consumer += " of connection " + text.Name(list[i].Connection)
		}
		return Finding{
			Evidence:    consumer + " acknowledges automatically; " + q.deadLetterExchange(),
			Consequence: fmt.Sprintf("a message of %s that the consumer fails to process is lost", text.Name(q.Name)),
			Remedy:      "rabbitmqctl list_consumers" + x.vhost("-p") + " queue_name consumer_tag ack_required channel_pid",
		}, true
	})}
}
