package page_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/oidctest"
)

// team is a page into which people sign in.
type team struct {
	*server

	provider oidctest.Provider
	address  string // where it listens
}

// serveTeam serves a page for people of the provider: rita may look, otto may replay, edna may all.
func serveTeam(t *testing.T, e *engine, change func(*page.Config)) *team {
	t.Helper()
	return serveTeamOn(t, e, page.Binding{Address: "127.0.0.1:0", SignIn: true}, change)
}

func serveTeamOn(t *testing.T, e *engine, binding page.Binding, change func(*page.Config)) *team {
	t.Helper()
	bound, err := page.Listen(t.Context(), binding)
	if err != nil {
		t.Fatal(err)
	}
	out := &team{provider: oidctest.Start(t, page.RedirectURL(bound.Base)), address: bound.Addr().String()}
	if bound.Access.Provider, err = page.Discover(t.Context(), signInWith(t, out.provider.Issuer)); err != nil {
		t.Fatal(err)
	}
	out.server = serveWith(t, e, func(c *page.Config) {
		c.Access = bound.Access
		change(c)
	})
	out.http = &httptest.Server{URL: bound.Base}
	beginOn(t, out.Page, bound)
	return out
}

// signInWith describes a provider.
func signInWith(t *testing.T, issuer string) page.SignIn {
	t.Helper()
	grants, err := page.ParseGrants([]string{
		"reader=" + oidctest.Support, "operator=" + oidctest.OnCall, "editor=" + oidctest.Owners,
	})
	if err != nil {
		t.Fatal(err)
	}
	return page.SignIn{
		Issuer: issuer, ClientID: "desk", SecretFile: tokenFile(t, oidctest.Secret), GroupsClaim: "groups",
		Scopes: []string{"profile", "email"}, Grants: grants,
	}
}

// browser is a client without a session.
func (s *team) browser(t *testing.T) *http.Client {
	t.Helper()
	return oidctest.Client(t, s.http.URL)
}

// back signs a person in at the provider, and returns the address at which the person comes back.
func (s *team) back(t *testing.T, c *http.Client, name, to string) string {
	t.Helper()
	back := oidctest.Back(t, c, s.http.URL+"/sign-in?to="+url.QueryEscape(to), name)
	if !strings.HasPrefix(back, s.http.URL+"/signed-in?") {
		t.Fatalf("the provider leads to %q", back)
	}
	return back
}

// signsIn signs a person in, and makes the requests of the server those of the person.
func (s *team) signsIn(t *testing.T, name string) {
	t.Helper()
	c := s.browser(t)
	resp, text := oidctest.Fetch(t, c, "GET", s.back(t, c, name, ""), nil)
	if resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s is answered with %d: %s", name, resp.StatusCode, text)
	}
	s.client = c
	s.csrf, _ = s.get(t, 200, "/api/session")["csrf"].(string)
}

// People sign in at a provider. Their groups, which this provider tells at its userinfo endpoint,
// say what they may do, and their address names their runs, if it is verified.
func TestPeopleSignIn(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{views: orders(3)}, func(*page.Config) {})
	for name, want := range map[string]string{
		"rita": "rita@example.com reader", "otto": "otto@example.com operator", "edna": "edna editor",
	} {
		s.signsIn(t, name)
		session := s.get(t, 200, "/api/session")
		if got := fmt.Sprint(session["by"], " ", session["role"]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	c := s.browser(t)
	resp, text := oidctest.Fetch(t, c, "GET", s.back(t, c, "nora", ""), nil)
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "You are nora@example.com, and none of your groups has a role") {
		t.Errorf("a person without a role is answered with %d: %s", resp.StatusCode, text)
	}
	s.client = c
	s.get(t, http.StatusUnauthorized, "/api/session")
}

// A client without a secret is known by the proof of its sign-in (PKCE) alone.
func TestAClientWithoutASecret(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{}, func(c *page.Config) {
		in := c.Access.Provider.SignIn
		in.ClientID, in.SecretFile = "public", ""
		var err error
		if c.Access.Provider, err = page.Discover(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	})
	s.signsIn(t, "otto")
	if got := s.get(t, 200, "/api/session")["role"]; got != "operator" {
		t.Errorf("the role is %v", got)
	}
}

