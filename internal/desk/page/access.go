package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
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
	// Base is the URL of the page as browsers know it, without a slash at its end. It is needed with
	// a provider, and with a proxy.
	Base string
	// Proxied: a reverse proxy serves the page at Base. Its requests may have the path of Base, or
	// not, and have the host of Base, or one that a page without a proxy knows.
	Proxied bool
	// Provider signs people in, in place of a token. Nil: a token opens the page.
	Provider *Provider
}

// sessions knows the tokens that open the page, and the cookies it gave out.
type sessions struct {
	mu     sync.Mutex
	secret string
	once   string              // the one-time token; empty once it is used
	all    map[string]*session // by cookie
}

// session is a browser that is signed in.
type session struct {
	csrf  string
	who   person
	begun time.Time
	ends  time.Time // zero: with the server
}

// maxSessions is how many browsers may be signed in, and maxOwn how many of them by one person whom
// a provider has signed in. The oldest ends when there are more.
const (
	maxSessions = 1000
	maxOwn      = 20
)

func (s *sessions) start(a Access) {
	s.all, s.secret = map[string]*session{}, a.Secret
	if s.secret == "" && a.Provider == nil {
		s.once = rand.Text()
	}
}

// add begins a session and returns its cookie.
func (s *sessions) add(begun session) (cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun.who.signedIn {
		s.trim(maxOwn, func(other *session) bool { return other.who.subject == begun.who.subject })
	}
	s.trim(maxSessions, func(*session) bool { return true })
	cookie, begun.csrf = rand.Text(), rand.Text()
	s.all[cookie] = &begun
	return cookie
}

// trim ends the oldest of these sessions, so that there is room for one more.
func (s *sessions) trim(limit int, these func(*session) bool) {
	var found []string
	for cookie, one := range s.all {
		if these(one) {
			found = append(found, cookie)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return s.all[a].begun.Compare(s.all[b].begun) })
	for _, cookie := range found[:max(0, len(found)+1-limit)] {
		delete(s.all, cookie)
	}
}

// find returns the session of a cookie. It forgets a session that has ended.
func (s *sessions) find(cookie string, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[cookie]
	if !ok {
		return session{}, false
	}
	if !one.ends.IsZero() && !now.Before(one.ends) {
		delete(s.all, cookie)
		return session{}, false
	}
	return *one, true
}

func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, cookie)
}

// accepts reports whether a token opens the page, and uses a one-time token up. There is no pause
// after a wrong token: it would keep out a person with the right one, and a token is too long to
// be guessed, see minToken.
func (s *sessions) accepts(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.secret
	if want == "" {
		want = s.once
	}
	if want == "" || subtle.ConstantTimeCompare([]byte(token), []byte(want)) != 1 {
		return false
	}
	s.once = ""
	return true
}

// URL returns the address to open, with the one-time token if there is one. The base is such as
// http://127.0.0.1:8642.
func (p *Page) URL(base string) string {
	switch {
	case p.Access.Provider != nil:
		return base + "/"
	case p.sessions.once == "":
		return base + "/open"
	}
	return base + "/open?token=" + url.QueryEscape(p.sessions.once)
}

// headers are the headers of every response: nothing is loaded from elsewhere, framed, sent
// elsewhere, guessed or kept. With the referrer policy no-referrer a browser would send the form of
// the token with the origin null, see [Page.sameOrigin].
var headers = map[string]string{ //nolint:gochecknoglobals // a constant table
	"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
		"object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "same-origin",
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
			fail(w, http.StatusMisdirectedRequest, "this server does not answer for the host "+r.Host+"; "+p.remedy())
			return
		}
		root := p.root()
		switch {
		case root != "" && r.URL.Path == root:
			http.Redirect(w, r, p.Access.Base+"/", http.StatusSeeOther)
		case root != "" && strings.HasPrefix(r.URL.Path, root+"/"):
			http.StripPrefix(root, next).ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// remedy says what to do where a request is for another host.
func (p *Page) remedy() string {
	if p.Access.Proxied {
		return "open " + p.Access.Base + "/; the proxy there must pass the host on, as nginx does with " +
			"'proxy_set_header Host $host'"
	}
	return "open the URL that 'dlxctl desk serve' printed, with localhost or 127.0.0.1"
}

// base is the URL of the page. It is empty for a page without a proxy that no [Listen] made.
func (p *Page) base() *url.URL {
	u, err := url.Parse(p.Access.Base)
	if err != nil { // Listen has read it before
		return &url.URL{}
	}
	return u
}

// root is the path at which a proxy serves the page, without a slash at its end.
func (p *Page) root() string {
	if !p.Access.Proxied {
		return ""
	}
	return p.base().Path
}

// knows reports whether a Host header names this server.
func (p *Page) knows(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if p.Access.Proxied && strings.EqualFold(host, p.base().Hostname()) {
		return true
	}
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
func (p *Page) cookieName(r *http.Request) string {
	host := r.Host
	if p.Access.Proxied {
		host = p.base().Host
	}
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		port = "0"
	}
	name := "dlxctl-desk-" + port
	switch {
	case p.Access.Provider == nil || !p.Access.Secure:
		return name
	case p.root() != "":
		return "__Secure-" + name // a browser takes it over TLS alone
	default:
		return "__Host-" + name // and from this host alone
	}
}

// cookie makes a cookie of the page. Empty ends the one that the browser has.
func (p *Page) cookie(name, value string, sameSite http.SameSite) *http.Cookie {
	c := &http.Cookie{
		Name: name, Value: value, Path: p.root() + "/", HttpOnly: true, Secure: p.Access.Secure, SameSite: sameSite,
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

const fromElsewhere = "the request comes from another site; open the page itself, and do it there"

func (p *Page) notSignedIn() string {
	if p.Access.Provider != nil {
		return "this browser is not signed in, or its session has ended; sign in again"
	}
	return "this browser is not signed in; open the URL that 'dlxctl desk serve' printed"
}

func (p *Page) signed(r *http.Request) (session, bool) {
	cookie, err := r.Cookie(p.cookieName(r))
	if err != nil {
		return session{}, false
	}
	return p.sessions.find(cookie.Value, p.Now())
}

// enter lets only those pass who have the role that a route needs.
func (p *Page) enter(to route) http.Handler {
	if to.least == noRole {
		return to.handle
	}
	genuine := p.genuine(p.opened(to.handle))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, ok := p.signed(r)
		switch {
		case !ok && strings.HasPrefix(r.URL.Path, "/api/"):
			fail(w, http.StatusUnauthorized, p.notSignedIn())
		case !ok:
			p.ask(w, "", "")
		case s.who.role < to.least:
			fail(w, http.StatusForbidden, s.who.lacks("do this", to.least))
		default:
			genuine.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), personKey{}, s.who)))
		}
	})
}

