package broker

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Where a URL is set, in the words of the command line.
const (
	fromURL = "the AMQP URL (RABBITMQ_URL or --url)"
	fromAPI = "the URL of the management API (RABBITMQ_API_URL or --api)"
)

// The schemes of the AMQP listener and of the management API.
const (
	SchemeAMQP  = "amqp"
	SchemeAMQPS = "amqps"
	SchemeHTTP  = "http"
	SchemeHTTPS = "https"
)

// Address is an endpoint of the broker: a URL in its parts.
type Address struct {
	Scheme string
	// Host is host and port, as net.Dial accepts them.
	Host string
	// Path is what comes before /api/ behind a reverse proxy. It is mostly empty.
	Path string
	// ServerName is the name in the certificate of the server, the server_name_indication of the
	// URL. Empty: that of Host.
	ServerName string
	User       string

	password string
	// ownPassword is true for a management API whose URL has a password of its own.
	ownPassword bool
}

// Password returns the password. It must not be printed or logged.
func (a Address) Password() string { return a.password }

// String returns the URL without user and password.
func (a Address) String() string { return a.Scheme + "://" + a.Host + a.Path }

// GoString keeps the password out of %#v as String does out of %v.
func (a Address) GoString() string { return strconv.Quote(a.String()) }

// amqpURL is an AMQP URL in its parts, with the query parameters that dlxctl knows.
type amqpURL struct {
	address                   Address
	vhost                     string
	heartbeat                 time.Duration
	caFile, certFile, keyFile string
}

// parseAMQP parses an AMQP URL as RabbitMQ's other clients do: user and password are guest where
// the URL has no user, the virtual host is the path after the first slash, decoded, and "/" where
// that is empty.
func parseAMQP(text string) (amqpURL, error) {
	if text == "" {
		text = DefaultURL
	}
	u, err := parseURL(fromURL, text, SchemeAMQP, SchemeAMQPS)
	if err != nil {
		return amqpURL{}, err
	}
	port := "5672"
	if u.Scheme == SchemeAMQPS {
		port = "5671"
	}
	parsed := amqpURL{
		address: Address{Scheme: u.Scheme, Host: hostPort(u, "localhost", port), User: "guest", password: "guest"},
		vhost:   "/",
	}
	if u.User != nil {
		parsed.address.User = u.User.Username()
		parsed.address.password, _ = u.User.Password()
	}
	if vhost := strings.TrimPrefix(u.Path, "/"); vhost != "" {
		parsed.vhost = vhost
	}
	query := u.Query()
	parsed.caFile, parsed.certFile, parsed.keyFile = query.Get("cacertfile"), query.Get("certfile"), query.Get("keyfile")
	parsed.address.ServerName = query.Get("server_name_indication")
	for _, mechanism := range query["auth_mechanism"] {
		if m := strings.ToLower(mechanism); m != "plain" && m != "amqplain" {
			return amqpURL{}, fmt.Errorf("%s asks for an auth_mechanism other than plain, such as external: dlxctl logs in with a user and a password only; remove auth_mechanism, and give the URL a user (--password-file can hold its password)", fromURL)
		}
	}
	if text := query.Get("heartbeat"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return amqpURL{}, fmt.Errorf("%s has a heartbeat that is not a whole number of seconds from 0 to 65535", fromURL)
		}
		parsed.heartbeat = time.Duration(seconds) * time.Second
	}
	return parsed, nil
}

// parseAPI parses the URL of the management API. What the URL leaves out comes from the AMQP
// address: the name of the server only for the same host, as another one has another certificate.
func parseAPI(text string, amqp Address) (Address, error) {
	host, _, err := net.SplitHostPort(amqp.Host)
	if err != nil {
		return Address{}, fmt.Errorf("%s: %w", fromURL, err)
	}
	if text == "" {
		text = SchemeHTTP + "://"
		if amqp.Scheme == SchemeAMQPS {
			text = SchemeHTTPS + "://"
		}
	}
	u, err := parseURL(fromAPI, text, SchemeHTTP, SchemeHTTPS)
	if err != nil {
		return Address{}, err
	}
	port := apiPort(u)
	api := Address{
		Scheme: u.Scheme, Host: hostPort(u, host, port), Path: apiPath(u),
		User: amqp.User, password: amqp.password,
	}
	api.ServerName = u.Query().Get("server_name_indication")
	if apiHost, _, _ := net.SplitHostPort(api.Host); api.ServerName == "" && apiHost == host {
		api.ServerName = amqp.ServerName
	}
	if u.User != nil {
		api.User = u.User.Username()
		if password, ok := u.User.Password(); ok {
			api.password, api.ownPassword = password, true
		}
	}
	return api, nil
}

// apiPort returns the port of a URL that has none. For a URL with a host it is HTTP's default, as
// the host may be a proxy; without a host it is RabbitMQ's.
func apiPort(u *url.URL) string {
	switch {
	case u.Host != "" && u.Scheme == SchemeHTTPS:
		return "443"
	case u.Host != "":
		return "80"
	case u.Scheme == SchemeHTTPS:
		return "15671"
	default:
		return "15672"
	}
}

// apiPath returns the path before /api/, which users tend to paste with the URL.
func apiPath(u *url.URL) string {
	path := strings.TrimRight(u.EscapedPath(), "/")
	return strings.TrimRight(strings.TrimSuffix(path, "/api"), "/")
}

func hostPort(u *url.URL, host, port string) string {
	if h := u.Hostname(); h != "" {
		host = h
	}
	if p := u.Port(); p != "" {
		port = p
	}
	return net.JoinHostPort(host, port)
}

// parseURL parses text, which must have one of the two schemes. Its errors quote nothing that may
// be part of a password; those of net/url do.
func parseURL(from, text, plain, secure string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, fmt.Errorf("%s does not begin with %s:// or %s://", from, plain, secure)
	}
	if s := strings.ToLower(scheme); s != plain && s != secure {
		return nil, fmt.Errorf("%s begins with %s://; it must be %s:// or %s://", from, scheme, plain, secure)
	}
	u, err := url.Parse(text)
	// An @ without a user before the host was meant to end a password: the parser took the part of
	// the password up to a slash, ? or # for the host.
	if err != nil || u.Fragment != "" || u.User == nil && strings.Contains(rest, "@") {
		return nil, fmt.Errorf("%s cannot be parsed; percent-encode special characters in user, password and virtual host, such as %%2F for /, %%40 for @ and %%23 for #", from)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			// It may be the password, of a URL without a host.
			return nil, fmt.Errorf("%s has a port that is not a number from 1 to 65535", from)
		}
	}
	return u, nil
}
