package page

import (
	"crypto/rand"
	"crypto/subtle"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// Access is who may open the page.
type Access struct {
	// Secret opens the page any number of times. Empty: a one-time token opens it, once.
	Secret string
	// Hosts reports whether a name or address in a URL is this server. Nil: only localhost and
	// loopback addresses are, so that no other name can be made to point here.
	Hosts func(host string) bool
	// Secure says that the page is served with TLS.
	Secure bool
}

// sessions knows the tokens that open the page, and the cookies it gave out.
type sessions struct {
	mu     sync.Mutex
	secret string
	once   string            // the one-time token; empty once it is used
	csrf   map[string]string // the CSRF token of each cookie
}

// maxSessions is how many browsers may be signed in with one secret.
const maxSessions = 100

func (s *sessions) start(a Access) {
	s.csrf, s.secret = map[string]string{}, a.Secret
	if s.secret == "" {
		s.once = rand.Text()
	}
}

// open exchanges a token for a cookie. There is no pause after a wrong token: it would keep out a
// person with the right one, and a token is too long to be guessed, see minToken.
func (s *sessions) open(token string) (cookie string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.secret
	if want == "" {
		want = s.once
	}
	if want == "" || subtle.ConstantTimeCompare([]byte(token), []byte(want)) != 1 {
		return "", false
	}
	if len(s.csrf) >= maxSessions {
		clear(s.csrf)
	}
	s.once = ""
	cookie = rand.Text()
	s.csrf[cookie] = rand.Text()
	return cookie, true
}

// token returns the CSRF token of a cookie.
func (s *sessions) token(cookie string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, ok := s.csrf[cookie]
	return token, ok
}

// URL returns the address to open, with the one-time token if there is one. The base is such as
// http://127.0.0.1:8642.
func (p *Page) URL(base string) string {
	if p.sessions.once == "" {
		return base + "/open"
	}
	return base + "/open?token=" + url.QueryEscape(p.sessions.once)
}

// headers are the headers of every response: nothing is loaded from elsewhere, framed, sent
// elsewhere, guessed or kept.
var headers = map[string]string{ //nolint:gochecknoglobals // a constant table
	"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
		"object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
}

// guard sets the headers, and refuses requests for other hosts: a web site whose name was made
// to point at this server (DNS rebinding) sends its own name.
func (p *Page) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !p.knows(r.Host) {
			fail(w, http.StatusMisdirectedRequest, "this server does not answer for the host "+r.Host+
				"; open the URL that 'dlxctl desk serve' printed, with localhost or 127.0.0.1")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows reports whether a Host header names this server.
func (p *Page) knows(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if p.Access.Hosts != nil {
		return p.Access.Hosts(host)
	}
	return isLocal(host)
}

// isLocal reports whether a name or address is this machine, and no other.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// cookieName is the name of the cookie. Browsers send the cookies of one host to all its ports,
// so the name has the port: two desks on one machine do not sign each other out.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "0"
	}
	return "dlxctl-desk-" + port
}

const (
	notSignedIn   = "this browser is not signed in; open the URL that 'dlxctl desk serve' printed"
	fromElsewhere = "the request comes from another site; open the page itself, and do it there"
)

// signedIn lets only signed-in browsers pass.
func (p *Page) signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(cookieName(r))
		if err == nil {
			if _, ok := p.sessions.token(cookie.Value); ok {
				next.ServeHTTP(w, r)
				return
			}
		}
		if strings.HasPrefix(r.URL.Path, "/api/") {
			fail(w, http.StatusUnauthorized, notSignedIn)
			return
		}
		p.ask(w, "")
	})
}

// genuine lets only requests pass that the page itself sent: a POST has the CSRF token of its
// session, and comes from the same origin.
func (p *Page) genuine(next http.Handler) http.Handler {
	same := http.NewCrossOriginProtection()
	same.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, fromElsewhere)
	}))
	return same.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		cookie, err := r.Cookie(cookieName(r))
		if err != nil {
			fail(w, http.StatusUnauthorized, notSignedIn)
			return
		}
		want, _ := p.sessions.token(cookie.Value)
		got := r.Header.Get("X-Csrf-Token")
		if want == "" || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 || !p.sameOrigin(r) {
			fail(w, http.StatusForbidden, "the request is not from this page; reload the page")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// sameOrigin reports whether a request names this server as its origin. Every browser sends the
// origin with a POST.
func (p *Page) sameOrigin(r *http.Request) bool {
	scheme := "http"
	if p.Access.Secure {
		scheme = "https"
	}
	return r.Header.Get("Origin") == scheme+"://"+r.Host
}

// open exchanges the token for a cookie. It answers with a page that goes on by itself in place
// of a redirect: a browser does not send a strict cookie after a redirect from another site, such
// as a terminal in a browser.
func (p *Page) open(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	token := r.URL.Query().Get("token")
	if r.Method == http.MethodPost {
		if !p.sameOrigin(r) {
			fail(w, http.StatusForbidden, fromElsewhere)
			return
		}
		token = r.PostFormValue("token")
	}
	if r.Method != http.MethodPost && token != "" && p.Access.Secret != "" {
		p.ask(w, "The token of --token-file is not accepted in a URL, which browsers and proxies keep. Enter it here.")
		return
	}
	if token == "" {
		p.ask(w, "")
		return
	}
	cookie, ok := p.sessions.open(token)
	switch {
	case !ok && p.Access.Secret == "":
		p.ask(w, "This link was used before, or is wrong. A link opens the page once: stop "+
			"'dlxctl desk serve' and start it again for a new one.")
		return
	case !ok:
		p.ask(w, "The token is wrong.")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: cookie, Path: "/", HttpOnly: true, Secure: p.Access.Secure,
		SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = opened.Execute(w, nil)
}

// ask answers with the page for a browser that is not signed in.
func (p *Page) ask(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_ = closed.Execute(w, map[string]any{"Why": why, "Form": p.Access.Secret != ""})
}

//nolint:gochecknoglobals // constant templates
var (
	opened = template.Must(template.New("opened").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/">
<title>dlxctl desk</title><link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css">
<main class="door"><p><a href="/">Open the desk</a></p></main></html>
`))
	closed = template.Must(template.New("closed").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>dlxctl desk</title><link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css">
<main class="door"><h1>dlxctl desk</h1>
{{if .Why}}<p role="alert">{{.Why}}</p>{{end}}
{{if .Form}}<form method="post" action="/open">
<label for="token">Token, as in the file of --token-file</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button class="primary">Open the desk</button></form>
{{else}}<p>This browser is not signed in. Open the URL that <code>dlxctl desk serve</code> printed.</p>{{end}}
</main></html>
`))
)
