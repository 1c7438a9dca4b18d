package planview

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// schedule is when a message of a queue is delivered that fails each time.
type schedule struct {
	backoff string
	retryTo string
	// limit is how often a crash may return a delivery of it, -1 where the plan does
	// not say.
	limit int64
}

// schedules writes the deliveries of each new work queue as people ask for them,
// those of one schedule together.
func (t *textWriter) schedules() {
	limits := map[string]int64{} // by work queue, new or changed
	for _, c := range t.p.Changes {
		if c.Label.Role != topology.RoleWork || c.Action == plan.Delete || c.Action == plan.Blocked {
			continue
		}
		switch object := c.After.(type) {
		case topology.Queue:
			limits[c.Name] = limitOf(object.Arguments, topology.ArgDeliveryLimit)
		case topology.Policy: // it sets the dead-lettering
			limits[c.Label.Queue] = limitOf(object.Definition, topology.KeyDeliveryLimit)
		case topology.Exchange, topology.Binding, nil: // they have no delivery limit
		}
	}
	var order []schedule
	queues, backoffs := map[schedule][]string{}, map[schedule]topology.Backoff{}
	for _, w := range t.p.WorkQueues {
		limit, shown := limits[w.Name]
		if !shown {
			continue
		}
		s := schedule{w.Backoff, w.RetryTo, limit}
		if queues[s] == nil {
			order = append(order, s)
			backoffs[s] = wanted(t.p).Schedule(w.Name)
		}
		queues[s] = append(queues[s], text.Name(w.Name))
	}
	for _, s := range order {
		elsewhere := ""
		if s.retryTo != "" {
			elsewhere = "; retries go to " + text.Name(s.retryTo)
		}
		limited := crashes(s.limit)
		if backoffs[s].Native {
			limited = "" // it counts the retries
		}
		t.line("  %s: %s%s%s", text.Some(queues[s]), backoffs[s].ScheduleText(), elsewhere, limited)
	}
	outages := t.outages(order)
	for _, line := range outages {
		t.line("  %s", line)
	}
	t.gap(len(order) + len(outages))
}

// wanted returns what schedules are worked out from.
func wanted(p plan.Plan) topology.Compiled {
	return topology.Compiled{Backoffs: p.Backoffs, Native: p.Native, WorkQueues: p.WorkQueues}
}

// outages says from which length an outage makes dead letters: of each backoff that is new or
// changes, and of queues without one. shown are the schedules of new and changed queues.
func (t *textWriter) outages(shown []schedule) []string {
	touched := map[string]bool{}
	for _, c := range t.p.Changes {
		if c.Action != plan.Blocked && (c.Label.Role == topology.RoleFailed || c.Label.Role == topology.RoleRetry) {
			touched[c.Label.Backoff] = true
		}
	}
	for _, r := range t.p.Rescheduled {
		touched[r.After.Name] = true
	}
	var out []string
	all := wanted(t.p)
	for _, b := range t.p.Backoffs {
		if !touched[b.Name] {
			continue
		}
		listed := map[string]bool{} // by the queue to which queues retry
		for _, w := range t.p.WorkQueues {
			if w.Backoff != b.Name || listed[w.RetryTo] {
				continue
			}
			listed[w.RetryTo] = true
			line := fmt.Sprintf("backoff %s: %s", text.Name(b.Name), b.OutageText())
			if w.RetryTo != "" {
				said := strings.Replace(all.Schedule(w.Name).OutageText(), " or more", " or more of both queues", 1)
				line = fmt.Sprintf("backoff %s, retries to %s: %s", text.Name(b.Name), text.Name(w.RetryTo), said)
			}
			out = append(out, line)
		}
		if len(listed) == 0 { // queues that a match covers
			out = append(out, fmt.Sprintf("backoff %s: %s", text.Name(b.Name), b.OutageText()))
		}
	}
	shows := func(backoff string) bool {
		return slices.ContainsFunc(shown, func(s schedule) bool { return s.backoff == backoff })
	}
	for _, b := range t.p.Native {
		if shows(b.Name) {
			out = append(out, fmt.Sprintf("backoff %s: %s", text.Name(b.Name), b.OutageText()))
		}
	}
	if shows(topology.NoBackoff) {
		out = append(out, "no backoff: "+topology.Backoff{}.OutageText()+"; the processor counts no failures")
	}
	return out
}

// keeps says from which age dead letters are old, a line for each age, the shortest first. It is
// said of each plan, as the broker does not tell whether the file said the same before.
func keeps(p plan.Plan) (lines []string) {
	queues := map[time.Duration][]string{}
	for _, k := range p.Keeps {
		queues[k.Age] = append(queues[k.Age], text.Name(k.Queue))
	}
	for _, age := range slices.Sorted(maps.Keys(queues)) {
		lines = append(lines, fmt.Sprintf(
			"keep: dead letters in %s are old after %s; only 'dlxctl desk park --past-keep' moves them",
			text.Some(queues[age]), text.Duration(age)))
	}
	return lines
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
	return fmt.Sprintf("; each up to %s, if consumers crash (deliveryLimit %d)", text.Count(limit+1,
		"time"), limit)
}

// rescheduled says what changes: "10s, 1m -> 10s, 2m; 10 queues; dead after 1m10s -> 2m10s".
func rescheduled(r plan.Reschedule) string {
	return fmt.Sprintf("%s -> %s; %s; dead %s -> %s", r.Before.DelaysText(), r.After.DelaysText(),
		text.Count(len(r.Queues), "queue"), r.Before.DeadText(), strings.TrimPrefix(r.After.DeadText(), "after "))
}
