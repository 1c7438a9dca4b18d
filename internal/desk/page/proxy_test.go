package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/oidctest"
)

// Behind a reverse proxy that ends TLS, people sign in and use the page below a path, whether the
// proxy passes host and path on, or not.
func TestThePageBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, rewrite := range map[string]func(*httputil.ProxyRequest, *url.URL){
		"passes host and path on": func(r *httputil.ProxyRequest, to *url.URL) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		"sets the host and cuts the path off": func(r *httputil.ProxyRequest, to *url.URL) {
			r.Out.URL.Path = strings.TrimPrefix(r.Out.URL.Path, "/desk")
			r.SetURL(to)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := &url.URL{Scheme: "http"}
			proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) { rewrite(r, to) },
			})
			t.Cleanup(proxy.Close)
			s := serveTeamOn(t, &engine{views: orders(3)}, page.Binding{
				Address: "127.0.0.1:0", SignIn: true, External: proxy.URL + "/desk/",
			}, func(*page.Config) {})
			to.Host = s.address
			s.throughAProxy(t, proxy)
		})
	}
}

// throughAProxy signs a person in and looks at a queue.
func (s *team) throughAProxy(t *testing.T, proxy *httptest.Server) {
	t.Helper()
	if s.http.URL != proxy.URL+"/desk" {
		t.Fatalf("the page is at %s", s.http.URL)
	}
	c := s.browser(t)
	c.Transport = proxy.Client().Transport
	resp, text := oidctest.Fetch(t, c, "GET", s.http.URL+"/", nil)
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, `href="/desk/sign-in?to="`) ||
		regexp.MustCompile(`(href|src)="/[^d]`).MatchString(text) {
		t.Errorf("the page that asks to sign in answers %d: %s", resp.StatusCode, text)
	}
	resp, text = oidctest.Fetch(t, c, "GET", s.back(t, c, "otto", "#/runs"), nil)
	if at := resp.Header.Get("Location"); at != s.http.URL+"/#/runs" {
		t.Fatalf("the sign-in leads to %q: %s", at, text)
	}
	for _, one := range resp.Cookies() {
		if !one.Secure || one.Path != "/desk/" || !strings.HasPrefix(one.Name, "__Secure-dlxctl-desk-") {
			t.Errorf("a cookie is %v", one)
		}
	}
	resp, text = oidctest.Fetch(t, c, "GET", s.http.URL+"/", nil)
	if resp.StatusCode != 200 || regexp.MustCompile(`(href|src)="/`).MatchString(text) {
		t.Errorf("the page answers %d: %s", resp.StatusCode, text)
	}
	s.client = c
	s.csrf, _ = s.get(t, 200, "/api/session")["csrf"].(string)
	for origin, want := range map[string]int{
		proxy.URL: 200, "http://" + s.address: 403, "https://" + s.address: 403, "https://evil.example.com": 403,
	} {
		resp, text := s.do(t, "POST", "/api/look", map[string]any{"queue": "billing.dead"}, func(r *http.Request) {
			r.Header.Set("Origin", origin)
		})
		if resp.StatusCode != want {
			t.Errorf("the origin %s is answered with %d: %s", origin, resp.StatusCode, text)
		}
	}
}

// A page behind a proxy answers for no other host than that of the proxy, and its own.
func TestThePageBehindAProxyRefusesOtherHosts(t *testing.T) {
	t.Parallel()
	bound, err := page.Listen(t.Context(), page.Binding{
		Address: "127.0.0.1:0", External: "https://OPS.example.com:443/desk",
		TokenFile: tokenFile(t, strings.Repeat("k", 32)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bound.Close() })
	s := serveWith(t, &engine{}, func(c *page.Config) { c.Access = bound.Access })
	if got := s.URL(bound.Base); got != "https://ops.example.com/desk/open" {
		t.Errorf("the URL is %s", got)
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, _ := s.do(t, "GET", "/desk", nil, nil)
	if at := resp.Header.Get("Location"); at != "https://ops.example.com/desk/" {
		t.Errorf("without a slash it leads to %q", at)
	}
	for host, want := range map[string]int{
		"ops.example.com": 401, "ops.example.com:443": 401, "127.0.0.1:9420": 401, "evil.example.com": 421,
		"ops.example.com.evil.example.com": 421, "desk:9420": 421,
	} {
		resp, text := s.do(t, "GET", "/desk/open", nil, func(r *http.Request) {
			r.Host = host
			r.Header.Set("X-Forwarded-Host", "ops.example.com")
		})
		if resp.StatusCode != want {
			t.Errorf("%s: %d: %s", host, resp.StatusCode, text)
		}
		if want == 421 && (!strings.Contains(text, "open https://ops.example.com/desk/; the proxy there must pass the host on") ||
			strings.Contains(text, "localhost")) {
			t.Errorf("%s is answered with %s", host, text)
		}
		if want == 401 && !strings.Contains(text, `action="/desk/open"`) {
			t.Errorf("the form is %s", text)
		}
	}
}
