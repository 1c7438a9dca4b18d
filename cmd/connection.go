package cmd

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// connection holds the flags that name the broker.
type connection struct{ broker.Config }

func (c *connection) add(f *pflag.FlagSet) {
	f.StringVar(&c.VHost, "vhost", "", "virtual host; overrides the file and the URL")
	f.StringVar(&c.URL, "url", broker.DefaultURL,
		"AMQP `URL` of the broker; a password on the command line is visible in the process list (env RABBITMQ_URL)")
	f.StringVar(&c.API, "api", "",
		"`URL` of the management API (env RABBITMQ_API_URL; default: host and credentials of the AMQP URL, port 15672, or 15671 with amqps)")
	f.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the password; overrides the one in the URL")
	f.StringVar(&c.CAFile, "ca-file", "", "`FILE` with the CA certificates to trust, in PEM format")
	f.StringVar(&c.CertFile, "cert-file", "", "`FILE` with the client certificate, in PEM format")
	f.StringVar(&c.KeyFile, "key-file", "", "`FILE` with the key of the client certificate, in PEM format")
	f.DurationVar(&c.RequestTime, "timeout", 30*time.Second, "how long one request to the management API may take")
	f.BoolVar(&c.InsecureSkipVerify, "insecure-skip-verify", false, "skip TLS certificate verification (insecure)")
}

// Resolve does what that of a Config does. An empty URL is an error: in CI a secret is empty where
// it does not exist, as for forks, and the default would be another broker.
func (c connection) Resolve() (broker.Endpoint, error) {
	if c.URL == "" {
		return broker.Endpoint{}, broker.Errorf(broker.ErrURL,
			"the AMQP URL (RABBITMQ_URL or --url) is empty; write the URL of the broker (in CI: is the secret missing?), or unset it for %s",
			broker.DefaultURL)
	}
	return c.Config.Resolve()
}

// in returns the connection to a virtual host, unless the flags name another.
func (c connection) in(vhost string) connection {
	c.VHost = cmp.Or(c.VHost, vhost)
	return c
}

// endpoint returns the endpoint of a topology's broker. Every connection to it, over HTTP
// or over AMQP, refuses a broker with the wrong version or cluster name, so no command has
// to check.
func (c connection) endpoint(t topology.Compiled) (broker.Endpoint, error) {
	endpoint, err := c.in(t.VHost).Resolve()
	return apply.Guard(endpoint, t), err
}

// vhost returns the virtual host of a topology. It reads the URL only if neither the flags
// nor the topology name one.
func (c connection) vhost(t topology.Compiled) (string, error) {
	if vhost := c.in(t.VHost).VHost; vhost != "" {
		return vhost, nil
	}
	endpoint, err := c.Resolve()
	return endpoint.VHost, err
}

// openWhile opens the management API as open does, for the topology that compile returns. Before it
// compiles, it begins to read the lists of the virtual host, until ctx ends: the broker works
// meanwhile. They are nil where the virtual host is not known before.
func (c connection) openWhile(ctx context.Context, files []spec.Source, compile func() (topology.Compiled, error)) (
	*apply.Session, *management.Reading, error,
) {
	e, unresolved := c.Resolve() // once: the password file may be a pipe
	in := func(vhost string) broker.Endpoint {
		named := e
		named.VHost = cmp.Or(c.VHost, vhost, e.VHost)
		return named
	}
	var begun *management.Reading
	if vhost, known := spec.GuessVHost(files); unresolved == nil && (known || c.VHost != "") {
		if m, err := management.New(in(vhost)); err == nil {
			begun = m.Begin(ctx)
		}
	}
	t, err := compile()
	if err = cmp.Or(err, unresolved); err != nil {
		return nil, nil, err
	}
	s, err := apply.Open(in(t.VHost), t)
	return s, begun, err
}

// open opens the management API of the broker of a topology.
func (c connection) open(t topology.Compiled) (*apply.Session, error) {
	endpoint, err := c.endpoint(t)
	if err != nil {
		return nil, err
	}
	return apply.Open(endpoint, t)
}
