package page

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/dlxctl/dlxctl/internal/text"
)

// ErrAddress is wrapped by the error of an address that a page must not be served on as it was
// asked for.
var ErrAddress = errors.New("refused to listen")

// Binding says where a page is served, and what protects it there.
type Binding struct {
	// Address is such as 127.0.0.1:9420.
	Address string
	// CertFile and KeyFile are the certificate and the key of TLS. Empty means no TLS.
	CertFile, KeyFile string
	// TokenFile is the file with the token that opens the page. Empty: a one-time token does.
	TokenFile string
	// SignIn: a provider signs people in, in place of a token.
	SignIn bool
	// External is the URL at which browsers open the page, as behind a reverse proxy, such as
	// https://ops.example.com/desk. Empty: the page knows it by itself.
	External string
	// Log says when a certificate was read again. Nil: nothing does.
	Log *slog.Logger
}

// Bound is a listener, and who may open the page on it.
type Bound struct {
	net.Listener

	Access Access
	// Base is the beginning of the URL, such as http://127.0.0.1:9420.
	Base string
}

// minToken is how long a token in a file must be.
const minToken = 32

// Listen listens on the address of a binding. An address that other machines can reach needs TLS,
// of the page or of a proxy, and a token of a file or a provider: the printed token and the cookie
// would otherwise cross the network in clear text.
func Listen(ctx context.Context, b Binding) (Bound, error) {
	local, err := b.check()
	if err != nil {
		return Bound{}, err
	}
	bound := Bound{}
	if b.TokenFile != "" {
		if bound.Access.Secret, err = readToken(b.TokenFile); err != nil {
			return Bound{}, err
		}
	}
	pair, err := b.pair()
	if err != nil {
		return Bound{}, err
	}
	if bound.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", b.Address); err != nil {
		return Bound{}, err
	}
	address, isTCP := bound.Addr().(*net.TCPAddr)
	if local && (!isTCP || !address.IP.IsLoopback()) { // localhost can be made to mean another address
		_ = bound.Close()
		return Bound{}, fmt.Errorf("%w on %s: it is not a loopback address", ErrAddress, bound.Addr())
	}
	if bound.Base, err = b.base(pair, address); err != nil {
		_ = bound.Close()
		return Bound{}, err
	}
	if pair != nil {
		bound.Access.Hosts = pair.isFor
		bound.Listener = tls.NewListener(bound.Listener, &tls.Config{GetCertificate: pair.get, MinVersion: tls.VersionTLS12})
	}
	bound.Access.Proxied = b.External != ""
	bound.Access.Base, bound.Access.Secure = bound.Base, strings.HasPrefix(bound.Base, "https:")
	return bound, nil
}

// base is the URL of the page. A provider leads people back to it, and their cookies are of its
// name, so it is not guessed for a page into which people sign in.
func (b Binding) base(pair *pair, address *net.TCPAddr) (string, error) {
	if external, err := b.external(); err != nil || external != "" {
		return external, err
	}
	scheme, host, certain := "http", address.IP.String(), true
	if pair != nil {
		scheme = "https"
		host, certain = pair.host(host)
	}
	if b.SignIn && !certain {
		return "", fmt.Errorf("%w: the certificate of --tls-cert does not have exactly one name, to which a sign-in can lead back; pass --external-url with the URL that people open, such as https://desk.example.com",
			ErrAddress)
	}
	return scheme + "://" + asBrowsers(scheme, net.JoinHostPort(host, fmt.Sprint(address.Port))), nil
}

// asBrowsers writes the host and port of a URL as browsers do, in lower case and without the
// default port.
func asBrowsers(scheme, hostport string) string {
	return strings.TrimSuffix(strings.ToLower(hostport), map[string]string{"https": ":443", "http": ":80"}[scheme])
}

// check refuses an address without the protection that it needs, and reports whether it is a
// loopback address.
func (b Binding) check() (local bool, err error) {
	host, _, err := net.SplitHostPort(b.Address)
	if err != nil {
		return false, err
	}
	local = isLocal(host)
	external, err := b.external()
	switch {
	case err != nil:
		return local, err
	case b.SignIn && b.TokenFile != "":
		return local, fmt.Errorf("%w: --token-file and --oidc-issuer exclude each other; pass one of them", ErrAddress)
	case (b.CertFile == "") != (b.KeyFile == ""):
		return local, fmt.Errorf("%w: --tls-cert and --tls-key need each other; pass both", ErrAddress)
	case local:
		return true, nil
	case b.CertFile == "" && !strings.HasPrefix(external, "https:") || b.TokenFile == "" && !b.SignIn:
		return false, fmt.Errorf("%w on %q: other machines can reach this address; pass --tls-cert, --tls-key and --token-file or --oidc-issuer, or listen on 127.0.0.1 and use 'ssh -L'",
			ErrAddress, b.Address)
	}
	return false, nil
}

