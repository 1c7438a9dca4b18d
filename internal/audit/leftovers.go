package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// leftoverChecks are the rules about what migrations and runs of the desk left on the broker.
func leftoverChecks() []check {
	return []check{migrationUnfinished(), legacyStillBound(), runUnfinished(), messagesParked()}
}

func switchOwner(e *exchange) (string, bool) {
	owner, marked := topology.Owner(e.Arguments)
	return owner, marked && topology.IsSwitchName(owner, e.Name)
}

func migrationUnfinished() check {
	return check{Rule{
		ID: "migration-unfinished", Severity: Warning, Group: groupLeftovers,
		Title: "A migration has not ended",
		Why: "The switch exchange of a cutover exists. It routes the messages of a legacy queue to that queue or to its " +
			"successor, and is deleted at the end of the cutover.",
		Fix: "Continue the migration, or roll it back.",
		Hit: Example{Definitions: `{"exchanges": [{"name": "shop.switch.0123456789ab", "type": "topic", "durable": true,
  "arguments": {"x-managed-by": "dlxctl/shop"}}]}`},
		Miss: Example{Definitions: boundTo("topic", "order.*", "")},
	}, ofExchanges(func(x *index, e *exchange) (Finding, bool) {
		owner, ok := switchOwner(e)
		if !ok {
			return Finding{}, false
		}
		queues := x.Router.Reachable(e.Name)
		evidence := "switch exchange of topology " + owner
		if len(queues) > 0 {
			evidence += "; it leads to " + list(queues)
		}
		return Finding{
			Evidence:    evidence,
			Consequence: "the cutover is not complete: the legacy queue may still get messages",
			Remedy:      "dlxctl migrate" + x.vhost("--vhost") + " -f TOPOLOGY.yaml",
		}, true
	})}
}

func legacyStillBound() check {
	const definitions = `{"exchanges": [{"name": "events", "type": "topic", "durable": true}],
 "queues": [{"name": "invoices", "durable": true}, {"name": "invoices.v2", "durable": true}],
 "bindings": [{"source": "events", "destination": %q, "destination_type": "queue", "routing_key": "order.*"}],
 "policies": [{"name": "dlxctl.shop.switch.0123456789ab.forward", "pattern": "^invoices$", "apply-to": "queues", "priority": 1000,
   "definition": {"max-length": 0, "overflow": "drop-head", "dead-letter-exchange": "", "dead-letter-routing-key": "invoices.v2"}}]}`
	return check{Rule{
		ID: "legacy-still-bound", Severity: Warning, Group: groupLeftovers,
		Title: "A legacy queue that forwards is still bound",
		Why: "A migration has made the legacy queue a forwarder: it dead-letters every message to its successor, at most " +
			"once. Messages that come through its bindings take this way too, and a successor that gets them by a binding " +
			"of its own has them twice.",
		Fix:  "Find out which service binds the legacy queue when it starts, and let it use the successor.",
		Hit:  Example{Definitions: fmt.Sprintf(definitions, "invoices")},
		Miss: Example{Definitions: fmt.Sprintf(definitions, "invoices.v2")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		owner, generated := topology.PolicyOwner(q.policy.Name)
		if !q.hasPolicy || !generated || !topology.IsSwitchName(owner, q.policy.Name) ||
			!strings.HasSuffix(q.policy.Name, ".forward") || len(x.ownBindings(q)) == 0 {
			return Finding{}, false
		}
		return Finding{
			Evidence:    fmt.Sprintf("policy %s forwards; binding %s", q.policy.Name, x.ownBindings(q)[0]),
			Consequence: fmt.Sprintf("messages come to %s first, and a dead letter is lost if the successor cannot take it", text.Name(q.Name)),
			Remedy: fmt.Sprintf("find out which service binds %s when it starts, and let it bind the successor; then delete the binding",
				text.Name(q.Name)),
		}, true
	})}
}

