package retry

import "time"

// counting finds out whether the broker counts what the consumers of a work queue get. RabbitMQ 4
// counts neither deliveries to consumers of AMQP 1.0 nor what these acknowledge (rabbit_channel
// alone calls rabbit_core_metrics:channel_stats): such a queue looks as if nothing worked.
//
// A message that a processor moved and that a consumer fails again was delivered in between. The
// broker lacks deliveries if there are more of these than it counts. A single one could be noted
// twice, after a lost connection, so that there must be more than twice as many. A look at the
// queue is counted as a delivery, but acknowledges nothing: so from then on only an acknowledgement
// shows that it counts.
type counting struct {
	begin  time.Time  // after the last acknowledgement
	first  Statistics // those of that time
	failed int        // deliveries after begin that failed
	late   []int      // failed, at the last readings: statistics may lack what is newer
	lacks  bool       // deliveries
}

// saw notes a message that came to the failed queue.
func (c *counting) saw(e Evidence) {
	if e.Delivered && !c.begin.IsZero() && !e.Previous.Before(c.begin) {
		c.failed++
	}
}

// compare notes statistics, and reports whether they lack deliveries.
func (c *counting) compare(s Statistics, now time.Time) bool {
	acknowledged, again := s.Acknowledged > c.first.Acknowledged, s.Delivered < c.first.Delivered // a node has started
	if c.begin.IsZero() || acknowledged || again {
		*c = counting{begin: now, first: s, lacks: c.lacks && !acknowledged}
		return c.lacks
	}
	c.late = append(c.late, c.failed)
	if len(c.late) > lateSteps {
		c.lacks = c.lacks || int64(c.late[0]) > 2*(s.Delivered-c.first.Delivered)
		c.late = c.late[1:]
	}
	return c.lacks
}
