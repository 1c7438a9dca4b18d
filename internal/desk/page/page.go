// Package page serves the desk as a page on this machine: what waits in the dead-letter queues,
// why, and what a person may do about it. It does what the command line does, with the same
// engine, and shows the command line for each action.
//
// Only the person who started it can open the page: it answers only with the cookie that the
// one-time token of the printed URL buys, and only under the names of its own address. It is
// read-only unless an action is allowed. With a provider of OpenID Connect it is open to a team:
// the groups of a person say what the person may do. It sees messages only as redacted views, so
// that no request can get at a masked value.
package page

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

//go:embed assets
var embedded embed.FS

// Config is what a page shows, and to whom.
type Config struct {
	Source
	// Clusters are the pages of several virtual hosts, which this one shows together. Each has a name,
	// and a source of its own; the other settings are those of this page. Empty: this page shows one.
	Clusters []Config
	// Cluster is the name of a page among several. A source that it does not have yet is read by Renew
	// when a person asks for it: a broker that is down hides no other.
	Cluster string
	// Renew returns the source anew, as queues come and go. Nil: it is known from the topology file,
	// and stays.
	Renew func(context.Context) (Source, error)
	// Topology, VHost, Broker and By are shown: the name of the topology, where the broker is,
	// and who acts. Without a name there is no topology.
	Topology, VHost, Broker, By string
	// Look limits each look.
	Look desk.LookOptions
	// Allow is what the page may do. Empty is read-only. With a provider the role of a person says it.
	Allow Allowed
	// Line writes a command line of dlxctl that can be pasted into a shell.
	Line func(words ...string) string
	// Access decides who may open the page.
	Access Access
	Log    *slog.Logger
	// Now is the clock; nil is time.Now.
	Now Clock
	// Rows limits how many messages one look lists; zero is 200,000.
	Rows int
}

// Page is the server of one desk.
type Page struct {
	Config
	sources   sources
	sessions  *sessions // of all clusters
	clusters  []*Page
	snapshots snapshots
	proposals proposals
	jobs      jobs
	looking   chan struct{} // one look at a time: each holds messages
	handler   http.Handler
}

// maxRows is how many messages one look lists by default: some 70 MiB of memory.
const maxRows = 200_000

// New makes a page. It serves nothing until [Page.Serve] is called.
func New(c Config) (*Page, error) {
	p, err := newPage(c, &sessions{})
	if err != nil {
		return nil, err
	}
	p.sessions.start(c.Access)
	for _, one := range c.Clusters {
		one.Look, one.Allow, one.Access, one.By = c.Look, c.Allow, c.Access, c.By
		one.Now, one.Rows, one.Log = p.Now, p.Rows, p.Log.With("cluster", one.Cluster)
		cluster, err := newPage(one, p.sessions)
		if err != nil {
			return nil, err
		}
		p.clusters = append(p.clusters, cluster)
	}
	return p, nil
}

// newPage makes the page of one virtual host, or the one around several.
func newPage(c Config, s *sessions) (*Page, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rows == 0 {
		c.Rows = maxRows
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Page{Config: c, sessions: s, looking: make(chan struct{}, 1)}
	p.sources.start(c)
	p.jobs.changed = sync.NewCond(&p.jobs.mu)
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	p.handler = p.routes(assets)
	return p, nil
}

func (p *Page) routes(assets fs.FS) http.Handler {
	mux := http.NewServeMux()
	for _, r := range p.table(http.FileServerFS(assets).ServeHTTP) {
		mux.Handle(r.pattern, p.enter(r))
	}
	if p.Cluster != "" {
		return mux // the page around it guards it
	}
	return p.guard(p.inCluster(mux))
}

// inCluster passes a request on to the page of the virtual host that it names, and to no other. A
// page of one virtual host has only itself.
func (p *Page) inCluster(own http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		common := !strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/api/session" || r.URL.Path == "/api/sign-out"
		if common || len(p.clusters) == 0 {
			own.ServeHTTP(w, r)
			return
		}
		name := r.URL.Query().Get("cluster")
		at := slices.IndexFunc(p.clusters, func(one *Page) bool { return one.Cluster == name })
		if _, ok := p.signed(r); ok && at < 0 {
			fail(w, http.StatusNotFound, fmt.Sprintf("no cluster %q is on this page; reload it", name))
			return
		}
		p.clusters[max(at, 0)].handler.ServeHTTP(w, r) // without a session each refuses the request
	})
}

