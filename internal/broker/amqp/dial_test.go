package amqp_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

func TestDialExplainsConnectionErrors(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	elsewhere := brokertest.VHost(t) // where the user has no permissions
	user := target.User(t, "", ".*", ".*", ".*")
	door := endpoint(t, target).AMQP.String()
	noVHost := func(vhost string) string {
		return `vhost "` + vhost + `" on ` + door + ` does not exist, or user "` + user.Username +
			`" may not use it; run rabbitmqctl add_vhost ` + vhost +
			`, or run 'dlxctl rights' and add what it prints to the permissions of ` + user.Username
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	encrypted := strings.Replace(server.URL, "https:", "amqps:", 1)
	for name, tc := range map[string]struct {
		config broker.Config
		kind   error
		text   string
	}{
		"wrong password": {
			broker.Config{URL: strings.Replace(user.URL, user.Password, "s3cr3t-word", 1)},
			broker.ErrUnauthorized,
			`user "` + user.Username + `" is refused by ` + door +
				`; check user and password in RABBITMQ_URL or --url, or --password-file`,
		},
		"no such vhost": {
			broker.Config{URL: user.URL, VHost: "nowhere"},
			broker.ErrNoVHost,
			noVHost("nowhere"),
		},
		"no permissions on the vhost": {
			broker.Config{URL: user.URL, VHost: elsewhere.VHost},
			broker.ErrNoVHost,
			noVHost(elsewhere.VHost),
		},
		"the management port": {
			broker.Config{URL: strings.Replace(target.API, "http:", "amqp:", 1)},
			broker.ErrUnreachable,
			"what answers at " + strings.Replace(target.API, "http:", "amqp:", 1) +
				" does not speak AMQP (EOF); RABBITMQ_URL or --url needs the AMQP port, usually 5672, or amqps:// for a port with TLS",
		},
		"TLS to a port without": {
			broker.Config{URL: strings.Replace(user.URL, "amqp:", "amqps:", 1)},
			broker.ErrUnreachable,
			strings.Replace(door, "amqp:", "amqps:", 1) + " does not speak TLS; use amqp:// in RABBITMQ_URL or --url",
		},
		"an authority that is not known": {
			broker.Config{URL: encrypted},
			broker.ErrUnreachable,
			encrypted + ": its certificate is signed by an authority that this machine does not trust; pass the authority's certificate with --ca-file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := tc.config.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := amqp.Dial(t.Context(), e)
			if err == nil {
				_ = conn.Close()
			}
			if !errors.Is(err, tc.kind) {
				t.Errorf("error is not %q: %v", tc.kind, err)
			} else if err.Error() != tc.text {
				t.Errorf("error\n got %s\nwant %s", err, tc.text)
			}
		})
	}
}

// A broker that ends a login without a word has refused no user, and the password may be right:
// RabbitMQ ends a login that takes longer than 10 s, and each login when it stops.
func TestALoginThatEndsIsNotRefused(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	for name, filter := range map[string]func(client, server net.Conn){
		"the login does not arrive": func(client, server net.Conn) {
			_, _ = io.CopyN(server, client, int64(len("AMQP0091")))
			_, _ = io.Copy(io.Discard, client)
		},
		"the broker is gone": func(client, server net.Conn) {
			_, _ = io.CopyN(server, client, int64(len("AMQP0091")))
			_, _ = client.Read(make([]byte, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := endpoint(t, brokertest.NewFilter(t, target, filter))
			conn, err := amqp.Dial(t.Context(), e)
			if err == nil {
				_ = conn.Close()
			}
			want := e.AMQP.String() + " ended the connection during the login of user " + strconv.Quote(e.AMQP.User)
			if !errors.Is(err, broker.ErrUnreachable) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error is not %q, but %v", want, err)
			}
		})
	}
}