// genuine lets only requests pass that the page itself sent: a POST has the CSRF token of its
// session, and comes from the same origin.
func (p *Page) genuine(next http.Handler) http.Handler {
	same := http.NewCrossOriginProtection()
	if p.Access.Proxied { // a proxy may send another host than that of the origin
		_ = same.AddTrustedOrigin(p.origin(nil)) // fails for no origin of a URL that Listen accepts
	}
	same.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, fromElsewhere)
	}))
	return same.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		s, ok := p.signed(r)
		got := r.Header.Get("X-Csrf-Token")
		if !ok || subtle.ConstantTimeCompare([]byte(got), []byte(s.csrf)) != 1 || !p.sameOrigin(r) {
			fail(w, http.StatusForbidden, "the request is not from this page; reload the page")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// sameOrigin reports whether a request names this server as its origin. Every browser sends the
// origin with a POST.
func (p *Page) sameOrigin(r *http.Request) bool {
	return r.Header.Get("Origin") == p.origin(r)
}

func (p *Page) origin(r *http.Request) string {
	if p.Access.Proxied {
		base := p.base()
		return base.Scheme + "://" + base.Host
	}
	scheme := "http"
	if p.Access.Secure {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// owner is who has started the page: the actions of --allow limit that person alone.
func (p *Page) owner() person { return person{name: p.By, role: editor, allow: p.Allow} }

// open exchanges the token for a cookie. It answers with a page that goes on by itself in place
// of a redirect: a browser does not send a strict cookie after a redirect from another site, such
// as a terminal in a browser.
func (p *Page) open(w http.ResponseWriter, r *http.Request) {
	if p.Access.Provider != nil {
		p.ask(w, "", "")
		return
	}
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
		p.ask(w, "", "The token of --token-file is not accepted in a URL, which browsers and proxies keep. Enter it here.")
		return
	}
	if token == "" {
		p.ask(w, "", "")
		return
	}
	ok := p.sessions.accepts(token)
	switch {
	case !ok && p.Access.Secret == "":
		p.ask(w, "", "This link was used before, or is wrong. A link opens the page once: stop "+
			"'dlxctl desk serve' and start it again for a new one.")
		return
	case !ok:
		p.ask(w, "", "The token is wrong.")
		return
	}
	cookie := p.sessions.add(session{who: p.owner(), begun: p.Now()})
	http.SetCookie(w, p.cookie(p.cookieName(r), cookie, http.SameSiteStrictMode))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = opened.Execute(w, map[string]any{"Root": p.root()})
}

// ask answers with the page for a browser that is not signed in. The part of the page to which a
// sign-in leads is such as #/runs.
func (p *Page) ask(w http.ResponseWriter, to, why string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	data := map[string]any{"Why": why, "Form": p.Access.Secret != "", "Root": p.root()}
	if p.Access.Provider != nil {
		data["Provider"], data["To"] = p.Access.Provider.name(), to
	}
	_ = closed.Execute(w, data)
}

//nolint:gochecknoglobals // constant templates
var (
	opened = template.Must(template.New("opened").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={{.Root}}/">
<title>dlxctl desk</title><link rel="icon" href="{{.Root}}/icon.svg"><link rel="stylesheet" href="{{.Root}}/style.css">
<main class="door"><p><a href="{{.Root}}/">Open the desk</a></p></main></html>
`))
	closed = template.Must(template.New("closed").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>dlxctl desk</title><link rel="icon" href="{{.Root}}/icon.svg"><link rel="stylesheet" href="{{.Root}}/style.css">
<main class="door"><h1>dlxctl desk</h1>
{{if .Why}}<p role="alert">{{.Why}}</p>{{end}}
{{if .Provider}}<p><a class="button" id="sign-in" href="{{.Root}}/sign-in?to={{.To}}">Sign in with {{.Provider}}</a></p>
<script type="module" src="{{.Root}}/door.js"></script>
{{else if .Form}}<form method="post" action="{{.Root}}/open">
<label for="token">Token, as in the file of --token-file</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button class="primary">Open the desk</button></form>
{{else}}<p>This browser is not signed in. Open the URL that <code>dlxctl desk serve</code> printed.</p>{{end}}
</main></html>
`))
)