// A session begins with a new cookie, which no script reads, leads back to the part of the page
// that was open, and ends when the person signs out.
func TestASession(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{views: orders(3)}, func(*page.Config) {})
	c := s.browser(t)
	var cookies []string
	for range 2 {
		resp, _ := oidctest.Fetch(t, c, "GET", s.back(t, c, "otto", "#/queue/billing.dead"), nil)
		if at := resp.Header.Get("Location"); at != s.http.URL+"/#/queue/billing.dead" {
			t.Errorf("the sign-in leads to %s", at)
		}
		for _, one := range resp.Cookies() {
			if one.Value == "" {
				continue
			}
			cookies = append(cookies, one.Name+"="+one.Value)
			if !one.HttpOnly || one.SameSite != http.SameSiteLaxMode || one.Domain != "" || one.Path != "/" {
				t.Errorf("the cookie is %v", one)
			}
		}
	}
	if len(cookies) != 2 || cookies[0] == cookies[1] {
		t.Fatalf("two sign-ins give the cookies %v", cookies)
	}
	asks := func(cookie string) int {
		resp, _ := s.do(t, "GET", "/api/session", nil, func(r *http.Request) { r.Header.Set("Cookie", cookie) })
		return resp.StatusCode
	}
	if was, is := asks(cookies[0]), asks(cookies[1]); was != 401 || is != 200 {
		t.Errorf("the cookie of the first sign-in is answered with %d, that of the second with %d", was, is)
	}
	s.client = c
	s.post(t, http.StatusForbidden, "/api/sign-out", map[string]any{}) // another site cannot do it
	s.csrf, _ = s.get(t, 200, "/api/session")["csrf"].(string)
	s.post(t, http.StatusOK, "/api/sign-out", map[string]any{})
	if got := asks(cookies[1]); got != 401 {
		t.Errorf("after the sign-out the cookie is answered with %d", got)
	}
}

// An answer of the provider is good for the browser that asked, and once.
func TestASignInOfAnotherBrowserIsRefused(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{}, func(*page.Config) {})
	mine, other := s.browser(t), s.browser(t)
	at := s.back(t, mine, "otto", "")
	forged := strings.Replace(s.back(t, other, "rita", ""), "state=", "state=x", 1)
	for name, refused := range map[string]struct {
		client *http.Client
		at     string
	}{
		"another browser": {other, at}, "another state": {other, forged},
		"no state": {mine, s.http.URL + "/signed-in?code=x"},
		"another end of the state": {
			mine, regexp.MustCompile(`state=[^&]*`).ReplaceAllString(s.back(t, mine, "otto", ""), "${0}x"),
		},
		"a wrong code": {mine, regexp.MustCompile(`code=[^&]*`).ReplaceAllString(s.back(t, mine, "otto", ""), "code=x")},
		"an error":     {mine, regexp.MustCompile(`code=[^&]*`).ReplaceAllString(s.back(t, mine, "otto", ""), "error=access_denied")},
	} {
		resp, text := oidctest.Fetch(t, refused.client, "GET", refused.at, nil)
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "Sign in again.") {
			t.Errorf("%s is answered with %d: %s", name, resp.StatusCode, text)
		}
	}
	for n, want := range []int{http.StatusSeeOther, http.StatusUnauthorized} {
		if resp, text := oidctest.Fetch(t, mine, "GET", at, nil); resp.StatusCode != want {
			t.Errorf("try %d is answered with %d: %s", n, resp.StatusCode, text)
		}
	}
	if got := s.Sessions(); got != 1 {
		t.Errorf("%d sessions have begun, want 1", got)
	}
}

