package processor

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// mostTold is how many bytes of names and times a connection tells. Before a broker knows the
	// client, a frame may have 4,096, in which the user's password is too (RabbitMQ before 4.1).
	mostTold = 2000
	// tableEntry is how many bytes an entry of a table has next to a name and a text.
	tableEntry = 6
	// announceTime is how long the broker may take to open a connection.
	announceTime = 10 * time.Second
)

// announce tells the broker, until ctx ends, which work queues are in outage and since when: by the
// properties of a connection that is open meanwhile and does nothing else. So it touches no
// message, needs no right, and is over when this process is killed. What changes takes another
// connection, at most one in a tick.
func (o *outages) announce(ctx context.Context) {
	var conn *amqp.Conn // nil: there is nothing to tell, or it could not be opened
	end := func() {
		if conn != nil {
			_ = conn.Close() // nothing is in flight on it
		}
	}
	defer func() { end() }()
	var told amqp091.Table
	failed := false
	tick := time.NewTicker(broker.Tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := o.told()
		if conn == nil && now == nil || conn != nil && !conn.Closed() && reflect.DeepEqual(now, told) {
			continue
		}
		next, err := o.open(ctx, now)
		end() // once the next one is open, so that there is no gap, and also if that failed
		conn, told = next, now
		if err != nil && !failed && ctx.Err() == nil {
			o.Log.WarnContext(ctx, "cannot announce outages to the broker", "error", err)
		}
		failed = err != nil
	}
}

// open opens a connection that tells this. It opens none if there is nothing to tell.
func (o *outages) open(ctx context.Context, told amqp091.Table) (*amqp.Conn, error) {
	if told == nil {
		return nil, nil
	}
	opening, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	e := o.endpoint("", "outages")
	e.Properties = told
	return amqp.Dial(opening, e)
}

// told returns which work queues are in outage, and since when: the longest outages, as far as they
// fit. Nil: there is none.
func (o *outages) told() amqp091.Table {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*deliveries
	for _, q := range o.queues {
		if !q.since.IsZero() {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b *deliveries) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.work.Name, b.work.Name))
	})
	var told amqp091.Table
	left := mostTold
	for _, q := range out {
		at := q.since.UTC().Format(time.RFC3339)
		if left -= len(q.work.Name) + len(at) + tableEntry; left < 0 {
			break
		}
		name := topology.PropertyInOutageSince
		if q.before {
			name = topology.PropertyInOutageSinceBefore
		}
		if told == nil {
			told = amqp091.Table{}
		}
		table, _ := told[name].(amqp091.Table)
		if table == nil {
			table = amqp091.Table{}
			told[name] = table
		}
		table[q.work.Name] = at
	}
	return told
}
