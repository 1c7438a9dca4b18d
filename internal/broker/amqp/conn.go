// Package amqp connects to a broker over AMQP: it publishes, consumes, declares and deletes
// objects, holds locks, and probes rights.
package amqp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// frameOverhead is the size of a frame without its payload: type, channel, size and the octet at
// its end.
const frameOverhead = 8

// Conn is an AMQP connection. It does not reconnect by itself: the code that dialed it knows best
// what to do about the messages in flight.
type Conn struct {
	conn     *amqp091.Connection
	endpoint broker.Endpoint
	socket   *wire.Socket
	gate     *wire.Gate
	blocked  atomic.Bool
	// Blocked receives a value when the broker stops and starts accepting messages on this
	// connection, because of an alarm. It is closed with the connection.
	Blocked <-chan Blocking
	spare   chan *amqp091.Channel // open channels for declaring, idle
	running sync.WaitGroup        // the goroutines of the connection and of its publishers
	// starting is held while a goroutine is started, and while Close waits for them: a publisher
	// may be opened at that moment. The goroutines do not take it.
	starting sync.Mutex
	locks    sync.Map // the locks that the connection holds, as lock, by their names
}

// spareChannels is how many idle channels for declaring are kept: as many as changes are carried
// out at a time.
const spareChannels = 32

// Blocking is whether the broker blocks a connection, and why.
type Blocking struct {
	Active bool
	Reason string
}

// Dial connects in order to publish. Its errors are one line with the fix; they wrap
// ErrUnreachable, ErrUnauthorized or ErrNoVHost.
func Dial(ctx context.Context, e broker.Endpoint) (*Conn, error) {
	return dial(ctx, e, 0)
}

// DialToConsume connects in order to consume: the connection accepts messages whose headers the
// broker has made too large for a frame. Otherwise it is like Dial.
func DialToConsume(ctx context.Context, e broker.Endpoint) (*Conn, error) {
	return dial(ctx, e, wire.ExtraFrame)
}

// dial connects. Frames from the broker may exceed the negotiated size by extra bytes; nothing is
// published over such a connection.
func dial(ctx context.Context, e broker.Endpoint, extra uint32) (*Conn, error) {
	e = e.Renew()
	var socket *wire.Socket
	gate := wire.NewGate()
	inTime := func() bool { return true } // stops the watcher, and reports whether ctx was still alive
	properties := amqp091.NewConnectionProperties()
	if e.ConnectionName != "" {
		properties.SetClientConnectionName(e.ConnectionName)
	}
	maps.Copy(properties, e.Properties)
	plain := amqp091.PlainAuth{Username: e.AMQP.User, Password: e.AMQP.Password()}
	config := amqp091.Config{
		SASL:       []amqp091.Authentication{&login{PlainAuth: plain, properties: properties}},
		Vhost:      e.VHost,
		Heartbeat:  10 * time.Second,
		FrameSize:  amqp091.FrameSizeUnlimited, // the broker's limit applies
		Properties: properties,
		Dial: func(network, _ string) (net.Conn, error) {
			conn, err := open(ctx, network, e)
			if err != nil {
				return nil, err
			}
			socket = wire.NewSocket(conn)
			// A server that accepts a connection and then sends nothing must not delay the caller
			// when ctx ends.
			inTime = context.AfterFunc(ctx, func() { _ = conn.Close() })
			return wire.NewConn(socket, extra, gate), nil
		},
	}
	if e.Heartbeat > 0 {
		config.Heartbeat = e.Heartbeat
	}
	// The scheme is amqp even for amqps: open has done the TLS handshake already.
	conn, err := amqp091.DialConfig(broker.SchemeAMQP+"://"+e.AMQP.Host, config)
	if !inTime() && err == nil { // it is closed, or will be
		_ = conn.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, explainDial(e, socket, err)
	}
	if err := e.Check(served(conn, "version"), served(conn, "cluster_name")); err != nil {
		_ = conn.Close() // nothing was done on it
		return nil, err
	}
	c := &Conn{conn: conn, endpoint: e, spare: make(chan *amqp091.Channel, spareChannels), socket: socket, gate: gate}
	c.Blocked = c.watchBlocked()
	return c, nil
}

// PasswordChanged reports whether a new connection would log in with another password than this
// one: the file that holds it has changed.
func (c *Conn) PasswordChanged() bool {
	return c.endpoint.Renew().AMQP.Password() != c.endpoint.AMQP.Password()
}

// login is a login with a user and a password to which a broker answers in words. RabbitMQ tells a
// client that it is refused only if the client says that it expects it (the capability
// authentication_failure_close); otherwise it hangs up, as it does when it stops, or when a login
// takes longer than its handshake_timeout, and a right password would look wrong.
type login struct {
	amqp091.PlainAuth
	properties amqp091.Table // of the client
}

