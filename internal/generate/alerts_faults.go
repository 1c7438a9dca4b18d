package generate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
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
		series := a.selector("dlxctl_queue_in_outage", "topology", a.t.Name, "severity", severity)
		a.add(Rule{
			Alert: "DlxctlOutage",
			Expr:  "max by (topology, backoff, queue, severity, owner) (" + series + ") == 1",
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
		series := a.selector("dlxctl_statistics_unread", "topology", a.t.Name, "backoff", b.Name)
		a.add(Rule{
			Alert: "DlxctlOutagesUnknown",
			Expr:  "max by (topology, backoff) (" + series + ") == 1", For: "5m",
			Annotations: about("whether queues of backoff {{ $labels.backoff }} are in outage is not known",
				"The processor cannot read statistics from the management API, or they lack what consumers of AMQP 1.0 get. No message is lost: what would be a dead letter waits, except what no retry would help. The log of dlxctl process says why."),
		}, "severity", byDay(a.worst(func(w topology.WorkQueue) bool { return w.Backoff == b.Name })), "backoff", b.Name)
	}
}

// standstill adds the alerts about failed messages that do not move, and about processors: one that
// runs with the tiers of another file, and one that is missing while others run.
func (a *alerts) standstill() {
	if len(a.t.Read()) == 0 {
		return
	}
	a.add(Rule{
		Alert: "DlxctlBrokerBlocked",
		Expr:  "max by (topology) (" + a.selector("dlxctl_connection_blocked", "topology", a.t.Name) + ") == 1", For: "2m",
		Annotations: about("an alarm of the broker stops the processors of {{ $labels.topology }}",
			"The broker is short of memory or disk space and accepts no messages, those of publishers included. No message is lost. rabbitmq-diagnostics alarms shows which node."),
	}, "severity", a.worst(anyQueue))
	for _, b := range a.t.Backoffs {
		severity := a.worst(func(w topology.WorkQueue) bool { return w.Backoff == b.Name })
		a.stalled(b, severity)
		a.add(Rule{
			Alert: "DlxctlProcessorOutdated",
			Expr: "max by (topology, backoff, tiers, instance) (" + a.matching("dlxctl_backoff_info", []string{
				fmt.Sprintf("topology=%q", a.t.Name), fmt.Sprintf("backoff=%q", b.Name), fmt.Sprintf("tiers!=%q", b.DelaysText()),
			}) + ") == 1",
			For: "5m",
			Annotations: about("a processor of {{ $labels.topology }} runs with another file",
				"{{ $labels.instance }} retries messages of the backoff {{ $labels.backoff }} after {{ $labels.tiers }}. By the file of this rule it is "+literal(b.DelaysText())+". Restart it with this file, or generate the rules again."),
		}, "severity", byDay(severity), "backoff", b.Name)
		if a.o.Processors < 2 || a.mayWait(b.FailedQueue) {
			continue
		}
		up := a.selector("dlxctl_consumer_up", "topology", a.t.Name, "queue", b.FailedQueue)
		a.add(Rule{
			Alert: "DlxctlProcessorRedundancyLost",
			Expr:  fmt.Sprintf("sum by (topology, queue) (%s) < %d > 0", up, a.o.Processors), For: "5m",
			Annotations: about("{{ $value }} of "+fmt.Sprint(a.o.Processors)+" processors consume {{ $labels.queue }}",
				"Messages are retried, but fewer processors are left to lose. Start the missing dlxctl process; its log shows why it stopped."),
		}, "severity", byDay(severity), "backoff", b.Name)
	}
}

// stalled adds the alert that nothing moves out of a failed queue. Where its messages may wait for
// the next run of a processor, one of a day is missing.
func (a *alerts) stalled(b topology.Backoff, severity string) {
	r := Rule{
		Alert: "DlxctlRetriesStalled", Expr: a.stands(b), For: "5m",
		Annotations: about("nothing moves out of {{ $labels.queue }}",
			"Messages wait there, and no processor has moved one for 5 minutes or more. No message is lost. The log of dlxctl process shows what it waits for."),
	}
	if a.mayWait(b.FailedQueue) {
		severity = byDay(severity)
		queue := []string{b.FailedQueue} // it need not look empty after a run: messages may fail all the time
		r.Expr = a.depth(queue) + " > 0 and max by (vhost, queue) (resets(" + a.queues(metricMessages, queue) + "[15m])) == 0"
		r.For = "1d"
		r.Annotations = about("nothing has left {{ $labels.queue }} for a day",
			"Messages wait there for a run of dlxctl process. No message is lost.")
	}
	a.add(r, "severity", severity, "backoff", b.Name)
}

