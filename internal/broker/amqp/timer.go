package amqp

import (
	"context"
	"errors"
	"net/url"
	"time"

	amqp10 "github.com/Azure/go-amqp"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/topology"
)

// timerCredit is how many messages of a timer may be on their way to a reader. Each is answered at
// once.
const timerCredit = 64

// idleTime10 is how long a connection of AMQP 1.0 may be silent. Both sides send something before
// that.
const idleTime10 = 20 * time.Second

// ReadTimer reads a queue over AMQP 1.0 until ctx ends, and gives each message back with the time
// that its header names (topology.HeaderDelayDue): RabbitMQ 4.3 holds it until then. What is due,
// or has no such header, RabbitMQ dead-letters. It calls reading once the broker delivers. Its
// error says why it ended; it wraps ErrUnreachable if there was no connection.
//
// It acknowledges nothing. Until the broker has handled an answer the message is in the queue as it
// was, and when the connection ends, all that is not answered returns there: so no message is lost,
// wherever this ends, and none is copied, as the broker itself dead-letters.
func ReadTimer(ctx context.Context, e broker.Endpoint, queue string, reading func()) error {
	conn, err := dial10(ctx, e)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return explain10(e, err)
	}
	address := "/queues/" + url.PathEscape(queue)
	receiver, err := session.NewReceiver(ctx, address, &amqp10.ReceiverOptions{Credit: timerCredit})
	if err != nil {
		return explain10(e, err)
	}
	reading()
	for {
		m, err := receiver.Receive(ctx, nil)
		if err != nil {
			return explain10(e, err)
		}
		if err := receiver.ModifyMessage(ctx, m, timed(m, time.Now())); err != nil {
			return explain10(e, err)
		}
	}
}

// timed says what the broker does with a message of a timer.
func timed(m *amqp10.Message, now time.Time) *amqp10.ModifyMessageOptions {
	due, ok := topology.Integer(m.ApplicationProperties[topology.HeaderDelayDue])
	if !ok || due <= now.UnixMilli() {
		return &amqp10.ModifyMessageOptions{UndeliverableHere: true}
	}
	return &amqp10.ModifyMessageOptions{Annotations: amqp10.Annotations{
		topology.HeaderDeliveryTime: min(due, now.Add(topology.LongestTimer).UnixMilli()),
	}}
}

// dial10 connects over AMQP 1.0.
func dial10(ctx context.Context, e broker.Endpoint) (*amqp10.Conn, error) {
	e = e.Renew()
	socket, err := open(ctx, "tcp", e)
	if err != nil {
		return nil, explainDial(e, nil, err)
	}
	conn, err := amqp10.NewConn(ctx, socket, &amqp10.ConnOptions{
		HostName: "vhost:" + e.VHost, SASLType: amqp10.SASLTypePlain(e.AMQP.User, e.AMQP.Password()),
		ContainerID: e.ConnectionName, IdleTimeout: idleTime10,
		Properties: map[string]any{"connection_name": e.ConnectionName},
	})
	if err != nil {
		_ = socket.Close()
		return nil, explain10(e, err)
	}
	if err := socket.SetDeadline(time.Time{}); err != nil { // that of the handshake, see open
		return nil, errors.Join(err, conn.Close())
	}
	// A broker that reads nothing must not delay the caller when ctx ends.
	context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Now().Add(closeTime)) })
	version, _ := conn.Properties()["version"].(string)
	cluster, _ := conn.Properties()["cluster_name"].(string)
	if err := e.Check(version, cluster); err != nil {
		_ = conn.Close() // nothing was done on it
		return nil, err
	}
	return conn, nil
}

// explain10 turns what ended a connection of AMQP 1.0 into an error for the user.
func explain10(e broker.Endpoint, err error) error {
	why := broker.OneLine(err.Error())
	switch refused, is := errors.AsType[*amqp10.Error](err); {
	case is && refused.Condition == amqp10.ErrCondNotFound:
		return broker.Errorf(broker.ErrNotFound, "over AMQP 1.0: %s", why)
	case is && refused.Condition == amqp10.ErrCondUnauthorizedAccess:
		return broker.Errorf(broker.ErrForbidden, "over AMQP 1.0: %s", why)
	}
	return broker.Errorf(broker.ErrUnreachable, "%s over AMQP 1.0: %s", e.AMQP, why)
}
