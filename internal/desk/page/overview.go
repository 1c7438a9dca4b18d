package page

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// session answers with what the page needs to know about itself, and about who opens it.
func (p *Page) session(_ http.ResponseWriter, r *http.Request) (any, error) {
	s, _ := p.signed(r)
	out := sessionAnswer{
		Clusters: []shownCluster{},
		CSRF:     s.csrf, Topology: p.Topology, VHost: p.VHost, Broker: p.Broker, By: s.who.name, Allow: s.who.allow,
		Command: p.Line("desk"),
	}
	for _, one := range p.clusters {
		out.Clusters = append(out.Clusters, shownCluster{one.Cluster, one.VHost, one.Broker})
	}
	if s.who.signedIn {
		out.Role = s.who.role.String()
	}
	return out, nil
}

// sessionAnswer is what the page needs to know about itself, and about who opens it.
type sessionAnswer struct {
	CSRF     string  `json:"csrf"`
	Topology string  `json:"topology"`
	VHost    string  `json:"vhost"`
	Broker   string  `json:"broker"`
	By       string  `json:"by"`
	Allow    Allowed `json:"allow"`
	// Role is the role of a person who has signed in with a provider, and who may sign out.
	Role    string `json:"role,omitempty"`
	Command string `json:"command"`
	// Clusters are the virtual hosts that the page shows together. Empty: it is the page of one.
	Clusters []shownCluster `json:"clusters"`
}

// shownCluster is a virtual host of a page that shows several.
type shownCluster struct {
	Name   string `json:"name"`
	VHost  string `json:"vhost"`
	Broker string `json:"broker"`
}

type queuesAnswer struct {
	Queues []overviewRow `json:"queues"`
	Delays []Delay       `json:"delays"`
	// Notice says what is not known, and Found how the queues were found without a topology file.
	Notice  string    `json:"notice"`
	Found   string    `json:"found"`
	At      time.Time `json:"at"`
	Command string    `json:"command"`
}

type runsAnswer struct {
	Runs    []shownRun `json:"runs"`
	Command string     `json:"command"`
}

// overviewRow is a queue of the overview, with what the last look at it found.
type overviewRow struct {
	Name           string    `json:"name"`
	Type           string    `json:"type"`
	Role           string    `json:"role"`
	Owner          string    `json:"owner"`
	Messages       int       `json:"messages"`
	Unknown        bool      `json:"unknown"` // how many messages the queue holds
	Unacknowledged int       `json:"unacknowledged"`
	Consumers      int       `json:"consumers"`
	Runs           []string  `json:"runs"`
	LookedAt       time.Time `json:"lookedAt"`
	Oldest         time.Time `json:"oldest"`
	Recent         int       `json:"recent"`
	Undated        int       `json:"undated"` // how many do not tell when they failed
	TopCause       string    `json:"topCause"`
}

// queues answers with the overview. It looks at no queue: oldest, new and cause come from the
// last look that a person has asked for.
func (p *Page) queues(_ http.ResponseWriter, r *http.Request) (any, error) {
	at := p.Now().UTC() // the counts are up to 5 seconds older
	source, err := p.sources.renewed(r.Context(), at)
	if err != nil {
		return nil, err
	}
	list, delays, err := source.Queues(r.Context(), at)
	if err != nil {
		return nil, err
	}
	runs, err := source.Engine.Runs(r.Context())
	notice := ""
	if err != nil { // the queues can be shown anyway
		notice = "the runs are unknown: " + err.Error()
	}
	var rows []overviewRow
	for _, q := range list {
		row := overviewRow{
			Name: q.Name, Type: q.Type, Role: q.Role, Owner: q.Owner, Messages: q.Messages,
			Unknown: q.Unknown, Unacknowledged: q.Unacknowledged, Consumers: q.Consumers,
		}
		for _, run := range runs {
			if run.Queue == q.Name {
				row.Runs = append(row.Runs, run.ID)
			}
		}
		if s := p.snapshots.of(q.Name); s != nil {
			row.LookedAt, row.Oldest, row.Recent, row.Undated = s.At, s.First, s.Recent, s.Undated
			if len(s.Groups) > 0 && (s.Request.By == "error" || s.Request.By == "cause") {
				row.TopCause = s.Groups[0].Value
			}
		}
		rows = append(rows, row)
	}
	return queuesAnswer{rows, delays, notice, source.Notice, at, p.Line("desk")}, nil
}

