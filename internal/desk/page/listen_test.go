package page_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// tokenFile writes a token to a file.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An address that other machines can reach needs TLS and a token; nothing listens without.
func TestUnsafeAddressesAreRefused(t *testing.T) {
	t.Parallel()
	good := tokenFile(t, strings.Repeat("k", 32))
	pair := brokertest.NewAuthority(t).Sign(t, time.Hour, "desk.example.com")
	for name, c := range map[string]struct {
		binding page.Binding
		says    string
	}{
		"all addresses": {page.Binding{Address: ":0"}, "other machines can reach"},
		"a private one": {page.Binding{Address: "192.0.2.1:0"}, "other machines can reach"},
		"a name":        {page.Binding{Address: "desk.example.com:0"}, "other machines can reach"},
		"TLS alone": {
			page.Binding{Address: "0.0.0.0:0", CertFile: pair.CertFile, KeyFile: pair.KeyFile}, "--token-file",
		},
		"a token alone": {page.Binding{Address: "0.0.0.0:0", TokenFile: good}, "--tls-cert"},
		"half of TLS":   {page.Binding{Address: "127.0.0.1:0", CertFile: pair.CertFile}, "pass both"},
		"a short token": {page.Binding{Address: "127.0.0.1:0", TokenFile: tokenFile(t, "short")}, "32 characters"},
		"two tokens": {
			page.Binding{Address: "127.0.0.1:0", TokenFile: tokenFile(t, strings.Repeat("k ", 32))}, "without blanks",
		},
		"a proxy without a token": {
			page.Binding{Address: "0.0.0.0:0", External: "https://ops.example.com"}, "--token-file or --oidc-issuer",
		},
		"a proxy without TLS": {
			page.Binding{Address: "127.0.0.1:0", External: "http://ops.example.com"}, "not an https:// URL",
		},
		"a proxy without a name": {page.Binding{Address: "127.0.0.1:0", External: "ops.example.com"}, "not an https:// URL"},
		"a proxy with a query": {
			page.Binding{Address: "127.0.0.1:0", External: "https://ops.example.com/?x"}, "a host and a plain path",
		},
		"a proxy with a password": {
			page.Binding{Address: "127.0.0.1:0", External: "https://a:b@ops.example.com"}, "a host and a plain path",
		},
		"a proxy with an odd path": {
			page.Binding{Address: "127.0.0.1:0", External: "https://ops.example.com/a/../b"}, "a host and a plain path",
		},
		"a proxy at a path of the page": {
			page.Binding{Address: "127.0.0.1:0", External: "https://ops.example.com/api"}, "begins with /api",
		},
		"a token and a provider": {
			page.Binding{Address: "127.0.0.1:0", TokenFile: good, SignIn: true}, "exclude each other",
		},
		"localhost.other": {page.Binding{Address: "localhost.example.com:0"}, "other machines can reach"},
	} {
		bound, err := page.Listen(t.Context(), c.binding)
		if !errors.Is(err, page.ErrAddress) || !strings.Contains(err.Error(), c.says) || bound.Listener != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A sign-in leads back to the name of the certificate, as browsers write it. If there are several,
// the URL must be said; a token opens the page under any of them.
func TestASignInNeedsOneName(t *testing.T) {
	t.Parallel()
	authority := brokertest.NewAuthority(t)
	for names, want := range map[string]string{
		"Desk.example.com":                    "https://desk.example.com",
		"desk.example.com 192.0.2.1":          "https://desk.example.com",
		"192.0.2.1":                           "https://192.0.2.1",
		"*.example.com":                       "",
		"*.example.com example.com":           "",
		"*.example.com 192.0.2.1":             "",
		"desk.example.com desk.shop.internal": "",
	} {
		pair := authority.Sign(t, time.Hour, strings.Fields(names)...)
		b := page.Binding{CertFile: pair.CertFile, KeyFile: pair.KeyFile}
		if _, err := b.BaseOn(443); err != nil {
			t.Errorf("%s: with a token: %v", names, err)
		}
		b.SignIn = true
		got, err := b.BaseOn(443)
		refused := errors.Is(err, page.ErrAddress) && strings.Contains(err.Error(), "pass --external-url")
		if got != want || refused != (want == "") {
			t.Errorf("%s: %q, %v", names, got, err)
		}
		b.External = "https://desk.example.com:9420"
		if got, err := b.BaseOn(9420); got != b.External || err != nil {
			t.Errorf("%s: with a URL: %q, %v", names, got, err)
		}
	}
}

// With TLS and a token file the page answers under the names of its certificate alone, and its
// cookie never leaves TLS.
func TestThePageIsServedWithTLS(t *testing.T) {
	t.Parallel()
	authority := brokertest.NewAuthority(t)
	pair := authority.Sign(t, time.Hour, "desk.example.com")
	secret := strings.Repeat("k", 32)
	bound, err := page.Listen(t.Context(), page.Binding{
		Address: "127.0.0.1:0", CertFile: pair.CertFile, KeyFile: pair.KeyFile, TokenFile: tokenFile(t, secret),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(bound.Base, "https://desk.example.com:") {
		t.Errorf("the URL begins with %s", bound.Base)
	}
	s := serveWith(t, &engine{}, func(c *page.Config) { c.Access = bound.Access })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Serve(ctx, bound)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	client := trusting(t, authority, bound.Addr().String())
	for host, status := range map[string]int{"desk.example.com": 200, "evil.example.com": 421} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", bound.Base+"/open", strings.NewReader("token="+secret))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "https://"+host)
		r.Host = host
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: status %d", host, resp.StatusCode)
		}
		if cookies := resp.Cookies(); status == 200 && (len(cookies) != 1 || !cookies[0].Secure) {
			t.Errorf("the cookies are %v", cookies)
		}
	}
}

// A certificate that is replaced while the page is served is used from the next connection on.
// While only one of its files is written, the previous one stays in use.
func TestAReplacedCertificateIsUsed(t *testing.T) {
	t.Parallel()
	authority := brokertest.NewAuthority(t)
	old, renewed := authority.Sign(t, time.Hour, "old.example.com"), authority.Sign(t, time.Hour, "new.example.com")
	var log bytes.Buffer
	bound, err := page.Listen(t.Context(), page.Binding{
		Address: "127.0.0.1:0", CertFile: old.CertFile, KeyFile: old.KeyFile, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := serveWith(t, &engine{}, func(c *page.Config) { c.Access = bound.Access })
	stop := beginOn(t, s.Page, bound)
	presents := func(host string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+host+"/style.css", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := trusting(t, authority, bound.Addr().String()).Do(r)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s answers %d", host, resp.StatusCode)
		}
	}
	replace := func(file, by string) {
		t.Helper()
		data, err := os.ReadFile(by)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	presents("old.example.com")
	replace(old.CertFile, renewed.CertFile)
	presents("old.example.com")
	presents("old.example.com")
	replace(old.KeyFile, renewed.KeyFile)
	presents("new.example.com")
	stop()
	n := strings.Count(log.String(), "the previous one stays in use")
	if n != 1 || !strings.Contains(log.String(), "read a changed") {
		t.Errorf("the log says %d times that the files do not fit: %s", n, log.String())
	}
}

// trusting returns a client that trusts an authority, and connects to one address.
func trusting(t *testing.T, a brokertest.Authority, address string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}
