package plan

import (
	"fmt"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// forgedDeaths warns of what RabbitMQ before 4.0 does with an x-death header that a
// publisher wrote: it believes it, and one that is not as the broker writes it ends
// at-least-once dead-lettering for the whole node, across restarts (measured on
// 3.10.8). It speaks once, of the queues that are new.
func (r *resolver) forgedDeaths() (f findings) {
	if r.state.Major() != 3 {
		return f
	}
	names := r.newWork(topology.Quorum, topology.WarnForgedDeath, func(effective topology.Arguments) bool {
		return effective[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce
	})
	if len(names) == 0 {
		return f
	}
	f.warn(topology.WarnForgedDeath, fmt.Sprintf(
		"%s: on this broker (%s) a publisher can end at-least-once dead-lettering for the whole node with a malformed x-death header; allow only trusted publishers, or set type: classic; RabbitMQ 4.0 and later ignore such a header",
		text.Some(names), r.state.Version))
	return f
}

// newWork names the work queues of a type that are to be created, whose arguments in effect are
// affected, and for which the file does not accept a warning.
func (r *resolver) newWork(kind, warning string, affected func(topology.Arguments) bool) []string {
	var names []string
	for _, q := range r.want.Queues {
		_, exists := r.existing[q.Name]
		if q.Label.Role == topology.RoleWork && q.Type() == kind && !exists && !r.accepts(warning, q.Name) &&
			affected(r.effective(q)) {
			names = append(names, text.Name(q.Name))
		}
	}
	return names
}

// crashes warns which delivery limit holds for new quorum work queues that say
// none: before 4.0 a message that crashes its consumer is redelivered forever.
func (r *resolver) crashes() (f findings) {
	names := r.newWork(topology.Quorum, topology.WarnDefaultDeliveryLimit, func(effective topology.Arguments) bool {
		return effective[topology.ArgDeliveryLimit] == nil
	})
	if len(names) == 0 {
		return f
	}
	line := "the broker's default delivery limit applies: a message counts as failed when it crashes its consumer for the 21st time; write deliveryLimit: 20 before you apply; later, it replaces a queue that has no deadLetterBy: policy"
	if r.state.Major() < 4 {
		line = "this broker has no default delivery limit: a message that crashes its consumer is redelivered forever; set deliveryLimit"
	}
	f.warn(topology.WarnDefaultDeliveryLimit, text.Some(names)+": "+line)
	return f
}

// endless warns of new classic work queues: they count no deliveries. A TTL would end a loop.
func (r *resolver) endless() (f findings) {
	names := r.newWork(topology.Classic, topology.WarnDefaultDeliveryLimit, func(effective topology.Arguments) bool {
		return effective[topology.ArgMessageTTL] == nil
	})
	if len(names) > 0 {
		f.warn(topology.WarnDefaultDeliveryLimit, text.Some(names)+
			": classic queues have no delivery limit: a message that crashes its consumer, or that a consumer requeues, is redelivered forever; set type: quorum")
	}
	return f
}
