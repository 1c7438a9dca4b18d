package page_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// A browser without the cookie sees nothing but the page that says where the URL is.
func TestOnlyTheSignedInBrowserSeesThePage(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: orders(3)})
	for _, path := range []string{"/", "/main.js", "/index.html"} {
		resp, body := s.do(t, "GET", path, nil, nil)
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(body, "main.js") {
			t.Errorf("%s answers %d: %s", path, resp.StatusCode, body)
		}
	}
	for _, path := range []string{"/api/session", "/api/queues", "/api/rows", "/api/runs"} {
		s.get(t, http.StatusUnauthorized, path)
	}
	for _, path := range []string{
		"/api/look", "/api/message", "/api/source", "/api/command", "/api/propose", "/api/execute", "/api/runs/resume",
	} {
		s.post(t, http.StatusUnauthorized, path, map[string]any{})
	}
	if s.engine.looks > 0 {
		t.Error("a request without the cookie looked at a queue")
	}
}

// The token of the printed URL opens the page once. The cookie cannot be read by scripts, and is
// not sent with requests of other sites.
func TestTheTokenOpensThePageOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{})
	resp, _ := s.do(t, "GET", "/open?token=guessed", nil, nil)
	if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 {
		t.Errorf("a wrong token answers %d with the cookies %v", resp.StatusCode, resp.Cookies())
	}
	path := strings.TrimPrefix(s.URL(s.http.URL), s.http.URL)
	resp, _ = s.do(t, "GET", path, nil, nil) // a wrong one before it causes no pause
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("the token is answered with %d and the cookies %v", resp.StatusCode, resp.Cookies())
	}
	if c := resp.Cookies()[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	resp, body := s.do(t, "GET", path, nil, nil)
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "used before") || len(resp.Cookies()) > 0 {
		t.Errorf("the second use of the token answers %d: %s", resp.StatusCode, body)
	}
}

// A secret from a file opens the page by a form, any number of times, and is not in the URL.
func TestTheSecretOpensThePageByForm(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-more-than-32-characters"
	s := serveWith(t, &engine{}, func(c *page.Config) { c.Access = page.Access{Secret: secret} })
	if u := s.URL("https://desk.example.com"); strings.Contains(u, secret) || strings.Contains(u, "token=") {
		t.Errorf("the URL is %s", u)
	}
	form := func(token, origin string) *http.Response {
		resp, _ := s.do(t, "POST", "/open", nil, func(r *http.Request) {
			data := url.Values{"token": {token}}.Encode()
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", origin)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(data)), int64(len(data))
		})
		return resp
	}
	if resp := form(secret, "https://evil.example.com"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site answers %d", resp.StatusCode)
	}
	resp, body := s.do(t, "GET", "/open?token="+secret, nil, nil)
	if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 || strings.Contains(body, secret) {
		t.Errorf("the secret in a URL is answered with %d: %s", resp.StatusCode, body)
	}
	for range 2 {
		if resp := form(secret, s.http.URL); resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
			t.Errorf("the secret is answered with %d and the cookies %v", resp.StatusCode, resp.Cookies())
		}
	}
	if resp := form("wrong", s.http.URL); resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 {
		t.Errorf("a wrong secret is answered with %d", resp.StatusCode)
	}
	if _, body := s.do(t, "GET", "/open", nil, nil); !strings.Contains(body, `type="password"`) {
		t.Errorf("there is no form: %s", body)
	}
}

// Each response carries the headers that keep scripts, frames and caches out.
func TestEachResponseHasTheHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: orders(3)}).signIn(t)
	for _, path := range []string{"/", "/main.js", "/style.css", "/api/queues", "/open"} {
		resp, _ := s.do(t, "GET", path, nil, nil)
		policy := resp.Header.Get("Content-Security-Policy")
		for _, part := range []string{
			"default-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'",
			"require-trusted-types-for 'script'",
		} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s: %s", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: the policy allows too much: %s", path, policy)
		}
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
			"X-Frame-Options": "DENY",
		} {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q, not %q", path, name, got, value)
			}
		}
	}
}

// A request for another host is refused: a web site can make its name point at this server.
func TestOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{}).signIn(t)
	for host, status := range map[string]int{
		"127.0.0.1:9": 200, "localhost:9": 200, "LOCALHOST": 200, "[::1]:9": 200, "127.0.0.2": 200,
		"evil.example.com": 421, "localhost.evil.example.com:80": 421, "10.0.0.1": 421,
		"": 200, // the client fills it in
	} {
		resp, _ := s.do(t, "GET", "/open", nil, func(r *http.Request) { r.Host = host })
		if refused := resp.StatusCode == http.StatusMisdirectedRequest; refused != (status == 421) {
			t.Errorf("host %q: status %d", host, resp.StatusCode)
		}
	}
}

// A POST without the token of the session, or from another site, changes nothing.
func TestAForeignPostIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: orders(3)}, "replay").signIn(t)
	ask := map[string]any{"queue": "billing.dead"}
	for name, change := range map[string]func(*http.Request){
		"no token":       func(r *http.Request) { r.Header.Del("X-Csrf-Token") },
		"wrong token":    func(r *http.Request) { r.Header.Set("X-Csrf-Token", "guessed") },
		"no origin":      func(r *http.Request) { r.Header.Del("Origin") },
		"other origin":   func(r *http.Request) { r.Header.Set("Origin", "http://evil.example.com") },
		"opaque origin":  func(r *http.Request) { r.Header.Set("Origin", "null") },
		"other port":     func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
		"cross-site":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"same site only": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
	} {
		if resp, body := s.do(t, "POST", "/api/look", ask, change); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d: %s", name, resp.StatusCode, body)
		}
	}
	if s.engine.looks > 0 {
		t.Error("a refused request looked at a queue")
	}
	s.post(t, http.StatusOK, "/api/look", ask)
	if resp, _ := s.do(t, "GET", "/api/look", nil, nil); resp.StatusCode == http.StatusOK || s.engine.looks > 1 {
		t.Errorf("GET looks at a queue: status %d, %d looks", resp.StatusCode, s.engine.looks)
	}
}

// A request that is too large, or is not JSON, is refused.
func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: orders(3)}, "replay").signIn(t)
	s.post(t, http.StatusRequestEntityTooLarge, "/api/look", map[string]any{"queue": strings.Repeat("q", 2<<20)})
	s.post(t, http.StatusBadRequest, "/api/look", []int{1})
	s.post(t, http.StatusBadRequest, "/api/look", map[string]any{"queue": "billing.dead", "raw": true})
	s.post(t, http.StatusBadRequest, "/api/propose", map[string]any{
		"action": "replay", "queue": "billing.dead", "handles": slices.Repeat([]string{"a1b2c3000000"}, 1001),
	})
}

// The words of --allow are checked, and park allows to restore.
func TestAllowedWords(t *testing.T) {
	t.Parallel()
	_, err := page.ParseAllowed([]string{"replay", "resend"})
	if err == nil || !strings.Contains(err.Error(), `"resend"`) {
		t.Errorf("an unknown word is answered with %v", err)
	}
	for _, word := range []string{"restore", "Replay", ""} {
		if _, err := page.ParseAllowed([]string{word}); err == nil {
			t.Errorf("%q is accepted", word)
		}
	}
	got, err := page.ParseAllowed([]string{"park", "edit", "edit"})
	if want := (page.Allowed{"edit", "park", "restore"}); err != nil || !slices.Equal(got, want) {
		t.Errorf("allowed are %v, not %v (%v)", got, want, err)
	}
}
