package brokertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	File        string // its certificate, PEM
}

// Pair is a certificate with its key, as files in PEM.
type Pair struct{ CertFile, KeyFile string }

// NewAuthority creates an authority that no client or server trusts yet.
func NewAuthority(tb testing.TB) Authority {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "an authority of " + tb.Name()},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return Authority{certificate, key, writePEM(tb, "CERTIFICATE", der)}
}

// Sign creates a certificate for these host names and addresses, for servers and
// clients. It expires after the duration; a negative duration is an expired certificate.
func (a Authority) Sign(tb testing.TB, good time.Duration, hosts ...string) Pair {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "certificate of " + tb.Name()},
		NotBefore: time.Now().Add(-12 * time.Hour), NotAfter: time.Now().Add(good),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return Pair{writePEM(tb, "CERTIFICATE", der), writePEM(tb, "PRIVATE KEY", keyDER)}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func writePEM(tb testing.TB, kind string, der []byte) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "file.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// NodeWithTLS starts a node as [Node] does, with TLS on two more ports, and returns
// their addresses, for AMQP and for the management API. The node requires a client
// certificate that the authority clients has signed, or none if that is nil. It does
// not work with a node in Docker, which has ports and files of its own.
func NodeWithTLS(tb testing.TB, own Pair, clients *Authority) (s *Server, amqp, api string) {
	tb.Helper()
	amqp, api = FreePort(tb), FreePort(tb)
	set := []string{
		"listeners.ssl.1 = " + amqp, "management.ssl.ip = 127.0.0.1",
		"management.ssl.port = " + strings.TrimPrefix(api, "127.0.0.1:"),
	}
	for _, listener := range []string{"ssl_options", "management.ssl"} {
		option := func(name, value string) { set = append(set, listener+"."+name+" = "+value) }
		option("certfile", seenFromNode(own.CertFile))
		option("keyfile", seenFromNode(own.KeyFile))
		if clients != nil {
			option("cacertfile", seenFromNode(clients.File))
			option("verify", "verify_peer")
			option("fail_if_no_peer_cert", "true")
		} else {
			option("verify", "verify_none")
		}
	}
	var args []string
	for _, line := range set {
		args = append(args, "--set", line)
	}
	return NodeWith(tb, args...), amqp, api
}

// seenFromNode returns the path of a file for a node that may have another root folder:
// the node can reach this process, and through it its files.
func seenFromNode(file string) string {
	if _, err := os.Stat("/proc/self/root"); err != nil {
		return file
	}
	return fmt.Sprintf("/proc/%d/root%s", os.Getpid(), file)
}

// FreePort returns an address of this host, with a port that was free a moment ago.
func FreePort(tb testing.TB) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return address
}
