package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// ErrAddress is wrapped by the error of an address that a page must not be served on as it was
// asked for.
var ErrAddress = errors.New("refused to listen")

// Binding says where a page is served, and what protects it there.
type Binding struct {
	// Address is such as 127.0.0.1:9420.
	Address string
	// CertFile and KeyFile are the certificate and the key of TLS. Empty is no TLS.
	CertFile, KeyFile string
	// TokenFile is the file with the token that opens the page. Empty: a one-time token does.
	TokenFile string
	// SignIn: a provider signs people in, in place of a token.
	SignIn bool
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

// Listen listens on the address of a binding. An address that other machines can reach needs TLS
// and a token of a file: the printed token and the cookie would otherwise cross the network in
// clear text.
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
	config, err := b.tls(&bound.Access)
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
	bound.Base = "http://" + bound.Addr().String()
	if config != nil {
		bound.Base = "https://" + b.name(config, address)
		bound.Listener = tls.NewListener(bound.Listener, config)
	}
	bound.Access.Base = bound.Base
	return bound, nil
}

// check refuses an address without the protection that it needs, and reports whether it is a
// loopback address.
func (b Binding) check() (local bool, err error) {
	host, _, err := net.SplitHostPort(b.Address)
	if err != nil {
		return false, err
	}
	local = isLocal(host)
	switch {
	case b.SignIn && b.TokenFile != "":
		return local, fmt.Errorf("%w: --token-file and --oidc-issuer exclude each other; pass one of them", ErrAddress)
	case (b.CertFile == "") != (b.KeyFile == ""):
		return local, fmt.Errorf("%w: --tls-cert and --tls-key need each other; pass both", ErrAddress)
	case local:
		return true, nil
	case b.CertFile == "" || b.TokenFile == "" && !b.SignIn:
		return false, fmt.Errorf("%w on %q: other machines can reach this address; pass --tls-cert, --tls-key and --token-file or --oidc-issuer, or listen on 127.0.0.1 and use 'ssh -L'",
			ErrAddress, b.Address)
	}
	return false, nil
}

// tls returns the configuration of TLS, nil without, and has the access accept the names of the
// certificate.
func (b Binding) tls(a *Access) (*tls.Config, error) {
	if b.CertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(b.CertFile, b.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	a.Secure = true
	a.Hosts = func(host string) bool { return isLocal(host) || pair.Leaf.VerifyHostname(host) == nil }
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// name is the host and port of the URL: a name of the certificate where there is one.
func (b Binding) name(config *tls.Config, address *net.TCPAddr) string {
	host := address.IP.String()
	if leaf := config.Certificates[0].Leaf; leaf.VerifyHostname(host) != nil {
		host = firstName(leaf, host)
	}
	return net.JoinHostPort(host, fmt.Sprint(address.Port))
}

// firstName returns a name of a certificate that can be opened.
func firstName(leaf *x509.Certificate, otherwise string) string {
	for _, name := range leaf.DNSNames {
		if !strings.HasPrefix(name, "*") {
			return name
		}
	}
	for _, ip := range leaf.IPAddresses {
		return ip.String()
	}
	return otherwise
}

// readToken reads the token of a file.
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
