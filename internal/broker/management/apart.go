package management

import (
	"context"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
)

// apartAtOnce is how many quorum queues are declared at a time.
const apartAtOnce = 8

// apart are connections on which quorum queues are declared, one at a time on each. A busy node may
// fail to do so, and then closes the connection (541 INTERNAL_ERROR: the queue had no leader within
// 5 seconds; rabbit_quorum_queue:start_cluster, 4.3.6). On one connection, such a failure would
// free the lock, and end the other declarations without an answer.
type apart struct {
	endpoint broker.Endpoint
	slots    chan struct{}
	idle     chan *amqp.Conn
}

func newApart(e broker.Endpoint) *apart {
	e.ConnectionName = "dlxctl declares quorum queues"
	return &apart{e, make(chan struct{}, apartAtOnce), make(chan *amqp.Conn, apartAtOnce)}
}

// do lets change use a connection of its own, once one is free. It fails without a change if the
// connection of UseAMQP has ended meanwhile. A change may reach the broker later than that, and
// must do no harm then.
func (m *Client) do(ctx context.Context, change func(*amqp.Conn) error) error {
	a := m.apart
	a.slots <- struct{}{}
	defer func() { <-a.slots }()
	var conn *amqp.Conn
	select {
	case conn = <-a.idle:
	default:
	}
	if conn == nil || conn.Closed() {
		var err error
		if conn, err = amqp.Dial(ctx, a.endpoint); err != nil {
			return err
		}
	}
	if err := m.stillConnected(); err != nil { // last, as a new connection takes time
		a.idle <- conn
		return err
	}
	err := change(conn)
	if conn.Closed() {
		_ = conn.Close() // ends what belongs to it
		return err
	}
	a.idle <- conn // there is room: no more are open than slots
	return err
}

// close closes the connections. Nothing is in progress on them.
func (a *apart) close() {
	for {
		select {
		case conn := <-a.idle:
			_ = conn.Close()
		default:
			return
		}
	}
}
