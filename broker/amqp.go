package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// frameOverhead is what a frame has beside its payload: type, channel, size
// and the octet at its end.
const frameOverhead = 8

// Conn is an AMQP connection. It does not come back by itself: whoever dialled
// it knows best what to do about what was under way.
type Conn struct {
	conn     *amqp.Connection
	endpoint Endpoint
	socket   *socket
	gate     *gate
	blocked  atomic.Bool
	// Blocked tells when the broker stops and starts taking publishings from
	// this connection, because of an alarm. It is closed with the connection.
	Blocked <-chan Blocking
	spare   chan *amqp.Channel // opened to declare, and free again
}

// spareChannels is how many channels for declaring are kept: as many as changes
// are carried out at a time.
const spareChannels = 32

// Blocking says whether the broker blocks a connection, and why.
type Blocking struct {
	Active bool
	Reason string
}

// Dial connects, to publish. Its errors are one line with the remedy; they wrap
// ErrUnreachable, ErrUnauthorized or ErrNoVHost.
func Dial(ctx context.Context, e Endpoint) (*Conn, error) {
	return dial(ctx, e, 0)
}

// DialToConsume connects, to consume: it takes messages whose headers the broker
// has made too large for a frame. Otherwise it is like Dial.
func DialToConsume(ctx context.Context, e Endpoint) (*Conn, error) {
	return dial(ctx, e, extraFrame)
}

// dial connects. Frames from the broker may be larger than agreed by extra bytes;
// nothing is published over such a connection.
func dial(ctx context.Context, e Endpoint, extra uint32) (*Conn, error) {
	var wire *socket
	gate := newGate()
	inTime := func() bool { return true } // ends the watch over ctx; reports whether that has not ended
	properties := amqp.NewConnectionProperties()
	if e.ConnectionName != "" {
		properties.SetClientConnectionName(e.ConnectionName)
	}
	config := amqp.Config{
		SASL:       []amqp.Authentication{&amqp.PlainAuth{Username: e.AMQP.User, Password: e.AMQP.Password()}},
		Vhost:      e.VHost,
		Heartbeat:  10 * time.Second,
		FrameSize:  amqp.FrameSizeUnlimited, // the broker's limit holds
		Properties: properties,
		Dial: func(network, _ string) (net.Conn, error) {
			conn, err := open(ctx, network, e)
			if err != nil {
				return nil, err
			}
			wire = newSocket(conn)
			// What accepts a connection and then says nothing must not hold up
			// whoever is told to stop.
			inTime = context.AfterFunc(ctx, func() { _ = conn.Close() })
			return newWideConn(wire, extra, gate), nil
		},
	}
	if e.Heartbeat > 0 {
		config.Heartbeat = e.Heartbeat
	}
	// The scheme is amqp even for amqps: open has spoken TLS already.
	conn, err := amqp.DialConfig(schemeAMQP+"://"+e.AMQP.Host, config)
	if !inTime() && err == nil { // it is closed, or will be
		_ = conn.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, explainDial(e, err)
	}
	if err := e.accept(served(conn, "version"), served(conn, "cluster_name")); err != nil {
		_ = conn.Close() // nothing was done on it
		return nil, err
	}
	c := &Conn{conn: conn, endpoint: e, spare: make(chan *amqp.Channel, spareChannels), socket: wire, gate: gate}
	c.Blocked = c.watchBlocked()
	return c, nil
}

// served gives what the broker says of itself when a client connects. Empty: it does
// not say.
func served(conn *amqp.Connection, property string) string {
	text, _ := conn.Properties[property].(string)
	return text
}

// open connects to the broker, with TLS where the URL asks for it.
func open(ctx context.Context, network string, e Endpoint) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, network, e.AMQP.Host)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil { // for the handshake; the library lifts it
		return nil, errors.Join(err, conn.Close())
	}
	if e.AMQP.Scheme != schemeAMQPS {
		return conn, nil
	}
	config := e.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(e.AMQP.Host) // it was read and checked
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// explainDial turns what the broker or the network answered into words.
func explainDial(e Endpoint, err error) error {
	var refused *amqp.Error
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrSASL):
		return tell(ErrUnauthorized, "user %q is refused by %s: check user and password in RABBITMQ_URL or --url, or --password-file", e.AMQP.User, e.AMQP)
	case errors.Is(err, amqp.ErrVhost), errors.As(err, &refused) && refused.Code == amqp.NotAllowed:
		return tell(ErrNoVHost, "vhost %q on %s does not exist, or user %q may not use it: rabbitmqctl add_vhost %s, or %s",
			e.VHost, e.AMQP, e.AMQP.User, shellWord(e.VHost), giveRights(e.AMQP.User))
	case explainTLS(err) != "":
		return tell(ErrUnreachable, "%s: %s", e.AMQP, explainTLS(err))
	case errors.As(err, &record):
		return tell(ErrUnreachable, "%s speaks no TLS: write amqp:// in RABBITMQ_URL or --url", e.AMQP)
	case errors.As(err, &refused) && !refused.Server: // something hung up, or its first words were not AMQP
		return tell(ErrUnreachable, "what answers at %s does not speak AMQP (%s): is that the management port, or one for amqps://? RABBITMQ_URL or --url takes the AMQP port, 5672 as a rule", e.AMQP, oneLine(refused.Reason))
	case errors.As(err, &refused):
		return tell(ErrUnreachable, "%s refuses the connection: %s", e.AMQP, oneLine(refused.Reason))
	default:
		return tell(ErrUnreachable, "nothing that speaks AMQP answers at %s (%s): check RABBITMQ_URL or --url, and whether the broker runs", e.AMQP, oneLine(innermost(err).Error()))
	}
}

