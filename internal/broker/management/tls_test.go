package management_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// certificate is a self-signed certificate with its key.
type certificate struct {
	pair     tls.Certificate
	pem, key []byte
}

// selfSigned creates a certificate for 127.0.0.1, modified by edit.
func selfSigned(t *testing.T, edit ...func(*x509.Certificate)) certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, f := range edit {
		f(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := certificate{
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	if c.pair, err = tls.X509KeyPair(c.pem, c.key); err != nil {
		t.Fatal(err)
	}
	return c
}

// serveTLS returns the URL of a server that answers as an empty broker does.
func serveTLS(t *testing.T, conf *tls.Config) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/overview"):
			_, _ = io.WriteString(w, `{"rabbitmq_version":"4.0.5","cluster_name":"c"}`)
		case strings.HasSuffix(r.URL.Path, "/alarms"):
			_, _ = io.WriteString(w, `{"status":"ok"}`)
		default:
			_, _ = io.WriteString(w, `[]`)
		}
	}))
	s.TLS = conf
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestTLS(t *testing.T) {
	t.Parallel()
	good := selfSigned(t)
	old := selfSigned(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	foreign := selfSigned(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"broker.example"} })
	client := selfSigned(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(client.pem)
	ca, cert, key := write(t, string(good.pem)), write(t, string(client.pem)), write(t, string(client.key))
	server := func(c certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c.pair}} } //nolint:gosec // a test server
	mutual := server(good)
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, clients

	for name, tc := range map[string]struct {
		server *tls.Config
		config broker.Config
		text   string // of the error, <api> for the server's URL; empty: none
	}{
		"an authority that is named": {server(good), broker.Config{CAFile: ca}, ""},
		"checks that are turned off": {server(old), broker.Config{InsecureSkipVerify: true}, ""},
		"a client certificate":       {mutual, broker.Config{CAFile: ca, CertFile: cert, KeyFile: key}, ""},
		"another name that is expected": {
			server(foreign),
			broker.Config{
				CAFile: write(t, string(foreign.pem)), URL: "amqps://127.0.0.1/?server_name_indication=broker.example",
			},
			"",
		},
		"a name that is expected of another host": {
			server(good),
			broker.Config{CAFile: ca, URL: "amqps://h/?server_name_indication=broker.example"},
			"",
		},
		"another name in the URL of the API": {
			server(foreign),
			broker.Config{
				CAFile: write(t, string(foreign.pem)), URL: "amqps://h/", API: "?server_name_indication=broker.example",
			},
			"",
		},
		"an authority that is not known": {
			server(good),
			broker.Config{},
			"<api>: its certificate is signed by an authority that this machine does not trust; pass the authority's certificate with --ca-file",
		},
		"an old certificate": {
			server(old),
			broker.Config{CAFile: write(t, string(old.pem))},
			"<api>: its certificate has expired or is not valid yet; renew it, or check the clock of this machine",
		},
		"a certificate of another host": {
			server(foreign),
			broker.Config{CAFile: write(t, string(foreign.pem))},
			"<api>: its certificate is for another host; use a host name that the certificate contains, or add ?server_name_indication=NAME to its URL",
		},
		"no client certificate": {
			mutual,
			broker.Config{CAFile: ca},
			"<api>: it ended the TLS handshake (tls: certificate required); if it requires a client certificate, pass one that it trusts with --cert-file and --key-file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := serveTLS(t, tc.server)
			tc.config.API = api + tc.config.API
			_, err := resolve(t, tc.config).Inspect(t.Context())
			if tc.text == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkError(t, err, broker.ErrUnreachable, strings.Replace(tc.text, "<api>", api, 1))
		})
	}
}

func TestPlainHTTPToATLSPort(t *testing.T) {
	t.Parallel()
	api := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{selfSigned(t).pair}}) //nolint:gosec // a test server
	plain := strings.Replace(api, "https:", "http:", 1)
	_, err := resolve(t, broker.Config{API: plain}).Inspect(t.Context())
	// Go's server answers in plain text, with 400; RabbitMQ's closes the connection.
	checkError(t, err, broker.ErrUnreachable,
		"what answers at "+plain+" is not RabbitMQ's management API (it answers 400 Bad Request); set its URL with --api or RABBITMQ_API_URL")
}

// write returns the path of a file with this content.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