// The nonce ties the token to the browser that asked, and the verifier (PKCE) the code.
func TestTheNonceAndTheVerifierAreChecked(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := serveTeam(t, &engine{}, func(c *page.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	at, err := url.Parse(s.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	for part, says := range map[int]string{1: "its nonce differs", 2: "exchange the code"} {
		log.Reset()
		c := s.browser(t)
		back := s.back(t, c, "otto", "")
		cookie := c.Jar.Cookies(at)[0]
		parts := strings.Split(cookie.Value, ".")
		parts[part] = strings.Repeat("x", 43)
		cookie.Value = strings.Join(parts, ".")
		c.Jar.SetCookies(at, []*http.Cookie{cookie})
		if resp, text := oidctest.Fetch(t, c, "GET", back, nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("part %d is not checked: %d: %s", part, resp.StatusCode, text)
		}
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log is %s", log.String())
		}
	}
	if got := s.Sessions(); got > 0 {
		t.Errorf("%d sessions have begun", got)
	}
}

// Sign-ins that were begun and not ended do not fill the headers of a browser.
func TestSignInsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{}, func(*page.Config) {})
	c := s.browser(t)
	for range 40 {
		oidctest.Fetch(t, c, "GET", s.http.URL+"/sign-in?to="+url.QueryEscape("#/"+strings.Repeat("x", 900)), nil)
	}
	at, err := url.Parse(s.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(c.Jar.Cookies(at)); got > 4 {
		t.Errorf("the browser has %d cookies", got)
	}
	if resp, text := oidctest.Fetch(t, c, "GET", s.back(t, c, "otto", ""), nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the sign-in after that is answered with %d: %s", resp.StatusCode, text)
	}
}

// Under another name of this machine a sign-in begins at the name to which the provider leads back.
func TestASignInBeginsAtTheNameOfThePage(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{}, func(*page.Config) {})
	const path = "/sign-in?to=%23%2Fruns"
	other := strings.Replace(s.http.URL, "127.0.0.1", "localhost", 1)
	resp, _ := oidctest.Fetch(t, s.browser(t), "GET", other+path, nil)
	if at := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || at != s.http.URL+path {
		t.Errorf("it leads to %q with %d", at, resp.StatusCode)
	}
}

// The token of the local mode opens nothing where people sign in.
func TestNoTokenOpensThePageOfATeam(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, &engine{}, func(*page.Config) {})
	if got := s.URL(s.http.URL); got != s.http.URL+"/" {
		t.Errorf("the URL is %s", got)
	}
	for _, path := range []string{"/open", "/open?token=", "/open?token=x"} {
		resp, text := s.do(t, "GET", path, nil, nil)
		if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 ||
			!strings.Contains(text, "Sign in with localhost:") {
			t.Errorf("%s is answered with %d: %s", path, resp.StatusCode, text)
		}
	}
}

// A provider that is described wrongly is refused when the page starts.
func TestAWrongProviderIsRefused(t *testing.T) {
	t.Parallel()
	good := signInWith(t, oidctest.Start(t, "http://127.0.0.1/signed-in").Issuer)
	for name, c := range map[string]struct {
		change func(*page.SignIn)
		says   string
		wrong  bool
	}{
		"plain http":      {func(s *page.SignIn) { s.Issuer = "http://login.example.com" }, "not an https:// URL", true},
		"no URL":          {func(s *page.SignIn) { s.Issuer = "login.example.com" }, "not an https:// URL", true},
		"no client":       {func(s *page.SignIn) { s.ClientID = "" }, "--oidc-client", true},
		"no role":         {func(s *page.SignIn) { s.Grants = nil }, "--role reader=GROUP", true},
		"an empty secret": {func(s *page.SignIn) { s.SecretFile = tokenFile(t, "") }, "is empty", true},
		"no secret file":  {func(s *page.SignIn) { s.SecretFile = "missing" }, "read --oidc-secret-file", false},
		"another issuer":  {func(s *page.SignIn) { s.Issuer += "/" }, "did not match", false},
		"no provider":     {func(s *page.SignIn) { s.Issuer = "http://localhost:1" }, "localhost:1/.well-known/", false},
	} {
		s := good
		c.change(&s)
		_, err := page.Discover(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, page.ErrSignIn) != c.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}
