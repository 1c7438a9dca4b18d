package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/dlxctl/dlxctl/topology"
)

// ErrSignIn is wrapped by the error of a provider that was described wrongly.
var ErrSignIn = errors.New("refused the sign-in")

// SignIn describes a provider of OpenID Connect, and who may do what.
type SignIn struct {
	// Issuer is the URL of the provider, and ClientID the name of the page at the provider.
	Issuer, ClientID string
	// SecretFile is the file with the secret of the client, which is read for each sign-in. Empty:
	// the provider asks for none.
	SecretFile string
	// GroupsClaim is the claim with the groups of a person.
	GroupsClaim string
	// Scopes are asked for with openid. The scope groups is added where the provider lists it.
	Scopes []string
	Grants []Grant
}

// Provider signs people in. It is safe for concurrent use.
type Provider struct {
	SignIn

	oidc     *oidc.Provider
	verifier *oidc.IDTokenVerifier
	style    oauth2.AuthStyle
	client   *http.Client
}

// sessionLife is how long a session lasts. A person who loses a group, or the account, has the
// role until then.
const sessionLife = 8 * time.Hour

// signInTime is how long a person may take to sign in at the provider.
const signInTime = 10 * time.Minute

// Discover reads how a provider signs people in.
func Discover(ctx context.Context, s SignIn) (*Provider, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	p := &Provider{SignIn: s, client: &http.Client{Timeout: 10 * time.Second}}
	var err error
	if p.oidc, err = oidc.NewProvider(oidc.ClientContext(ctx, p.client), s.Issuer); err != nil {
		return nil, fmt.Errorf("read %s/.well-known/openid-configuration: %w", strings.TrimSuffix(s.Issuer, "/"), err)
	}
	var told struct {
		Scopes  []string `json:"scopes_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.oidc.Claims(&told); err != nil {
		return nil, fmt.Errorf("read what %s supports: %w", s.Issuer, err)
	}
	p.Scopes = append([]string{oidc.ScopeOpenID}, s.Scopes...)
	if slices.Contains(told.Scopes, "groups") {
		p.Scopes = append(p.Scopes, "groups")
	}
	slices.Sort(p.Scopes)
	p.Scopes = slices.Compact(p.Scopes)
	// Not left to be found out: a wrong try can use the code up.
	p.style = oauth2.AuthStyleInHeader
	basic := len(told.Methods) == 0 || slices.Contains(told.Methods, "client_secret_basic")
	if s.SecretFile == "" || !basic {
		p.style = oauth2.AuthStyleInParams
	}
	keys := oidc.ClientContext(context.WithoutCancel(ctx), p.client) // they are read again later
	p.verifier = p.oidc.VerifierContext(keys, &oidc.Config{ClientID: s.ClientID})
	return p, nil
}

// check refuses what lets no person in, or lets the answers of the provider be forged.
func (s SignIn) check() error {
	u, err := url.Parse(s.Issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLocal(u.Hostname())):
		return fmt.Errorf("%w: --oidc-issuer %q is not an https:// URL; http:// is accepted for localhost alone",
			ErrSignIn, s.Issuer)
	case s.ClientID == "":
		return fmt.Errorf("%w: --oidc-issuer needs --oidc-client, the ID of the page at the provider", ErrSignIn)
	case len(s.Grants) == 0:
		return fmt.Errorf("%w: --oidc-issuer needs --role; write --role reader=GROUP, operator=GROUP or editor=GROUP", ErrSignIn)
	}
	_, err = s.secret()
	return err
}

// secret reads the secret of the client.
func (s SignIn) secret() (string, error) {
	if s.SecretFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(s.SecretFile)
	if err != nil {
		return "", fmt.Errorf("read --oidc-secret-file: %w", err)
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("%w: the file of --oidc-secret-file, %s, is empty", ErrSignIn, s.SecretFile)
	}
	return secret, nil
}

// name is how people know the provider.
func (p *Provider) name() string {
	u, err := url.Parse(p.Issuer)
	if err != nil {
		return p.Issuer
	}
	return u.Host
}

// config is the client of the page at the provider.
func (p *Provider) config(base, secret string) *oauth2.Config {
	endpoint := p.oidc.Endpoint()
	endpoint.AuthStyle = p.style
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: secret, Endpoint: endpoint, RedirectURL: RedirectURL(base),
		Scopes: p.Scopes,
	}
}

// RedirectURL is where a provider sends people back to, for a page with this base. The provider
// must be told.
func RedirectURL(base string) string { return base + "/signed-in" }

// attempt is a sign-in that has begun. The browser keeps it in a cookie of its own: the server
// remembers nothing of people who have not signed in.
type attempt struct {
	// state and nonce tie the answer of the provider to this browser, and verifier the code.
	state, nonce, verifier string
	// to is the part of the page that was open, such as #/runs.
	to string
}

func (a attempt) text() string {
	return strings.Join([]string{a.state, a.nonce, a.verifier, base64.RawURLEncoding.EncodeToString([]byte(a.to))}, ".")
}

func parseAttempt(text string) (a attempt, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || slices.Contains(parts[:3], "") {
		return attempt{}, false
	}
	to, err := base64.RawURLEncoding.DecodeString(parts[3])
	return attempt{state: parts[0], nonce: parts[1], verifier: parts[2], to: part(string(to))}, err == nil
}

// part returns a part of the page that a person may be led to. Whatever is none is the overview:
// no link can lead to another site through a sign-in.
func part(to string) string {
	if !strings.HasPrefix(to, "#/") || len(to) > 1000 || topology.Printable(to) != to {
		return "#/"
	}
	return to
}

// attemptCookie is the name of the cookie of an attempt. Each has its own: a person may sign in in
// two tabs.
func (p *Page) attemptCookie(r *http.Request, state string) string {
	return p.cookieName(r) + "-" + state[:min(8, len(state))]
}

// signIn sends a browser to the provider.
func (p *Page) signIn(w http.ResponseWriter, r *http.Request) {
	provider := p.Access.Provider
	if provider == nil {
		p.ask(w, "", "")
		return
	}
	to := part(r.URL.Query().Get("to"))
	if !p.Access.Proxied && p.base().Host != r.Host {
		// The provider leads back to the name of the page, where a cookie of this name is not sent.
		http.Redirect(w, r, p.Access.Base+"/sign-in?to="+url.QueryEscape(to), http.StatusSeeOther)
		return
	}
	p.forgetAttempts(w, r)
	a := attempt{state: rand.Text(), nonce: rand.Text(), verifier: oauth2.GenerateVerifier(), to: to}
	// Lax: the browser comes back from another site.
	c := p.cookie(p.attemptCookie(r, a.state), a.text(), http.SameSiteLaxMode)
	c.MaxAge = int(signInTime.Seconds())
	http.SetCookie(w, c)
	http.Redirect(w, r, provider.config(p.Access.Base, "").AuthCodeURL(a.state, oidc.Nonce(a.nonce),
		oauth2.S256ChallengeOption(a.verifier)), http.StatusSeeOther)
}

// maxAttempts is how many sign-ins a browser may have begun and not ended. Their cookies come with
// each request, whose headers are limited.
const maxAttempts = 4

// forgetAttempts has a browser forget its sign-ins if there are many.
func (p *Page) forgetAttempts(w http.ResponseWriter, r *http.Request) {
	var begun []string
	for _, cookie := range r.Cookies() {
		if strings.HasPrefix(cookie.Name, p.attemptCookie(r, "")) {
			begun = append(begun, cookie.Name)
		}
	}
	if len(begun) < maxAttempts {
		return
	}
	for _, name := range begun {
		http.SetCookie(w, p.cookie(name, "", http.SameSiteLaxMode))
	}
}

// signedIn takes a person back from the provider.
func (p *Page) signedIn(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	cookie, err := r.Cookie(p.attemptCookie(r, query.Get("state")))
	if p.Access.Provider == nil || err != nil {
		p.ask(w, "", "This sign-in was not begun in this browser, or took too long. Sign in again.")
		return
	}
	http.SetCookie(w, p.cookie(cookie.Name, "", http.SameSiteLaxMode)) // it is good for one answer
	a, ok := parseAttempt(cookie.Value)
	if !ok || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(a.state)) != 1 {
		p.ask(w, "", "This sign-in was not begun in this browser, or took too long. Sign in again.")
		return
	}
	if refused := query.Get("error"); refused != "" || query.Get("code") == "" {
		p.ask(w, a.to, fmt.Sprintf("The provider did not sign you in: %s. Sign in again.",
			topology.Printable(cmp.Or(refused, "it sent no code"))))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	who, err := p.Access.Provider.who(ctx, p.Access.Base, query.Get("code"), a)
	if err != nil {
		p.Log.Warn("sign-in failed", "error", err)
		p.ask(w, a.to, "The sign-in failed; the log of 'dlxctl desk serve' says why. Sign in again.")
		return
	}
	if who.role == noRole {
		p.Log.Warn("refused a person without a role", "name", who.name, "subject", who.subject)
		p.ask(w, a.to, fmt.Sprintf("You are %s, and none of your groups has a role on this page. Ask who runs it.", who.name))
		return
	}
	if old, err := r.Cookie(p.cookieName(r)); err == nil {
		p.sessions.end(old.Value)
	}
	now := p.Now()
	id := p.sessions.add(session{who: who, begun: now, ends: now.Add(sessionLife)})
	p.Log.Info("signed in", "name", who.name, "subject", who.subject, "role", who.role.String())
	// Lax, so that a link in a chat opens the page. What changes or reads something by a script needs
	// the token of the session, or comes from this origin.
	http.SetCookie(w, p.cookie(p.cookieName(r), id, http.SameSiteLaxMode))
	http.Redirect(w, r, p.Access.Base+"/"+a.to, http.StatusSeeOther)
}

// who exchanges a code for what the provider says of a person.
func (p *Provider) who(ctx context.Context, base, code string, a attempt) (person, error) {
	ctx = oidc.ClientContext(ctx, p.client)
	secret, err := p.secret()
	if err != nil {
		return person{}, err
	}
	config := p.config(base, secret)
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(a.verifier))
	if err != nil {
		return person{}, fmt.Errorf("exchange the code: %w", err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return person{}, errors.New("the provider sent no id_token")
	}
	id, err := p.verifier.Verify(ctx, raw)
	if err != nil {
		return person{}, fmt.Errorf("check the id_token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.nonce)) != 1 {
		return person{}, errors.New("the id_token is of another sign-in: its nonce differs")
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return person{}, fmt.Errorf("read the id_token: %w", err)
	}
	if _, told := claims[p.GroupsClaim]; !told && p.oidc.UserInfoEndpoint() != "" {
		// Many providers keep what they know of a person out of the token.
		info, err := p.oidc.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return person{}, fmt.Errorf("read the userinfo: %w", err)
		}
		if info.Subject != id.Subject {
			return person{}, errors.New("the userinfo is of another person: its sub differs")
		}
		if err := info.Claims(&claims); err != nil {
			return person{}, fmt.Errorf("read the userinfo: %w", err)
		}
	}
	role := roleOf(p.Grants, texts(claims[p.GroupsClaim]))
	return person{
		name: nameOf(claims, id.Subject), subject: id.Subject, role: role, allow: role.allows(), signedIn: true,
	}, nil
}

// nameOf returns the name of a person for the record of a run: the e-mail address if the provider
// has verified it, else the user name, else the subject. An address that is not verified can be
// that of another person, and some providers leave out that it is not.
func nameOf(claims map[string]any, subject string) string {
	email, _ := claims["email"].(string)
	if verified := claims["email_verified"]; verified != true && verified != "true" {
		email = ""
	}
	user, _ := claims["preferred_username"].(string)
	return cut(topology.Printable(cmp.Or(email, user, subject)), 200)
}

// texts returns the texts of a claim, which is a text or a list of them.
func texts(claim any) (out []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, one := range claim {
			if s, ok := one.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// signOutAnswer says that a session has ended.
type signOutAnswer struct{}

// signOut ends the session of a browser. The session at the provider goes on.
func (p *Page) signOut(w http.ResponseWriter, r *http.Request) (any, error) {
	if cookie, err := r.Cookie(p.cookieName(r)); err == nil {
		p.sessions.end(cookie.Value)
		http.SetCookie(w, p.cookie(cookie.Name, "", http.SameSiteLaxMode))
	}
	return signOutAnswer{}, nil
}