// deskQueue returns the topology of a queue that the desk made.
func deskQueue(q *queue) (string, bool) {
	owner, marked := topology.Owner(q.Arguments)
	name := survey.DeskOwner(owner)
	return name, marked && topology.IsDeskQueue(name, q.Queue.Queue)
}

// holds says how many messages a queue has, where that is known.
func (x *index) holds(q *queue) string {
	usage, known := x.State.Usage[q.Name]
	if !known {
		return ""
	}
	return ", with " + text.Count(usage.Ready+usage.Unacknowledged, "message")
}

func runUnfinished() check {
	hold := func(mark string) string {
		return oneNamed("shop.desk.20261122-101530-1a2b", `"x-queue-type": "quorum", "x-delivery-limit": 2147483647`+mark)
	}
	return check{Rule{
		ID: "desk-run-unfinished", Severity: Warning, Group: groupLeftovers,
		Title: "A run of the desk has not ended",
		Why: "The hold of a run has the messages that the run took from a dead-letter queue. When the run ends, the hold is " +
			"deleted. The messages are safe there, and they are neither in the dead-letter queue nor with a consumer.",
		Fix: "Return the run, which puts the messages back into their queue, or resume it, which goes on with what it does. " +
			"Without --yes, both only show the run.",
		Hit:  Example{Definitions: hold(`, "x-managed-by": "dlxctl/shop/desk"`)},
		Miss: Example{Definitions: hold("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		owner, ok := deskQueue(q)
		run, isHold := topology.HoldRun(owner, q.Name)
		n, known := x.consumers(q)
		if !ok || !isHold || q.Exclusive || known && n > 0 {
			return Finding{}, false
		}
		return Finding{
			Evidence:    fmt.Sprintf("hold of run %s of topology %s%s", run, owner, x.holds(q)),
			Consequence: "the messages that the run took are not processed",
			Remedy:      "dlxctl desk run resume" + x.vhost("--vhost") + " " + text.ShellQuote(run),
		}, true
	})}
}

// oneNamed returns definitions of a queue of that name.
func oneNamed(name, arguments string) string {
	return fmt.Sprintf(`{"queues": [{"name": %q, "durable": true, "auto_delete": false, "arguments": {%s}}]}`, name, arguments)
}

func messagesParked() check {
	parked := oneNamed("shop.parked", `"x-queue-type": "quorum", "x-message-ttl": 2592000000, "x-managed-by": "dlxctl/shop/desk"`)
	return check{Rule{
		ID: "desk-messages-parked", Severity: Note, Group: groupLeftovers, Live: true,
		Title: "Messages are parked",
		Why:   "The desk parks messages for 30 days, and then RabbitMQ deletes them.",
		Fix:   "Restore the messages that are still needed.",
		Hit: Example{
			Definitions: parked, Live: running(nothingMore),
			Usage: map[string]topology.Usage{"shop.parked": {Ready: 3}},
		},
		Miss: Example{Definitions: parked, Live: running(nothingMore), Usage: map[string]topology.Usage{"shop.parked": {}}},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		owner, ok := deskQueue(q)
		usage := x.State.Usage[q.Name]
		if !ok || q.Name != topology.ParkedName(owner) || usage.Ready+usage.Unacknowledged == 0 {
			return Finding{}, false
		}
		return Finding{
			Evidence:    "parked messages of topology " + owner + x.holds(q),
			Consequence: "a parked message is lost 30 days after it was parked",
			Remedy:      "dlxctl desk restore --help",
		}, true
	})}
}

// isSwitch reports whether a binding comes from a switch exchange.
func (x *index) isSwitch(b topology.Binding) bool {
	e := x.Exchange(b.Source)
	if e == nil {
		return false
	}
	_, ok := switchOwner(e)
	return ok
}

// ownBindings are the bindings of a queue that are not those of a cutover.
func (x *index) ownBindings(q *queue) []topology.Binding {
	return slices.DeleteFunc(slices.Clone(q.Bindings), x.isSwitch)
}
