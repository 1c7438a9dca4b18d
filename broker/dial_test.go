package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
)

func TestDialSaysWhatKeepsItOut(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	elsewhere := brokertest.VHost(t) // where the user has no permissions
	user := target.User(t, "", ".*", ".*", ".*")
	door := "amqp://" + amqpHost(t, target)
	noVHost := func(vhost string) string {
		return `vhost "` + vhost + `" on ` + door + ` does not exist, or user "` + user.Username + `" may not use it: rabbitmqctl add_vhost ` + vhost +
			`, or run 'dlxctl rights' and give ` + user.Username + ` what it prints`
	}
	encrypted := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{selfSigned(t).pair}}) //nolint:gosec // a test server
	encrypted = strings.Replace(encrypted, "https:", "amqps:", 1)
	for name, tc := range map[string]struct {
		config broker.Config
		kind   error
		text   string
	}{
		"wrong password": {
			broker.Config{URL: withSecret(t, user.URL, user.Username)},
			broker.ErrUnauthorized,
			`user "` + user.Username + `" is refused by ` + door + `: check user and password in RABBITMQ_URL or --url, or --password-file`,
		},
		"no such vhost":               {broker.Config{URL: user.URL, VHost: "nowhere"}, broker.ErrNoVHost, noVHost("nowhere")},
		"no permissions on the vhost": {broker.Config{URL: user.URL, VHost: elsewhere.VHost}, broker.ErrNoVHost, noVHost(elsewhere.VHost)},
		"the management port": {
			broker.Config{URL: strings.Replace(target.API, "http:", "amqp:", 1)},
			broker.ErrUnreachable,
			"what answers at " + strings.Replace(target.API, "http:", "amqp:", 1) + " does not speak AMQP (EOF): is that the management port, or one for amqps://? RABBITMQ_URL or --url takes the AMQP port, 5672 as a rule",
		},
		"TLS to a port without": {
			broker.Config{URL: strings.Replace(user.URL, "amqp:", "amqps:", 1)},
			broker.ErrUnreachable,
			strings.Replace(door, "amqp:", "amqps:", 1) + " speaks no TLS: write amqp:// in RABBITMQ_URL or --url",
		},
		"an authority that is not known": {
			broker.Config{URL: encrypted},
			broker.ErrUnreachable,
			encrypted + ": its certificate is signed by an authority that is not trusted here: name the authority's certificate with --ca-file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := tc.config.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := broker.Dial(t.Context(), e)
			if err == nil {
				_ = conn.Close()
			}
			told(t, err, tc.kind, tc.text, user.Password)
		})
	}
}

// What accepts connections and says nothing, as a node that hangs, does not hold
// up whoever is told to stop.
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
	if _, err := broker.Dial(ctx, e); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s to end", took)
	}
}

func endpoint(t *testing.T, target brokertest.Target) broker.Endpoint {
	t.Helper()
	e, err := broker.Config{URL: target.URL, API: target.API}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// dial gives a connection that ends with the test.
func dial(t *testing.T, target brokertest.Target) *broker.Conn {
	t.Helper()
	conn, err := broker.Dial(t.Context(), endpoint(t, target))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
