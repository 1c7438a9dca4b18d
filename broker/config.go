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

// DefaultURL is the broker of a Config that names none.
const DefaultURL = "amqp://guest:guest@localhost:5672/"

// Config says where the broker is and how to reach it, as the command line
// gives it. The zero Config is the broker of DefaultURL.
type Config struct {
	// URL is the AMQP URL, amqp or amqps. Empty means DefaultURL. Its path is
	// the virtual host; no path and "/" are the virtual host "/".
	URL string
	// API is the URL of the management API, http or https. What it leaves out
	// (all of it, if it is empty) is taken from URL: host and credentials, and
	// port 15672, or https and port 15671 where URL is amqps.
	API string
	// VHost beats the virtual host of URL. Empty does not.
	VHost string
	// PasswordFile is a file that holds the password; it beats the one in URL.
	// One newline at its end is not part of the password.
	PasswordFile string
	// CAFile holds the certificates of the authorities to trust, in PEM. Empty
	// means those that the system trusts.
	CAFile string
	// CertFile and KeyFile are the client's certificate and its key, in PEM.
	CertFile, KeyFile string
	// InsecureSkipVerify takes any certificate.
	InsecureSkipVerify bool
	// ConnectionName is what operators see in the list of connections.
	ConnectionName string
}

// Endpoint is a Config that was read and checked: what it takes to connect. Its
// password is never printed.
type Endpoint struct {
	// AMQP and API are the two doors of the broker.
	AMQP, API Address
	// VHost is the virtual host to work in. Never empty.
	VHost string
	// TLS is for amqps and https. Never nil; clone it before changing it.
	TLS *tls.Config
	// Heartbeat is what the AMQP URL asks for with ?heartbeat=. Zero means that
	// it does not.
	Heartbeat time.Duration
	// ConnectionName is what operators see in the list of connections.
	ConnectionName string
}

// ErrURL is wrapped by the errors of Resolve for a URL that cannot be one.
var ErrURL = errors.New("the URL is wrong")

// Resolve reads c and the files it names. Its errors say which setting is
// wrong and hold no password.
func (c Config) Resolve() (Endpoint, error) {
	u, err := parseAMQP(c.URL)
	if err != nil {
		return Endpoint{}, tell(ErrURL, "%v", err)
	}
	if c.PasswordFile != "" {
		if u.address.password, err = readPassword(c.PasswordFile); err != nil {
			return Endpoint{}, err
		}
	}
	api, err := parseAPI(c.API, u.address)
	if err != nil {
		return Endpoint{}, tell(ErrURL, "%v", err)
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

// withQuery fills in the files that the query of the AMQP URL names, where c
// names none.
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

// tls gives the settings for amqps and https. An empty serverName means the
// host of the URL.
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
			return nil, fmt.Errorf("--ca-file: %s holds no certificate in PEM", c.CAFile)
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