// whole reports whether a look chose all messages.
func (s *snapshot) whole() bool { return s.Request.Where == "" && s.Request.Since == "" }

// shownRun is a run as the page shows it: what the broker knows of it, and what this page does
// with it.
type shownRun struct {
	job
	Phase   desk.Phase `json:"phase"`
	Holds   int        `json:"holds"`
	Active  bool       `json:"active"` // a process works on it
	Mine    bool       `json:"mine"`   // this page works on it, or did
	Allowed bool       `json:"allowed"`
	// Commands are the command lines that do what the buttons do.
	Commands map[string]string `json:"commands"`
}

// runs answers with the runs: those of this page, and those of the broker that another process
// started.
func (p *Page) runs(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := p.sources.now().Engine.Runs(r.Context())
	if err != nil {
		return nil, err
	}
	allow := personOf(r).allow
	var out []shownRun
	known := map[string]bool{}
	for _, j := range p.jobs.list() {
		if known[j.Run] && j.Ended != nil {
			continue // a later job went on with the run
		}
		known[j.Run] = j.Run != ""
		one := shownRun{job: j, Mine: true, Active: j.Ended == nil, Phase: j.Progress.Phase}
		if at := slices.IndexFunc(all, func(run desk.Run) bool { return run.ID == j.Run && j.Run != "" }); at >= 0 {
			one.Phase, one.Holds = all[at].Phase, all[at].Holds
			one.Active = one.Active || all[at].Active
		}
		out = append(out, p.complete(one, allow))
	}
	for _, run := range slices.Backward(all) {
		if !known[run.ID] {
			out = append(out, p.complete(shownRun{
				job: *jobOf(run), Phase: run.Phase, Holds: run.Holds, Active: run.Active,
			}, allow))
		}
	}
	return runsAnswer{out, p.Line("desk", "run", "list")}, nil
}

// complete adds what a person can do with a run.
func (p *Page) complete(run shownRun, allow Allowed) shownRun {
	run.Allowed = allow.permits(run.Action)
	run.Commands = map[string]string{}
	for _, do := range []string{"resume", "return", "cancel"} {
		words := []string{"desk", "run", do, run.Run}
		if do != "cancel" {
			words = append(words, "--yes")
		}
		run.Commands[do] = p.Line(words...)
	}
	return run
}

// maxEnded is how many ended runs the page shows.
const maxEnded = 100

// endedAnswer is the newest runs that have ended, and how many there are.
type endedAnswer struct {
	Runs []endedRun `json:"runs"`
	Of   int        `json:"of"`
	// Notice says what is not known.
	Notice  string `json:"notice"`
	Command string `json:"command"`
}

type endedRun struct {
	Run      string    `json:"run"`
	Action   string    `json:"action"`
	Queue    string    `json:"queue"`
	Outcome  string    `json:"outcome"`
	ChosenBy string    `json:"chosenBy"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	EndedAt  time.Time `json:"endedAt"`
}

// ended answers with the runs that have ended.
func (p *Page) ended(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := p.sources.now().Engine.EndedRuns(r.Context())
	if err != nil {
		return nil, err
	}
	var missed strings.Builder
	_ = all.WriteMissed(&missed) // a strings.Builder returns no error
	out := endedAnswer{
		Runs: []endedRun{}, Of: len(all.Runs), Notice: strings.TrimSpace(missed.String()),
		Command: p.Line("desk", "run", "list", "--ended"),
	}
	for _, e := range all.Newest(maxEnded) {
		out.Runs = append(out.Runs, endedRun{
			e.Run, e.Did(), e.Queue, e.Outcome(), e.ChosenBy.String(), e.By, e.Reason, e.EndedAt,
		})
	}
	return out, nil
}
