// Package broker configures how to reach a broker, and defines the errors of reaching it. Its
// subpackages connect: management over HTTP, to read a virtual host and to change it, and amqp, to
// move messages.
package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
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
	// its end is not part of the password.
	PasswordFile string
	// CAFile holds the certificates of the trusted authorities, in PEM. Empty means those that the
	// system trusts.
	CAFile string
	// CertFile and KeyFile are the client's certificate and its key, in PEM.
	CertFile, KeyFile string
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
	// ConnectionName is what operators see in the list of connections.
	ConnectionName string
}

// Endpoint is a Config that was parsed and checked: everything that is needed to connect. Its
// password is never printed.
type Endpoint struct {
	// AMQP and API are the two addresses of the broker.
	AMQP, API Address
	// VHost is the virtual host. It is never empty.
	VHost string
	// TLS is for amqps and https. It is never nil; clone it before changing it.
	TLS *tls.Config
	// Heartbeat is the ?heartbeat= of the AMQP URL. Zero means that the URL has none.
	Heartbeat time.Duration
	// ConnectTime is how long the network may take to connect over AMQP. Zero means 10 s.
	ConnectTime time.Duration
	// ConnectionName is what operators see in the list of connections.
	ConnectionName string
	// Accept rejects a broker by its version and the name of its cluster. Every AMQP connection and
	// every Inspect calls it before anything else. Nil accepts every broker.
	Accept func(version, cluster string) error
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
	if c.PasswordFile != "" {
		if u.address.password, err = readPassword(c.PasswordFile); err != nil {
			return Endpoint{}, err
		}
	}
	api, err := parseAPI(c.API, u.address)
	if err != nil {
		return Endpoint{}, Errorf(ErrURL, "%v", err)
	}
	conf, err := c.withQuery(u).tls(u.serverName)
	if err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{
		AMQP: u.address, API: api, VHost: u.vhost, TLS: conf,
		Heartbeat: u.heartbeat, ConnectionName: c.ConnectionName,
	}
	if c.VHost != "" {
		e.VHost = c.VHost
	}
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

// readPassword reads a file that holds nothing but a password.
func readPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("--password-file: %s is empty", path)
	}
	return password, nil
}

// tls returns the settings for amqps and https. An empty serverName means the host of the URL.
func (c Config) tls(serverName string) (*tls.Config, error) {
	conf := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         serverName,
		InsecureSkipVerify: c.InsecureSkipVerify, //nolint:gosec // the user asked for it by name
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file: %s contains no PEM certificate", c.CAFile)
		}
	}
	switch {
	case c.CertFile == "" && c.KeyFile == "":
		return conf, nil
	case c.KeyFile == "":
		return nil, errors.New("--cert-file needs --key-file, the key of that certificate")
	case c.CertFile == "":
		return nil, errors.New("--key-file needs --cert-file, the certificate of that key")
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-file %s with --key-file %s: %w", c.CertFile, c.KeyFile, err)
	}
	conf.Certificates = []tls.Certificate{pair}
	return conf, nil
}
