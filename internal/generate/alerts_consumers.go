package generate

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Metrics of the family queue_delivery_metrics, which 3.10 does not have. Each node counts what its
// own channels deliver, so that those of all nodes are added.
const (
	metricDelivered   = "rabbitmq_detailed_queue_messages_delivered_ack_total"
	metricRedelivered = "rabbitmq_detailed_queue_messages_redelivered_total"
	metricAcked       = "rabbitmq_detailed_queue_messages_acked_total"
)

// consumers adds the alerts about consumers that get the same messages again and again, and about
// those that hold messages and do nothing. A restart redelivers a prefetch once, and does not last.
func (a *alerts) consumers() {
	const requeue = "Let its consumers reject a failed message without requeue; if they do, they lose their channel or connection, and their logs say why."
	native := func(w topology.WorkQueue) bool { _, is := a.t.NativeBackoff(w.Backoff); return is }
	a.consumersOf(slices.DeleteFunc(a.named(), native), requeue)
	a.consumersOf(slices.DeleteFunc(a.named(), func(w topology.WorkQueue) bool { return !native(w) }),
		"RabbitMQ retries what its consumers requeue, and nearly all deliveries fail: repair what they call. Let them requeue with basic.reject: basic.nack with requeue is never counted.")
}

// consumersOf adds those about some work queues. loops says what ends loops there.
func (a *alerts) consumersOf(works []topology.WorkQueue, loops string) {
	for _, g := range grouped(works, func(w topology.WorkQueue) string { return w.Name }) {
		rises := func(metric, time string) string {
			return "sum by (vhost, queue) (increase(" + a.queues(metric, g.queues) + "[" + time + "]))"
		}
		a.add(Rule{
			Alert: "DlxctlLoop",
			Expr: rises(metricRedelivered, "5m") + " > 300 and " + rises(metricRedelivered, "5m") + " > " +
				rises(metricAcked, "5m"),
			For: "10m",
			Annotations: about("messages of {{ $labels.queue }} are redelivered again and again",
				"About {{ $value | printf \"%.0f\" }} redeliveries in 5 minutes, more than acknowledgements. "+loops),
		}, "severity", g.severity, "owner", g.owner)
		// Deliveries to consumers of AMQP 1.0 are not counted: what they hold changes while they work.
		held := a.queues(metricUnacked, g.queues)
		a.add(Rule{
			Alert: "DlxctlStuck",
			Expr: "max by (vhost, queue) (" + held + ") > 0 and " +
				rises(metricDelivered, "15m") + " == 0 and " + rises(metricAcked, "15m") + " == 0 and " +
				"max by (vhost, queue) (changes(" + held + "[15m])) == 0",
			For: "5m",
			Annotations: about("consumers of {{ $labels.queue }} stand still",
				"They hold {{ $value }} messages, and none was delivered or acknowledged for 15 minutes: they hang, or their jobs take longer. dlxctl status '{{ $labels.queue }}' shows how many messages wait."),
		}, "severity", g.severity, "owner", g.owner)
	}
}