// Response returns the user and the password for the broker. The library has set the capabilities
// of the client just before, and offers no other place to add one.
func (l *login) Response() string {
	if capabilities, ok := l.properties["capabilities"].(amqp091.Table); ok {
		capabilities["authentication_failure_close"] = true
	}
	return l.PlainAuth.Response()
}

// received returns what ended the connection while the library opened it, if the library reports
// only that it is closed: it does so if it writes just when it has read that the peer hung up, as a
// broker does that refuses the certificate of a client. The library has closed the socket then, or
// is about to.
func received(socket *wire.Socket, err error) error {
	closed := errors.Is(err, amqp091.ErrClosed) || errors.Is(err, net.ErrClosed)
	if socket == nil || socket.Ended() == nil || !closed {
		return err
	}
	return &amqp091.Error{Code: amqp091.FrameError, Reason: socket.Ended().Error()}
}

// served returns a property that the broker announces when a client connects. It is empty if the
// broker does not announce it.
func served(conn *amqp091.Connection, property string) string {
	text, _ := conn.Properties[property].(string)
	return text
}

// open connects to the broker, with TLS where the URL asks for it.
func open(ctx context.Context, network string, e broker.Endpoint) (net.Conn, error) {
	dialer := net.Dialer{Timeout: cmp.Or(e.ConnectTime, 10*time.Second)}
	conn, err := dialer.DialContext(ctx, network, e.AMQP.Host)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil { // for the handshake; the library lifts it
		return nil, errors.Join(err, conn.Close())
	}
	if e.AMQP.Scheme != broker.SchemeAMQPS {
		return conn, nil
	}
	config := e.TLS.Clone()
	if config.ServerName = e.AMQP.ServerName; config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(e.AMQP.Host) // Resolve has checked it
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// connectionLimit is in the answer of a broker where a user, a virtual host or a node may have no
// more connections, or where the broker cannot read their number now (rabbit_reader, 3.10 to 4.3).
// Its code is that of a virtual host that does not exist, but the next try may succeed.
const connectionLimit = "connection limit "

// explainDial turns an answer of the broker or an error of the network into an error for the user.
// The socket is nil if there is no connection.
func explainDial(e broker.Endpoint, socket *wire.Socket, err error) error {
	err = received(socket, err)
	// A server may refuse a certificate after the handshake, and its alert be lost with the
	// connection: a write may fail before it is read.
	certificate := ""
	if socket != nil && e.AMQP.Scheme == broker.SchemeAMQPS {
		certificate = "; " + broker.CertificateHint
	}
	var refused *amqp091.Error
	var record tls.RecordHeaderError
	silent := socket != nil && socket.Ended() != nil && timedOut(socket.Ended().Error())
	switch {
	case silent, errors.As(err, &refused) && !refused.Server && timedOut(refused.Reason):
		return broker.Errorf(broker.ErrUnreachable,
			"%s accepts connections and answers nothing in time; check that the broker is not overloaded or hanging, and that nothing in between swallows data", e.AMQP)
	case errors.Is(err, amqp091.ErrCredentials), errors.Is(err, amqp091.ErrVhost):
		// The library reports both where it was answered nothing. The broker would have said so.
		return broker.Errorf(broker.ErrUnreachable,
			"%s ended the connection during the login of user %q without saying why; check that the broker is not stopping or overloaded; by default it allows 10 s for a login",
			e.AMQP, e.AMQP.User)
	case errors.Is(err, amqp091.ErrSASL), errors.As(err, &refused) && refused.Code == amqp091.AccessRefused:
		return broker.Errorf(broker.ErrUnauthorized,
			"user %q is refused by %s; check user and password in %s%s", e.AMQP.User,
			e.AMQP, e.Words.URL(), e.Words.OrPassword())
	case errors.As(err, &refused) && refused.Code == amqp091.NotAllowed &&
		strings.Contains(refused.Reason, connectionLimit):
		return broker.Errorf(broker.ErrUnreachable, "%s refuses the connection: %s; raise the limit, or end other connections",
			e.AMQP, broker.OneLine(refused.Reason))
	case errors.As(err, &refused) && refused.Code == amqp091.NotAllowed:
		return broker.Errorf(broker.ErrNoVHost,
			"vhost %q on %s does not exist, or user %q may not use it; run rabbitmqctl add_vhost %s, or %s",
			e.VHost, e.AMQP, e.AMQP.User, text.ShellQuote(e.VHost), broker.GrantHint(e.AMQP.User))
	case broker.TLSProblem(err) != "":
		return broker.Errorf(broker.ErrUnreachable, "%s: %s", e.AMQP, broker.TLSProblem(err))
	case errors.As(err, &record):
		return broker.Errorf(broker.ErrUnreachable, "%s does not speak TLS; use amqp:// in %s", e.AMQP, e.Words.URL())
	case errors.As(err, &refused) && !refused.Server: // the peer hung up, or did not answer in AMQP
		return broker.Errorf(broker.ErrUnreachable,
			"what answers at %s does not speak AMQP (%s); %s needs the AMQP port, usually 5672, or amqps:// for a port with TLS%s",
			e.AMQP, broker.OneLine(refused.Reason), e.Words.URL(), certificate)
	case errors.As(err, &refused):
		return broker.Errorf(broker.ErrUnreachable, "%s refuses the connection: %s", e.AMQP, broker.OneLine(refused.Reason))
	default:
		return broker.Errorf(broker.ErrUnreachable,
			"nothing that speaks AMQP answers at %s (%s); check %s, and whether the broker is running%s",
			e.AMQP, broker.OneLine(broker.RootCause(err).Error()), e.Words.URL(), certificate)
	}
}

func (c *Conn) watchBlocked() <-chan Blocking {
	in := c.conn.NotifyBlocked(make(chan amqp091.Blocking, 1))
	out := make(chan Blocking, 1)
	c.running.Go(func() {
		defer close(out)
		for b := range in {
			c.blocked.Store(b.Active)
			c.socket.Block(b.Active)
			select { // only the newest counts
			case <-out:
			default:
			}
			out <- Blocking{Active: b.Active, Reason: b.Reason}
		}
	})
	return out
}

// Address returns the AMQP address of the broker.
func (c *Conn) Address() broker.Address { return c.endpoint.AMQP }

// FrameMax returns the size of the largest content header that the broker accepts, in bytes,
// without the overhead of the frame. Zero means no limit.
func (c *Conn) FrameMax() int {
	if c.conn.Config.FrameSize <= 0 {
		return 0
	}
	return c.conn.Config.FrameSize - frameOverhead
}

// BelievesDeaths reports whether the broker believes an x-death header that a publisher wrote, as
// RabbitMQ before 4.0 does. Such a broker ends the connection to which it is to deliver a message
// whose count of deaths is not an integer (measured on 3.10.8).
func (c *Conn) BelievesDeaths() bool {
	return !topology.State{Version: served(c.conn, "version")}.AtLeast(4, 0)
}

// Closed reports whether the connection has ended.
func (c *Conn) Closed() bool { return c.conn.IsClosed() }

// Ended returns a channel that is closed when the connection has ended, after a value if the broker
// or the network ended it.
func (c *Conn) Ended() <-chan *amqp091.Error {
	return c.conn.NotifyClose(make(chan *amqp091.Error, 1))
}

// closeTime is how long the broker has to answer to a close. A broker that blocks the connection,
// because of an alarm, does not read it.
const closeTime = 3 * time.Second

// Close ends the connection, everything on it, and the goroutines that belong to it. The broker
// redelivers what was not acknowledged; what was not confirmed is in doubt. Close also ends a
// publish that hangs because the broker accepts nothing.
func (c *Conn) Close() error {
	deadline := time.Now().Add(closeTime)
	c.gate.Drop() // or the answer would wait behind unread deliveries
	// The library sets it too, but waits for a lock before. A publish that has hung for longer than
	// its heartbeats may (v1.16.0, Connection.shutdown) keeps that lock forever.
	_ = c.socket.SetDeadline(deadline) // a closed connection reports it below
	err := c.conn.CloseDeadline(deadline)
	c.starting.Lock()
	c.running.Wait() // the library has closed, or is about to close, the channels that they read
	c.starting.Unlock()
	if err != nil && !errors.Is(err, amqp091.ErrClosed) {
		return err
	}
	return nil
}

// CloseAfter closes connections, all at the same time, once ctx has ended and the grace period is
// over. It is for a publish that hangs because the broker blocks the connection, after an alarm,
// when the sockets are full: such a publish does not see ctx. Nothing is lost: the broker
// redelivers what was not acknowledged. end stops the wait, and reports whether the connections
// were closed.
func CloseAfter(ctx context.Context, grace time.Duration, conns ...*Conn) (end func() (cut bool)) {
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
				var closing sync.WaitGroup
				for _, c := range conns {
					closing.Go(func() { _ = c.Close() }) // it may have ended already
				}
				closing.Wait()
			}
		}
		closed <- cut
	}()
	return func() bool { close(over); return <-closed }
}
