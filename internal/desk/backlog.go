package desk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
)

// backlog is what a target queue had when a batch of the ramp was sent: its consumers have the
// batch once they have read as many messages, since a queue delivers in order. What arrives later
// does not count, or a queue that is never empty would hold up the ramp forever.
type backlog struct {
	queue string
	ready int
	since time.Time // when they were counted
	// delivered is what the queue had delivered, of the first statistics that are newer than since;
	// -1 is not known yet. The broker counts the deliveries after since and before these statistics
	// as earlier ones, so that the batch waits a little longer than it must.
	delivered int64
	// unknown is since when the statistics cannot be read. Zero: they can.
	unknown time.Time
}

// newBacklog returns what a queue has at this moment.
func newBacklog(queue string, ready int) *backlog {
	return &backlog{queue: queue, ready: ready, since: time.Now(), delivered: -1}
}

// unread returns how many messages of the backlog the consumers have not read, of a queue that has
// so many ready. statistics returns how many it has delivered in all.
func (b *backlog) unread(ready int, statistics func() (int64, error)) (int, error) {
	if ready == 0 || b.ready == 0 {
		b.ready = 0
		return 0, nil
	}
	if time.Since(b.since) <= management.StatisticsLag {
		return min(b.ready, ready), nil
	}
	delivered, err := statistics()
	if err != nil {
		return min(b.ready, ready), b.lacks(err)
	}
	b.unknown = time.Time{}
	return b.left(ready, delivered), nil
}

// lacks notes that the statistics cannot be read. It fails after a minute: until then the queue may
// be empty at a moment, which shows that the batch is read.
func (b *backlog) lacks(why error) error {
	if b.unknown.IsZero() {
		b.unknown = time.Now()
	}
	if time.Since(b.unknown) < idleTime {
		return nil
	}
	return stopped(fmt.Sprintf("dlxctl cannot see whether the consumers of %s have read the batch: %s; pass --ramp none",
		text.Name(b.queue), why))
}

// left returns how many messages of the backlog the consumers have not read. It gets how many
// messages the queue has now, and how many it has delivered in all, by statistics that are newer
// than the backlog.
func (b *backlog) left(ready int, delivered int64) int {
	if b.delivered < 0 || delivered < b.delivered { // the counts of a node that was restarted begin anew
		b.delivered = delivered
	}
	if delivered-b.delivered >= int64(b.ready) {
		b.ready = 0
	}
	return min(b.ready, ready)
}

// counts are numbers of messages by target queue.
type counts map[string]int

func (c counts) total() (n int) {
	for _, has := range c {
		n += has
	}
	return n
}

// names names the queues that have messages.
func (c counts) names() string {
	var list []string
	for _, queue := range slices.Sorted(maps.Keys(c)) {
		if c[queue] > 0 {
			list = append(list, text.Name(queue))
		}
	}
	return text.ListFirst(list, 5)
}

// String says what the queues hold.
func (c counts) String() string {
	if len(c) == 1 {
		return fmt.Sprintf("%s holds %s", c.names(), text.Count(c.total(), "message"))
	}
	fullest := ""
	for queue, n := range c {
		if fullest == "" || n > c[fullest] || n == c[fullest] && queue < fullest {
			fullest = queue
		}
	}
	return fmt.Sprintf("the target queues hold %s (%d of them in %s)",
		text.Count(c.total(), "message"), c[fullest], text.Name(fullest))
}

// backlogs returns a function that counts the messages that the target queues have when it is first
// called and their consumers have not read yet.
func (x *sender) backlogs() func(context.Context) (counts, error) {
	list := make(map[string]*backlog, len(x.router.drained))
	return func(ctx context.Context) (counts, error) {
		return x.counted(func(queue string) (int, error) { return x.behind(ctx, list, queue) })
	}
}

// behind returns how many messages of its backlog a queue still has. The first call for a queue
// begins its backlog.
func (x *sender) behind(ctx context.Context, list map[string]*backlog, queue string) (int, error) {
	ready, err := x.ready(queue)
	if err != nil {
		return 0, err
	}
	b := list[queue]
	if b == nil {
		list[queue] = newBacklog(queue, ready)
		return ready, nil
	}
	return b.unread(ready, func() (int64, error) { return x.worker.desk.Management.Delivered(ctx, queue) })
}