// at names the cluster and the virtual host in which the page acts. Empty: it is the only one.
func (p *Page) at() string {
	if p.Cluster == "" {
		return ""
	}
	return p.Cluster + ", vhost " + p.VHost
}

// opened lets a request pass once the source was read.
func (p *Page) opened(next http.HandlerFunc) http.HandlerFunc {
	if p.Cluster == "" {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if err := p.sources.opened(r.Context()); err != nil {
			failed(w, err)
			return
		}
		next(w, r)
	}
}

// route is a request that a browser may make.
type route struct {
	pattern string
	// least is the least role that may make it. What an action needs beyond that, its handler checks.
	least  Role
	handle http.HandlerFunc
	// answers are the types of what a request of the scripts is answered with, apart from a refusal.
	answers []any
}

// table is all that a browser may ask for, and who may ask for it. Whatever changes something, or
// looks at a queue, is a POST.
func (p *Page) table(files http.HandlerFunc) []route {
	return []route{
		{"GET /open", noRole, p.open, nil},
		{"POST /open", noRole, p.open, nil},
		{"GET /sign-in", noRole, p.signIn, nil},
		{"GET /signed-in", noRole, p.signedIn, nil},
		{"GET /style.css", noRole, files, nil}, // the page that asks to sign in needs these too
		{"GET /icon.svg", noRole, files, nil},
		{"GET /door.js", noRole, files, nil},
		{"GET /", reader, files, nil},

		{"GET /api/session", reader, answer(p.session), []any{sessionAnswer{}}},
		{"GET /api/queues", reader, answer(p.queues), []any{queuesAnswer{}}},
		{"GET /api/rows", reader, answer(p.rows), []any{rowsAnswer{}}},
		{"GET /api/runs", reader, answer(p.runs), []any{runsAnswer{}}},
		{"POST /api/ended", reader, answer(p.ended), []any{endedAnswer{}}},
		{"POST /api/look", reader, answer(p.look), []any{snapshot{}}},
		{"POST /api/message", reader, answer(p.message), []any{detail{}}},
		{"POST /api/command", reader, answer(p.shown), []any{commandAnswer{}}},
		{"POST /api/sign-out", reader, answer(p.signOut), []any{signOutAnswer{}}},
		{"POST /api/comment", operator, answer(p.comment), []any{deadletter.Note{}}},
		{"POST /api/propose", operator, answer(p.propose), []any{shownProposal{}}},
		{"POST /api/execute", operator, answer(p.execute), []any{jobAnswer{}}},
		{"POST /api/runs/{do}", operator, answer(p.act), []any{jobAnswer{}, runAnswer{}}},
		{"POST /api/source", editor, answer(p.source), []any{sourceAnswer{}}},
	}
}

// ServeHTTP serves the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// maxRequest is the largest request that is read: an edited message, and what surrounds it.
const maxRequest = 1 << 20

func read(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		return refuse(status, "the request cannot be read: "+err.Error())
	}
	return nil
}

// answer makes a handler of what returns the answer to a request of the scripts, or why it was not
// done.
func answer(do func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := do(w, r)
		if err != nil {
			failed(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = jsondoc.WriteLine(w, v) // if not, the browser has gone
	}
}

// statusError is why a request was not done, with the HTTP status that says so.
type statusError struct {
	status int
	why    string
}

func (e statusError) Error() string { return e.why }

func refuse(status int, why string) error { return statusError{status, why} }

// fail answers that a request was not done, and why.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = jsondoc.WriteLine(w, refusal{why})
}

// refusal is the answer to a request that was not done.
type refusal struct {
	Error string `json:"error"`
}

// failed answers with an error: of the engine with 409 if it refused, and 502 otherwise.
func failed(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if own, ok := errors.AsType[statusError](err); ok {
		status = own.status
	} else if errors.Is(err, desk.ErrRefused) {
		status = http.StatusConflict
	}
	fail(w, status, err.Error())
}
