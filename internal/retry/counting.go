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
// shows that it counts, or as many deliveries as failed: a busy broker was late.
//
// A broker may collect statistics seldom, and not those of all channels at the same time. How late
// they are shows what came to the failed queue: the processor has counted it.
type counting struct {
	begin  time.Time  // after the last acknowledgement
	first  Statistics // those of that time
	failed int        // deliveries after begin that failed
	late   []int      // failed, at the last readings: statistics may lack what is newer
	lacks  bool       // deliveries

	seen      int   // messages that came to the failed queue
	collected int   // seen, when the broker last had collected more
	consumed  int64 // what it had then
	rose      bool  // that was at the last reading
	stale     int   // readings in a row without what was seen
	stalest   int   // most of these
}

// mostStale is how many readings statistics may be late for.
const mostStale = 24

// saw notes a message that came to the failed queue.
func (c *counting) saw(e Evidence) {
	c.seen++
	if e.Delivered && !c.begin.IsZero() && !e.Previous.Before(c.begin) {
		c.failed++
	}
}

// compare notes statistics, and reports whether they lack deliveries.
func (c *counting) compare(s Statistics, now time.Time) bool {
	c.learn(s)
	acknowledged, again := s.Acknowledged > c.first.Acknowledged, s.Delivered < c.first.Delivered // a node has started
	if c.begin.IsZero() || acknowledged || again {
		c.begin, c.first, c.failed, c.late, c.lacks = now, s, 0, nil, c.lacks && !acknowledged
		return c.lacks
	}
	c.late = append(c.late, c.failed)
	if len(c.late) > lateSteps+2*c.stalest { // the channels of consumers are collected at another time
		switch failed, counted := int64(c.late[0]), s.Delivered-c.first.Delivered; {
		case failed > 2*counted:
			c.lacks = true
		case failed > 0 && failed <= counted:
			c.lacks = false
		}
		c.late = c.late[1:]
	}
	return c.lacks
}

// learn notes for how many readings statistics have lacked what came to the failed queue.
func (c *counting) learn(s Statistics) {
	rose := s.Consumed != c.consumed
	if rose || c.rose { // a processor may see a message after it is counted
		c.consumed, c.collected, c.stale, c.rose = s.Consumed, c.seen, 0, rose
		return
	}
	if c.seen > c.collected {
		c.stale++
		c.stalest = min(max(c.stale, c.stalest), mostStale)
	}
}