// stands returns the expression that a failed queue has more messages than must stay there, and
// that no processor has moved one for 5 minutes.
func (a *alerts) stands(b topology.Backoff) string {
	of := func(metric string) string { return a.selector(metric, "topology", a.t.Name, "backoff", b.Name) }
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

// lateFailures adds the alerts about failed messages that wait in their work queue for more than
// topology.TierLate until RabbitMQ moves them. They are neither ready nor unacknowledged: no other
// metric of RabbitMQ tells of them by queue. Neither are those that RabbitMQ delays, so that queues
// with x-delayed-retry-type, and those with a native backoff, have no such alert.
func (a *alerts) lateFailures() {
	delays := map[string]bool{}
	for _, q := range a.t.Queues {
		delays[q.Name] = q.Arguments.HasAny("x-" + topology.KeyDelayedRetryType)
	}
	works := slices.DeleteFunc(a.named(), func(w topology.WorkQueue) bool { return delays[w.Name] })
	add := func(g group, backoff, to, late string) {
		a.add(Rule{
			Alert: "DlxctlFailuresLate", Expr: a.dying(g.queues) + " > " + late, For: "5m",
			Annotations: about("failed messages of {{ $labels.queue }} do not reach "+to,
				"{{ $value }} messages wait in {{ $labels.queue }}, neither ready nor unacknowledged, until RabbitMQ moves them to "+to+". No message is lost. That queue accepts none or has no leader, or more messages fail than RabbitMQ moves: dlxctl status shows the queues, dlxctl plan policies and bindings."),
		}, "severity", g.severity, "owner", g.owner, "backoff", backoff)
	}
	with := func(backoff string) []group {
		of := slices.DeleteFunc(slices.Clone(works), func(w topology.WorkQueue) bool { return w.Backoff != backoff })
		return grouped(of, func(w topology.WorkQueue) string { return w.Name })
	}
	for _, b := range a.t.Backoffs {
		var rates []string
		for _, what := range []string{"retried", "dead_lettered", "unroutable", "dropped"} {
			series := a.selector("dlxctl_messages_"+what+"_total", "topology", a.t.Name, "backoff", b.Name)
			rates = append(rates, "rate("+series+"[5m])")
		}
		for _, g := range with(b.Name) {
			add(g, b.Name, literal(b.FailedQueue), fmt.Sprintf("on (queue) group_left () %g * (sum by (queue) (%s or 0 * %s) + %s)",
				topology.TierLate.Seconds(), strings.Join(rates, " or "), a.queues(metricMessages, g.queues),
				a.growth([]string{b.FailedQueue})))
		}
	}
	dead := map[string]string{}
	for _, w := range works {
		dead[w.Name] = w.DeadLetterQueue
	}
	for _, g := range with(topology.NoBackoff) {
		to := text.Each(g.queues, func(name string) string { return dead[name] })
		slices.Sort(to)
		add(g, "", "its dead-letter queue",
			fmt.Sprintf("%g * %s", topology.TierLate.Seconds(), a.growth(slices.Compact(to))))
	}
}

// dying returns the expression of how many messages RabbitMQ is moving out of queues.
func (a *alerts) dying(queues []string) string {
	return fmt.Sprintf("max by (vhost, queue) (%s - %s - %s)", a.queues(metricMessages, queues),
		a.queues(metricReady, queues), a.queues(metricUnacked, queues))
}

// growth returns the expression of how many messages a second queues get more than they give, in
// all.
func (a *alerts) growth(queues []string) string {
	return "scalar(sum(clamp_min(deriv(" + a.queues(metricMessages, queues) + "[5m]), 0)) or vector(0))"
}

// held adds the alert about messages that must stay in a failed queue, or in one of a delay.
func (a *alerts) held() {
	if len(a.t.Read()) == 0 {
		return
	}
	a.add(Rule{
		Alert: "DlxctlMessagesHeld",
		Expr: "sum by (topology, backoff, queue, reason) (max_over_time(" +
			a.selector("dlxctl_held_messages", "topology", a.t.Name) + "[5m])) > 0",
		For: "1m",
		Annotations: about("{{ $labels.queue }} holds messages that cannot be moved on",
			"About {{ $value }}, reason {{ $labels.reason }}. The log of dlxctl process says why. Messages that can be moved are moved."),
	}, "severity", byDay(a.worst(anyQueue)))
}
