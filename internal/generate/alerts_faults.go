package generate

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// outages adds the alerts about work queues that are in outage, by severity.
func (a *alerts) outages() {
	for _, severity := range topology.Severities() {
		if !slices.ContainsFunc(a.t.WorkQueues, func(w topology.WorkQueue) bool {
			b, _ := a.t.Backoff(w.Backoff)
			return w.Severity == severity && b.Outage != nil
		}) {
			continue
		}
		selector := selector("dlxctl_queue_in_outage", "topology", a.t.Name, "severity", severity)
		a.add(Rule{
			Alert: "DlxctlOutage",
			Expr:  "max by (topology, backoff, queue, severity, owner) (" + selector + ") == 1",
			Annotations: about("{{ $labels.queue }} is in outage",
				"Nearly all of its deliveries fail. No message is lost: what would be a dead letter waits for the end, except permanent failures. dlxctl status shows how many wait."),
		}, "severity", severity)
	}
}

// unknownOutages adds the alerts about processors that cannot see whether work queues are in
// outage.
func (a *alerts) unknownOutages() {
	for _, b := range a.t.Backoffs {
		if b.Outage == nil {
			continue
		}
		selector := selector("dlxctl_statistics_unread", "topology", a.t.Name, "backoff", b.Name)
		a.add(Rule{
			Alert: "DlxctlOutagesUnknown",
			Expr:  "max by (topology, backoff) (" + selector + ") == 1", For: "5m",
			Annotations: about("whether queues of backoff {{ $labels.backoff }} are in outage is not known",
				"The processor cannot read statistics from the management API. No message is lost: what would be a dead letter waits, except what no retry would help. The log of dlxctl process says why."),
		}, "severity", byDay(a.worst(func(w topology.WorkQueue) bool { return w.Backoff == b.Name })), "backoff", b.Name)
	}
}

// standstill adds the alerts about failed messages that do not move, and about a processor that is
// missing while others run.
func (a *alerts) standstill() {
	if len(a.t.Backoffs) == 0 {
		return
	}
	a.add(Rule{
		Alert: "DlxctlBrokerBlocked",
		Expr:  "max by (topology) (" + selector("dlxctl_connection_blocked", "topology", a.t.Name) + ") == 1", For: "2m",
		Annotations: about("an alarm of the broker stops the retries of {{ $labels.topology }}",
			"The broker is short of memory or disk space and accepts no messages, those of publishers included. No message is lost. rabbitmq-diagnostics alarms shows which node."),
	}, "severity", a.worst(anyQueue))
	for _, b := range a.t.Backoffs {
		severity := a.worst(func(w topology.WorkQueue) bool { return w.Backoff == b.Name })
		a.add(Rule{
			Alert: "DlxctlRetriesStalled", Expr: a.stalled(b), For: "5m",
			Annotations: about("nothing moves out of {{ $labels.queue }}",
				"Messages wait there, and no processor has moved one for 5 minutes or more. No message is lost. The log of dlxctl process shows what it waits for."),
		}, "severity", severity, "backoff", b.Name)
		if a.o.Processors < 2 {
			continue
		}
		up := selector("dlxctl_consumer_up", "topology", a.t.Name, "queue", b.FailedQueue)
		a.add(Rule{
			Alert: "DlxctlProcessorRedundancyLost",
			Expr:  fmt.Sprintf("sum by (topology, queue) (%s) < %d > 0", up, a.o.Processors), For: "5m",
			Annotations: about("{{ $value }} of "+fmt.Sprint(a.o.Processors)+" processors consume {{ $labels.queue }}",
				"Messages are retried, but fewer processors are left to lose. Start the missing dlxctl process; its log shows why it stopped."),
		}, "severity", byDay(severity), "backoff", b.Name)
	}
}

// stalled returns the expression that a failed queue has more messages than must stay there, and
// that no processor has moved one for 5 minutes.
func (a *alerts) stalled(b topology.Backoff) string {
	of := func(metric string) string { return selector(metric, "topology", a.t.Name, "backoff", b.Name) }
	moved := func(metric string) string { return "sum(increase(" + of(metric) + "[5m])) > 0" }
	return a.depth([]string{b.FailedQueue}) +
		" > scalar(sum(" + of("dlxctl_held_messages") + ") or vector(0))" +
		" unless on () (" + moved("dlxctl_messages_retried_total") +
		" or " + moved("dlxctl_messages_dead_lettered_total") +
		" or " + moved("dlxctl_messages_unroutable_total") +
		" or " + moved("dlxctl_messages_dropped_total") + ")"
}

// lateTiers adds the alerts about messages that are past the delay of their tier and have not
// returned to their work queue.
func (a *alerts) lateTiers() {
	for _, b := range a.t.Backoffs {
		for _, tier := range tiers(b) {
			a.add(Rule{
				Alert: "DlxctlTierLate", Expr: a.late(tier), For: "5m",
				Annotations: about("retries of {{ $labels.queue }} are late",
					"{{ $value }} messages are past their delay and have not returned to their work queue. No message is lost. A work queue accepts none, or is not bound: dlxctl plan shows policies and bindings, dlxctl status the queues."),
			}, "severity", a.worst(func(w topology.WorkQueue) bool { return w.Backoff == b.Name }), "backoff", b.Name)
		}
	}
}

// tiers returns those of a backoff, each once: attempts that wait equally long share a retry queue.
func tiers(b topology.Backoff) []topology.Tier {
	var out []topology.Tier
	for _, tier := range b.AllTiers() {
		if !slices.Contains(out, tier) {
			out = append(out, tier)
		}
	}
	return out
}

// late returns the expression that messages of a tier are late, by more than topology.TierLate. A
// message that the broker is dead-lettering is neither ready nor unacknowledged: see
// topology.Tier.Late, which says the same of counts.
func (a *alerts) late(tier topology.Tier) string {
	all, ready := a.queues(metricMessages, []string{tier.Queue}), a.queues(metricReady, []string{tier.Queue})
	return fmt.Sprintf("max by (vhost, queue) (%s - %s) > %g / %g * max by (vhost, queue) (%[2]s)",
		all, ready, topology.TierLate.Seconds(), tier.Delay.Seconds())
}

// held adds the alert about messages that must stay in a failed queue.
func (a *alerts) held() {
	if len(a.t.Backoffs) == 0 {
		return
	}
	a.add(Rule{
		Alert: "DlxctlMessagesHeld",
		Expr: "sum by (topology, backoff, queue, reason) (max_over_time(" +
			selector("dlxctl_held_messages", "topology", a.t.Name) + "[5m])) > 0",
		For: "1m",
		Annotations: about("{{ $labels.queue }} holds messages that are not retried",
			"About {{ $value }}, reason {{ $labels.reason }}. The log of dlxctl process names each one. Other messages are retried."),
	}, "severity", byDay(a.worst(anyQueue)))
}