// external checks the URL of the reverse proxy, and returns it as browsers write it, without a
// slash at its end. It is empty without a proxy.
func (b Binding) external() (string, error) {
	if b.External == "" {
		return "", nil
	}
	u, err := url.Parse(b.External)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLocal(u.Hostname())) {
		return "", fmt.Errorf("%w: --external-url %q is not an https:// URL; http:// is accepted for localhost alone",
			ErrAddress, b.External)
	}
	root := strings.TrimSuffix(u.Path, "/")
	plain := u.EscapedPath() == u.Path && path.Clean(root+"/") == cmp.Or(root, "/")
	switch {
	case !plain || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%w: --external-url %q is more than a host and a plain path; write it like https://ops.example.com/desk",
			ErrAddress, b.External)
	case root == "/api" || strings.HasPrefix(root, "/api/"): // a proxy may cut the path off or not
		return "", fmt.Errorf("%w: --external-url %q begins with /api, as requests of the page do; choose another path",
			ErrAddress, b.External)
	}
	return u.Scheme + "://" + asBrowsers(u.Scheme, u.Host) + root, nil
}

// pair is a certificate and its key, read again when the files change.
type pair struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	content [2]string
	loaded  tls.Certificate
	problem string // the one that was logged last
}

// pair reads the certificate, nil without.
func (b Binding) pair() (*pair, error) {
	if b.CertFile == "" {
		return nil, nil
	}
	p := &pair{certFile: b.CertFile, keyFile: b.KeyFile, log: cmp.Or(b.Log, slog.New(slog.DiscardHandler))}
	if _, err := p.read(); err != nil {
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	return p, nil
}

func (p *pair) read() (changed bool, err error) {
	var content [2]string
	for i, file := range []string{p.certFile, p.keyFile} {
		data, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		content[i] = string(data)
	}
	if content == p.content {
		return false, nil
	}
	loaded, err := tls.X509KeyPair([]byte(content[0]), []byte(content[1]))
	if err != nil {
		return false, err
	}
	p.content, p.loaded = content, loaded
	return true, nil
}

// get returns the certificate for a connection. Files that cannot be used, as during a write, are
// logged once; the previous certificate stays in use.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed, err := p.read()
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch {
	case problem != "" && problem != p.problem:
		p.log.Warn("cannot use a changed certificate; the previous one stays in use", "error", err)
	case changed:
		p.log.Info("read a changed certificate", "file", p.certFile)
	}
	p.problem = problem
	loaded := p.loaded
	return &loaded, nil
}

// isFor reports whether a name or address in a URL is this machine, or one of the certificate.
func (p *pair) isFor(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return isLocal(host) || p.loaded.Leaf.VerifyHostname(host) == nil
}

// host is the host of the URL: the address that is listened on if the certificate has it, and it is
// this machine or the certificate has no name. Else it is the first name or address of the
// certificate, other than one with a wildcard. It is certain if the certificate has no other name.
func (p *pair) host(address string) (host string, certain bool) {
	leaf := p.loaded.Leaf
	if leaf.VerifyHostname(address) == nil && (isLocal(address) || len(leaf.DNSNames) == 0) {
		return address, true
	}
	names := slices.Concat(leaf.DNSNames, text.Each(leaf.IPAddresses, net.IP.String))
	first := slices.IndexFunc(names, func(name string) bool { return !strings.HasPrefix(name, "*") })
	if first < 0 {
		return address, false
	}
	return names[first], first == 0 && (len(leaf.DNSNames) == 1 || len(names) == 1)
}

func readToken(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the person names the file
	if err != nil {
		return "", fmt.Errorf("read --token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%w: the token of --token-file needs %d characters or more, without blanks; 'openssl rand -hex 32' prints one",
			ErrAddress, minToken)
	}
	return token, nil
}
