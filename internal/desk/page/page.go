// Package page serves the desk as a page on this machine: what waits in the dead-letter queues,
// why, and what a person may do about it. It does what the command line does, with the same
// engine, and shows the command line for each action.
//
// Only the person who started it can open the page: it answers only with the cookie that the
// one-time token of the printed URL buys, and only under the names of its own address. It is
// read-only unless an action is allowed. It sees messages only as redacted views, so that no
// request can get at a masked value.
package page

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

//go:embed assets
var embedded embed.FS

// Config is what a page shows, and to whom.
type Config struct {
	Engine Engine
	// Plain makes views in which nothing is masked. The page compares such a view with the
	// redacted one of a message that is to be edited, and never shows it.
	Plain Editor
	// Queues lists the queues of the overview, and Roles names what each queue is for that the
	// page may look at: dead-letter, parked or unroutable.
	Queues Queues
	Roles  map[string]string
	// Topology, VHost, Broker and By are shown: the name of the topology, where the broker is,
	// and who acts.
	Topology, VHost, Broker, By string
	// Look limits each look.
	Look desk.LookOptions
	// Allow is what the page may do. Empty is read-only.
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
	sessions  sessions
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
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rows == 0 {
		c.Rows = maxRows
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Page{Config: c, looking: make(chan struct{}, 1)}
	p.jobs.changed = sync.NewCond(&p.jobs.mu)
	p.sessions.start(c.Access)
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	p.handler = p.routes(assets)
	return p, nil
}

// routes is the whole page. Whatever changes something, or looks at a queue, is a POST.
func (p *Page) routes(assets fs.FS) http.Handler {
	api := http.NewServeMux()
	for _, r := range p.api() {
		api.HandleFunc(r.pattern, r.handle)
	}
	files := http.FileServerFS(assets)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /open", p.open)
	mux.HandleFunc("POST /open", p.open)
	for _, needed := range []string{"GET /style.css", "GET /icon.svg"} {
		mux.Handle(needed, files) // the page that asks for the token needs them too
	}
	mux.Handle("GET /api/", p.signedIn(p.genuine(api)))
	mux.Handle("POST /api/", p.signedIn(p.genuine(api)))
	mux.Handle("GET /", p.signedIn(files))
	return p.guard(mux)
}

// route is a request that the scripts of the page make.
type route struct {
	pattern string
	handle  http.HandlerFunc
	// answers are the types of what it answers with, apart from a refusal.
	answers []any
}

// api is the requests that the scripts of the page make.
func (p *Page) api() []route {
	return []route{
		{"GET /api/session", p.session, []any{sessionAnswer{}}},
		{"GET /api/queues", p.queues, []any{queuesAnswer{}}},
		{"GET /api/rows", p.rows, []any{rowsAnswer{}}},
		{"GET /api/runs", p.runs, []any{runsAnswer{}}},
		{"GET /api/runs/ended", p.ended, []any{endedAnswer{}}},
		{"POST /api/look", p.look, []any{snapshot{}}},
		{"POST /api/message", p.message, []any{detail{}}},
		{"POST /api/source", p.source, []any{sourceAnswer{}}},
		{"POST /api/command", p.shown, []any{commandAnswer{}}},
		{"POST /api/propose", p.propose, []any{shownProposal{}}},
		{"POST /api/execute", p.execute, []any{jobAnswer{}}},
		{"POST /api/runs/{do}", p.act, []any{jobAnswer{}, runAnswer{}}},
	}
}

// ServeHTTP serves the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// maxRequest is the largest request that is read: an edited message, and what surrounds it.
const maxRequest = 1 << 20

// read reads the JSON of a request. It answers the request and reports false if that fails.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		fail(w, status, "the request cannot be read: "+err.Error())
		return false
	}
	return true
}

// answer writes JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = jsondoc.WriteLine(w, v) // if not, the browser has gone
}

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

// failed answers with an error of the engine: 409 if it refused, and 502 otherwise.
func failed(w http.ResponseWriter, err error) {
	if errors.Is(err, desk.ErrRefused) {
		fail(w, http.StatusConflict, err.Error())
		return
	}
	fail(w, http.StatusBadGateway, err.Error())
}