// A broker that takes no more connections of a user, or to a virtual host, answers with the code of
// a virtual host that does not exist. A program that reconnects must not end with that.
func TestALimitOfConnectionsIsNamed(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]error{
		"connection refused for user 'u': user connection limit (8) is reached":                 broker.ErrUnreachable,
		"access to vhost '/' refused for user 'u': connection limit (8) is reached":             broker.ErrUnreachable,
		"access to vhost '/' refused for user 'u': connection limit cannot be queried, timeout": broker.ErrUnreachable,
		"connection refused: node connection limit (8) is reached":                              broker.ErrUnreachable,
		"vhost limits not found": broker.ErrNoVHost,
	} {
		answer := &amqp091.Error{Code: amqp091.NotAllowed, Reason: "NOT_ALLOWED - " + reason, Server: true}
		err := amqp.ExplainDial(broker.Endpoint{}, nil, answer)
		if !errors.Is(err, want) || errors.Is(want, broker.ErrUnreachable) && !strings.Contains(err.Error(), reason) {
			t.Errorf("%q is explained as %v", reason, err)
		}
	}
}

// A broker that refuses the certificate of a client says so after the handshake, just when the
// library writes. The library then reports only that the connection is closed. A broker that is
// silent may well speak AMQP.
func TestARefusedCertificateIsNamed(t *testing.T) {
	t.Parallel()
	closed := &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}
	for ended, want := range map[error]string{
		errors.New("remote error: tls: certificate required"): "it ended the TLS handshake (tls: certificate required)",
		io.EOF: "does not speak AMQP (EOF)",
		&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}: "accepts connections and answers nothing in time",
	} {
		socket := wire.NewSocket(endsWith{err: ended})
		if _, err := socket.Read(nil); !errors.Is(err, ended) {
			t.Fatal(err)
		}
		for _, reported := range []error{amqp091.ErrClosed, closed} {
			if err := amqp.ExplainDial(broker.Endpoint{}, socket, reported); !strings.Contains(err.Error(), want) {
				t.Errorf("after %q, reported as %q: %v", ended, reported, err)
			}
		}
		_ = socket.Close()
	}
	// A broker that falls silent has refused no user, whatever the library reports.
	silent := wire.NewSocket(endsWith{err: os.ErrDeadlineExceeded})
	defer silent.Close()
	if _, err := silent.Read(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	for _, reported := range []error{amqp091.ErrCredentials, amqp091.ErrVhost} {
		if err := amqp.ExplainDial(broker.Endpoint{}, silent, reported); !errors.Is(err, broker.ErrUnreachable) {
			t.Errorf("a broker that falls silent, reported as %q: %v", reported, err)
		}
	}
	// The write failed before the alert was read, or the alert was lost with the connection.
	socket := wire.NewSocket(endsWith{err: io.EOF})
	defer socket.Close()
	reset := &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	for scheme, hinted := range map[string]bool{broker.SchemeAMQPS: true, broker.SchemeAMQP: false} {
		e := broker.Endpoint{AMQP: broker.Address{Scheme: scheme, Host: "broker:1"}}
		for _, err := range []error{amqp.ExplainDial(e, socket, reset), amqp.ExplainDial(e, socket, io.EOF)} {
			if strings.Contains(err.Error(), broker.CertificateHint) != hinted {
				t.Errorf("by %s: %v", scheme, err)
			}
		}
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	e := broker.Endpoint{AMQP: broker.Address{Scheme: broker.SchemeAMQPS, Host: "broker:1"}}
	if err := amqp.ExplainDial(e, nil, refused); strings.Contains(err.Error(), broker.CertificateHint) {
		t.Errorf("without a connection: %v", err)
	}
}

// endsWith is a connection of which nothing can be read.
type endsWith struct {
	net.Conn
	err error
}

func (c endsWith) Read([]byte) (int, error)         { return 0, c.err }
func (c endsWith) Close() error                     { return nil }
func (c endsWith) SetWriteDeadline(time.Time) error { return nil }

// A server that accepts connections and sends nothing, as a node that hangs, does not delay a
// caller whose context has ended.
func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	mute, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	e, err := broker.Config{URL: "amqp://" + mute.Addr().String() + "/"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	begin := time.Now()
	if _, err := amqp.Dial(ctx, e); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s to end", took)
	}
}

func endpoint(t *testing.T, target brokertest.Target) broker.Endpoint {
	t.Helper()
	return managementtest.Endpoint(t, target)
}

// dial returns a connection that ends with the test.
func dial(t *testing.T, target brokertest.Target) *amqp.Conn {
	t.Helper()
	conn, err := amqp.Dial(t.Context(), endpoint(t, target))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
