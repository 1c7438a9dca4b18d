package plan

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// schedule is when a message of a queue is delivered that fails each time.
type schedule struct {
	backoff string
	// limit is how often a crash may return a delivery of it, -1 where the plan does
	// not say.
	limit int64
}

// schedules writes the deliveries of each new work queue as people ask for them,
// those of one schedule together.
func (t *textWriter) schedules() {
	limits := map[string]int64{} // by work queue, new or changed
	for _, c := range t.p.Changes {
		if c.Label.Role != topology.RoleWork || c.Action == Delete || c.Action == Blocked {
			continue
		}
		switch object := c.After.(type) {
		case topology.Queue:
			limits[c.Name] = limitOf(object.Arguments, topology.ArgDeliveryLimit)
		case topology.Policy: // it sets the dead-lettering
			limits[c.Label.Queue] = limitOf(object.Definition, topology.PolicyKey(topology.ArgDeliveryLimit))
		case topology.Exchange, topology.Binding, nil: // they have no delivery limit
		}
	}
	var order []schedule
	queues := map[schedule][]string{}
	for _, w := range t.p.WorkQueues {
		limit, shown := limits[w.Name]
		if !shown {
			continue
		}
		s := schedule{w.Backoff, limit}
		if queues[s] == nil {
			order = append(order, s)
		}
		queues[s] = append(queues[s], text.Name(w.Name))
	}
	for _, s := range order {
		t.line("  %s: %s%s", some(queues[s]), t.p.deliveries(s.backoff), crashes(s.limit))
	}
	t.gap(len(order))
}

// limitOf returns the delivery limit among arguments, -1 if there is none.
func limitOf(args topology.Arguments, name string) int64 {
	if limit, ok := args[name].(int64); ok && limit >= 0 && limit < topology.Unlimited {
		return limit
	}
	return -1
}

// crashes says what a delivery limit adds: RabbitMQ delivers a message that is
// returned limit times more before it counts as a failure.
func crashes(limit int64) string {
	if limit < 0 {
		return ""
	}
	return fmt.Sprintf("; each up to %s, if consumers crash or requeue (deliveryLimit %d)", text.Count(limit+1,
		"time"), limit)
}

// deliveries says when a message is delivered that fails each time: "4 deliveries,
// at 0s, +10s, +1m, +10m; dead after 11m10s at the earliest".
func (p Plan) deliveries(backoff string) string {
	loop, _ := topology.Compiled{Backoffs: p.Backoffs}.Backoff(backoff)
	return deliveries(loop)
}

// deliveries says when a message of a loop is delivered that fails each time. A loop
// without steps is no backoff at all.
func deliveries(loop topology.Backoff) string {
	if len(loop.Tiers) == 0 {
		return "1 delivery; dead at once"
	}
	parts := []string{"at 0s"}
	for _, run := range runs(loop) {
		part := "+" + topology.FormatDelay(run.delay)
		if run.attempts > 1 {
			part += fmt.Sprintf(" ×%d", run.attempts)
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%d deliveries, %s; dead after %s at the earliest",
		len(loop.Tiers)+1, strings.Join(parts, ", "), deadAfter(loop))
}
