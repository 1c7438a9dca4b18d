// Package broker configures how to reach a broker, and defines the errors of reaching it. Its
// subpackages connect: management over HTTP, to read a virtual host and to change it, and amqp, to
// move messages.
package broker

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"
)

// DefaultURL is the broker of a Config without a URL.
const DefaultURL = "amqp://guest:guest@localhost:5672/"

// Config is where the broker is and how to reach it, as given on the command line. The zero Config
// is the broker of DefaultURL.
type Config struct {
	// URL is the AMQP URL, amqp or amqps. Empty means DefaultURL. Its path is the virtual host; no
	// path and "/" are the virtual host "/".
	URL string
	// API is the URL of the management API, http or https. What it leaves out (all of it, if it is
	// empty) comes from URL: host and credentials, and port 15672, or https and port 15671 where
	// URL is amqps.
	API string
	// VHost overrides the virtual host of URL unless it is empty.
	VHost string
	// PasswordFile is a file that holds the password; it overrides the one in URL. One newline at
	// its end is not part of the password. This file and those below may be replaced at any time,
	// see Endpoint.Renew.
	PasswordFile string
	// CAFile holds the certificates of the trusted authorities, in PEM. Empty means those that the
	// system trusts.
	CAFile string
	// CertFile and KeyFile are the client's certificate and its key, in PEM.
	CertFile, KeyFile string
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
	// Words are those of the Endpoint.
	Words Words
	// RequestTime is that of the Endpoint.
	RequestTime time.Duration
	// Log gets a line when a file has changed. Nil: changes are not logged.
	Log *slog.Logger
}

// Endpoint is a Config that was parsed and checked: everything that is needed to connect. Its
// password is never printed.
type Endpoint struct {
	// AMQP and API are the two addresses of the broker.
	AMQP, API Address
	// VHost is the virtual host. It is never empty.
	VHost string
	// TLS is for amqps and https, without the name of the server. It is never nil; clone it before
	// changing it.
	TLS *tls.Config
	// Heartbeat is the ?heartbeat= of the AMQP URL. Zero means that the URL has none.
	Heartbeat time.Duration
	// ConnectTime is how long the network may take to connect over AMQP. Zero means 10 s.
	ConnectTime time.Duration
	// RequestTime is how long a request to the management API may take, its answer included. Zero
	// means 30 s.
	RequestTime time.Duration
	// ConnectionName is what operators see in the list of connections.
	ConnectionName string
	// Properties are what else an AMQP connection says of itself. The management API lists them.
	Properties map[string]any
	// Words are what errors call the settings.
	Words Words
	// Accept rejects a broker by its version and the name of its cluster. Every AMQP connection and
	// every Inspect calls it before anything else. Nil accepts every broker.
	Accept func(version, cluster string) error

	renew func(Endpoint) Endpoint // see Renew; a function, so that nothing prints what it knows
}

// Words are what the advice of errors calls the settings of an Endpoint: by the flags of the
// command line and the variables of the environment, or, with Keys, by the keys of a file that
// lists clusters.
type Words struct{ Keys bool }

// URL is where the AMQP URL is set.
func (w Words) URL() string { return w.or("the key url", "RABBITMQ_URL or --url") }

// API is where the URL of the management API is set.
func (w Words) API() string { return w.or("the key api", "--api or RABBITMQ_API_URL") }

// Either is where both are set.
func (w Words) Either() string { return w.or("the keys url and api", "RABBITMQ_URL, --url or --api") }

// OrPassword is where the password can be set too, behind one of the others.
func (w Words) OrPassword() string { return w.or("", ", or --password-file") }

func (w Words) or(key, flag string) string {
	if w.Keys {
		return key
	}
	return flag
}

// Check calls Accept.
func (e Endpoint) Check(version, cluster string) error {
	if e.Accept == nil {
		return nil
	}
	return e.Accept(version, cluster)
}

// ErrURL is wrapped by the errors of Resolve for a URL that cannot be one.
var ErrURL = errors.New("the URL is wrong")

// Resolve parses c and reads the files that it names. Its errors name the setting that is wrong and
// contain no password.
func (c Config) Resolve() (Endpoint, error) {
	u, err := parseAMQP(c.URL)
	if err != nil {
		return Endpoint{}, Errorf(ErrURL, "%v", err)
	}
	api, err := parseAPI(c.API, u.address)
	if err != nil {
		return Endpoint{}, Errorf(ErrURL, "%v", err)
	}
	e := Endpoint{
		AMQP: u.address, API: api, VHost: u.vhost,
		Heartbeat: u.heartbeat, RequestTime: c.RequestTime, Words: c.Words,
		TLS: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: c.InsecureSkipVerify, //nolint:gosec // the user asked for it by name
		},
	}
	if c.VHost != "" {
		e.VHost = c.VHost
	}
	files, err := c.withQuery(u).secrets()
	if err != nil {
		return Endpoint{}, err
	}
	for _, f := range files {
		if _, err := f.load(&e); err != nil {
			return Endpoint{}, err
		}
	}
	e.renew = (&secrets{log: c.Log, files: files, latest: e}).renew
	return e, nil
}

// withQuery fills in the files that the query of the AMQP URL names, where c names none.
func (c Config) withQuery(u amqpURL) Config {
	if c.CAFile == "" {
		c.CAFile = u.caFile
	}
	if c.CertFile == "" && c.KeyFile == "" {
		c.CertFile, c.KeyFile = u.certFile, u.keyFile
	}
	return c
}