func (c *Conn) watchBlocked() <-chan Blocking {
	in := c.conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	out := make(chan Blocking, 1)
	go func() {
		defer close(out)
		for b := range in {
			c.blocked.Store(b.Active)
			c.socket.block(b.Active)
			select { // only the newest counts
			case <-out:
			default:
			}
			out <- Blocking{Active: b.Active, Reason: b.Reason}
		}
	}()
	return out
}

// FrameMax is the size of the largest content header that the broker takes, in
// bytes, without what the frame around it needs. Zero means no limit.
func (c *Conn) FrameMax() int {
	if c.conn.Config.FrameSize <= 0 {
		return 0
	}
	return c.conn.Config.FrameSize - frameOverhead
}

// Closed reports whether the connection is over.
func (c *Conn) Closed() bool { return c.conn.IsClosed() }

// closeTime is how long the broker has to answer to a close. A broker that
// blocks the connection, because of an alarm, does not read it.
const closeTime = 3 * time.Second

// Close ends the connection and everything on it. What was not acknowledged,
// the broker delivers again; what was not confirmed is in doubt. It ends a
// publish that hangs, because the broker takes nothing.
func (c *Conn) Close() error {
	deadline := time.Now().Add(closeTime)
	c.gate.drop() // or the answer would wait behind deliveries that nobody takes
	// The library sets it too, but waits for a lock before. A publish that has hung for
	// longer than its heartbeats may (v1.16.0, Connection.shutdown) keeps that for ever.
	_ = c.socket.SetDeadline(deadline) // a connection that is over says so below
	if err := c.conn.CloseDeadline(deadline); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return err
	}
	return nil
}

// CutOff closes connections once ctx has ended and grace is over: a publish hangs in
// a connection that the broker blocks, because of an alarm, when no socket takes any
// more, and sees nothing of ctx. Nothing is lost: what was not acknowledged, the broker
// delivers again. end ends the wait, and reports whether the connections were closed.
func CutOff(ctx context.Context, grace time.Duration, conns ...*Conn) (end func() (cut bool)) {
	over, closed := make(chan struct{}), make(chan bool, 1)
	go func() {
		cut := false
		select {
		case <-over:
		case <-ctx.Done():
			select {
			case <-over:
			case <-time.After(grace):
				cut = true
				for _, c := range conns {
					_ = c.Close() // it may be over already
				}
			}
		}
		closed <- cut
	}()
	return func() bool { close(over); return <-closed }
}

// Queue gives how many messages are ready in a queue. It fails with ErrNotFound
// if there is no such queue. The broker says 0 for a quorum queue whose leader has
// not answered for 250 ms (rabbit_quorum_queue:stat/1, 3.10.8 to 4.3.6), so it is
// asked twice; that a queue is empty takes more to prove.
func (c *Conn) Queue(name string) (int, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return 0, fmt.Errorf("open a channel: %w", err)
	}
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err == nil && q.Messages == 0 {
		q, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	}
	if err != nil {
		return 0, explainChannel(err) // the broker has closed the channel
	}
	return q.Messages, ch.Close()
}

// Holds gives how many messages are ready in a queue, and how many consumers it has. It
// fails with ErrNotFound if there is no such queue. Zeros prove nothing: see Queue.
func (c *Conn) Holds(name string) (ready, consumers int, err error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return 0, 0, fmt.Errorf("open a channel: %w", err)
	}
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err == nil && q.Messages == 0 && q.Consumers == 0 {
		q, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	}
	if err != nil {
		return 0, 0, explainChannel(err) // the broker has closed the channel
	}
	return q.Messages, q.Consumers, ch.Close()
}

// HasExchange reports whether there is an exchange of this name. It needs no
// permission.
func (c *Conn) HasExchange(name string) (bool, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	// The broker does not compare the kind when it only looks.
	err = explainChannel(ch.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil))
	if errors.Is(err, ErrNotFound) {
		return false, nil // the broker has closed the channel
	}
	if err != nil {
		return false, err
	}
	return true, ch.Close()
}

// Empty reports whether basic.get finds nothing ready in a queue. A message
// that it finds goes back to its place at once: nothing is acknowledged.
func (c *Conn) Empty(queue string) (bool, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	m, found, err := ch.Get(queue, false)
	if err != nil {
		return false, explainChannel(err)
	}
	if found {
		if err := m.Nack(false, true); err != nil {
			return false, err
		}
	}
	return !found, ch.Close()
}

// explainChannel gives sentinels for the channel exceptions that callers tell
// apart.
func explainChannel(err error) error {
	var e *amqp.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &ClosedError{Code: e.Code, Reason: oneLine(e.Reason), Broker: e.Server}
	switch e.Code {
	case amqp.NotFound:
		out.kind = ErrNotFound
	case amqp.AccessRefused:
		out.kind = ErrForbidden
		if strings.Contains(e.Reason, reasonExclusive) {
			out.kind = ErrInUse
		}
	}
	return out
}

// MayPublish reports whether the user may publish to an exchange. Nothing is
// published.
func (c *Conn) MayPublish(exchange string) (bool, error) {
	refused, err := c.refuses(plan.Right{Permission: plan.Write, Kind: topology.KindExchange, Name: exchange}, "")
	return !refused, err
}
