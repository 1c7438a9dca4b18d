// Package oidctest starts a provider of OpenID Connect for tests, and signs people in.
//
// The provider is a module of its own in the folder provider: dlxctl needs none of what it needs.
package oidctest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Secret is the secret of the client "desk". The client "public" has none.
const Secret = "secret of the client"

// Support, OnCall and Owners are the groups of rita, otto and edna. Nora is in none of them. The
// password of each is secret.
const (
	Support = "support"
	OnCall  = "cn=on call,dc=example"
	Owners  = "owners"
)

// Provider is a provider that runs.
type Provider struct {
	Issuer string
	// Stop ends it, as the end of the test does.
	Stop func()
}

// starting is held while a provider starts: the first start compiles it.
var starting sync.Mutex //nolint:gochecknoglobals // of all tests

// Start starts a provider that leads people back to a URL. For the client "public" its port does
// not matter.
func Start(tb testing.TB, redirect string) Provider {
	tb.Helper()
	starting.Lock()
	defer starting.Unlock()
	const name = "github.com/dlxctl/dlxctl/internal/oidctest"
	folder, err := exec.CommandContext(tb.Context(), "go", "list", "-f", "{{.Dir}}", name).Output()
	if err != nil {
		tb.Fatal(err)
	}
	c := exec.CommandContext(context.WithoutCancel(tb.Context()), "go", "run", ".", redirect)
	c.Dir = strings.TrimSpace(string(folder)) + "/provider"
	var log bytes.Buffer // shown only if it does not start: it logs each request
	c.Stderr = &log
	in, err := c.StdinPipe() // it ends with this process, whatever ends that
	if err != nil {
		tb.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.Start(); err != nil {
		tb.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = in.Close(); _ = c.Wait() })
	tb.Cleanup(stop)
	issuer, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		tb.Fatalf("the provider does not start: %v: %s", err, log.String())
	}
	return Provider{Issuer: strings.TrimSpace(issuer), Stop: stop}
}

// Client returns a client that keeps cookies, and follows redirects, but for those to a page.
func Client(tb testing.TB, page string) *http.Client {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), page) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// Fetch sends a request and returns the answer with its text.
func Fetch(tb testing.TB, c *http.Client, method, address string, form url.Values) (*http.Response, string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp, string(text)
}

// Back signs a person in at the provider to which an address leads. It returns the address to which
// the provider leads back.
func Back(tb testing.TB, c *http.Client, address, name string) string {
	tb.Helper()
	resp, text := Fetch(tb, c, "GET", address, nil)
	id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(text)
	if id == nil {
		tb.Fatalf("%s is not a form: %s", resp.Request.URL, text)
	}
	login := resp.Request.URL
	login.RawQuery, login.Path = "", "/login/username"
	form := url.Values{"id": {id[1]}, "username": {name}, "password": {"secret"}}
	resp, text = Fetch(tb, c, "POST", login.String(), form)
	back := resp.Header.Get("Location")
	if !strings.Contains(back, "code=") {
		tb.Fatalf("the provider leads to %q: %s", back, text)
	}
	return back
}
