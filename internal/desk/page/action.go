package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// Ask is what a person asks for on the page, in the words of the flags of the command line.
type Ask struct {
	Action desk.Action `json:"action"`
	Queue  string      `json:"queue"`

	Where   string   `json:"where"`
	Since   string   `json:"since"`
	Handles []string `json:"handles"`
	Limit   int      `json:"limit"`
	Again   bool     `json:"again"`

	// To and Key are the target of a replay or an edit.
	To     string `json:"to"`
	Key    string `json:"key"`
	Rate   string `json:"rate"`
	Ramp   string `json:"ramp"`
	StopOn string `json:"stopOn"`
	Reason string `json:"reason"`
	// Body is the new body of an edited message; nil keeps the body. Headers are the headers that
	// change.
	Body    *string                   `json:"body"`
	Headers []deadletter.HeaderChange `json:"headers"`
	// Format is the format of the edited body: a body that was JSON must remain JSON.
	Format string `json:"format"`
}

// proposal is a proposal that was shown and may be executed.
type proposal struct {
	desk.Proposal
	ask  Ask
	made time.Time
}

// proposals are the proposals that were shown, by a name that cannot be guessed.
type proposals struct {
	mu   sync.Mutex
	made map[string]proposal
}

// The limits of proposals. A run chooses again what the proposal chose: an old proposal is
// harmless, but its counts are old.
const (
	maxProposals = 20
	proposalAge  = 15 * time.Minute
	maxHandles   = 1000
)

// keep keeps a proposal, if need be in place of the oldest.
func (l *proposals) keep(p proposal) (id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		l.made = map[string]proposal{}
	}
	if len(l.made) >= maxProposals {
		delete(l.made, slices.MinFunc(slices.Collect(maps.Keys(l.made)), func(a, b string) int {
			return l.made[a].made.Compare(l.made[b].made)
		}))
	}
	id = rand.Text()
	l.made[id] = p
	return id
}

// take returns a proposal and forgets it: it is executed once.
func (l *proposals) take(id string, now time.Time) (proposal, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.made[id]
	delete(l.made, id)
	return p, ok && now.Sub(p.made) < proposalAge
}

// shownProposal is a proposal as the page shows it.
type shownProposal struct {
	ID string `json:"id"`
	desk.ProposalDocument
	Notes []string `json:"notes"`
	// At is the cluster and the virtual host in which it acts. Left out: the page has only one.
	At string `json:"at,omitempty"`
	// Diff is what an edit changes.
	Diff string `json:"diff,omitempty"`
}

// propose answers with what a run would do. Nothing moves.
func (p *Page) propose(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask Ask
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	if who := personOf(r); !who.allow.permits(ask.Action) {
		return nil, refuse(http.StatusForbidden, who.refusal(ask.Action))
	}
	if _, err := p.offers(r.Context(), ask.Queue); err != nil {
		return nil, err
	}
	if err := ask.check(); err != nil {
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	request, err := p.request(ask)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	var edit edited
	if ask.Action.Kind().Edits {
		if edit, err = p.edited(r.Context(), w, ask, request.Key); err != nil {
			return nil, err
		}
		if edit.refusal != "" {
			return nil, refuse(http.StatusConflict, edit.refusal)
		}
		edit.MessageID, ask.Headers = desk.NewMessageID(), edit.headers
		request.Edited, request.EditedFrom = &edit.Edited, &edit.from
	}
	found, err := p.proposed(r.Context(), w, request)
	if err != nil {
		return nil, err
	}
	id := p.proposals.keep(proposal{Proposal: found, ask: ask, made: p.Now()})
	found.Groups = found.Groups[:min(len(found.Groups), maxGroups)]
	found.Reaches = found.Reaches[:min(len(found.Reaches), maxGroups)]
	return shownProposal{
		ID: id, Notes: found.Notes, At: p.at(), Diff: cut(edit.diff, maxBody),
		ProposalDocument: desk.ProposalDocument{
			Action: ask.Action, Proposal: found, Command: p.commandLine(ask, found.Chosen),
		},
	}, nil
}

// proposed asks the engine, one look at a time.
func (p *Page) proposed(ctx context.Context, w http.ResponseWriter, request desk.Request) (desk.Proposal, error) {
	ctx, done, err := p.turn(ctx, w)
	if err != nil {
		return desk.Proposal{}, err
	}
	defer done()
	return p.sources.now().Engine.Propose(ctx, request)
}

// check refuses what the page does not ask the engine for.
func (a Ask) check() error {
	edits := a.Action.Kind().Edits
	switch {
	case len(a.Handles) > maxHandles:
		return fmt.Errorf("%d messages are chosen one by one, and the page accepts up to %d; choose with a filter",
			len(a.Handles), maxHandles)
	case edits && len(a.Handles) != 1:
		return fmt.Errorf("an edit needs one message; open the message, and edit it there")
	case !edits && (a.Body != nil || len(a.Headers) > 0):
		return fmt.Errorf("only an edit has a new body and new headers; leave them out")
	case a.Body != nil && a.Format == string(decode.JSON) && !json.Valid([]byte(*a.Body)):
		return fmt.Errorf("the new body is not valid JSON, and the message was JSON before; mend it, or use the command line with --body-file")
	}
	return nil
}

// request makes the request of what a person asks for, as the flags of the command line do.
func (p *Page) request(a Ask) (desk.Request, error) {
	ask := desk.DefaultAsk(a.Action)
	ask.Selection = desk.Selection{Queue: a.Queue, Where: a.Where, Handles: a.Handles, Since: a.Since, Limit: a.Limit}
	ask.Again, ask.Reason = a.Again, a.Reason
	if kind := a.Action.Kind(); kind.Paced || kind.Edits {
		ask.To, ask.Key = cmp.Or(a.To, ask.To), a.Key
	}
	if a.Action.Kind().Paced {
		ask.Rate, ask.Ramp, ask.StopOn = cmp.Or(a.Rate, ask.Rate), cmp.Or(a.Ramp, ask.Ramp), cmp.Or(a.StopOn, ask.StopOn)
	}
	r, err := ask.Request(p.Now())
	r.Look = p.Look
	return r, err
}

// commandAnswer is a command line of dlxctl.
type commandAnswer struct {
	Command string `json:"command"`
}

type runAnswer struct {
	Run string `json:"run"`
}

// shown answers with the command line of an action, which a read-only page shows too.
func (p *Page) shown(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask Ask
	err := read(w, r, &ask)
	return commandAnswer{p.commandLine(ask, -1)}, err
}

// execute starts what was proposed, if it is still the same number of messages that the person
// has seen.
func (p *Page) execute(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask struct {
		Proposal string `json:"proposal"`
		Expect   int    `json:"expect"`
	}
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	who := personOf(r)
	found, ok := p.proposals.take(ask.Proposal, p.Now())
	switch {
	case !ok:
		return nil, refuse(http.StatusGone, "this proposal was executed before, is older than 15 minutes, or many others were shown since; ask for it again")
	case !who.allow.permits(found.ask.Action):
		return nil, refuse(http.StatusForbidden, who.refusal(found.ask.Action))
	case len(found.Refusals) > 0:
		return nil, refuse(http.StatusConflict, found.Refusals[0])
	case ask.Expect != found.Chosen || ask.Expect == 0:
		return nil, refuse(http.StatusConflict, fmt.Sprintf("expected %d, chosen %d; nothing was moved; ask again what it would do",
			ask.Expect, found.Chosen))
	default:
		j := &job{
			Action: found.ask.Action, Queue: found.ask.Queue, Chosen: found.Chosen, By: who.name,
			Reason: found.ask.Reason, StopFailures: found.Request.Send.StopFailures,
			StopShare: found.Request.Send.StopShare,
		}
		return p.begin(r, j, func(ctx context.Context, progress func(desk.Progress)) (desk.Result, error) {
			return p.engine(who).Execute(ctx, found.Proposal, progress)
		})
	}
}

// act resumes, returns or cancels a run. The page may do it if it may do the action of the run.
func (p *Page) act(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask struct {
		Run string `json:"run"`
	}
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	do, who := r.PathValue("do"), personOf(r)
	if do == "cancel" && p.jobs.stop(ask.Run, who.allow) {
		p.Log.Info("run stopped", "run", ask.Run, "by", who.name)
		return runAnswer{ask.Run}, nil
	}
	runs, err := p.sources.now().Engine.Runs(r.Context())
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(runs, func(run desk.Run) bool { return run.ID == ask.Run })
	switch {
	case at < 0:
		return nil, refuse(http.StatusNotFound, fmt.Sprintf("no run %q is in progress: it has ended, or another page has ended it; reload the runs", ask.Run))
	case !who.allow.permits(runs[at].Action):
		return nil, refuse(http.StatusForbidden, who.refusal(runs[at].Action))
	default:
		return p.carryOn(r, do, runs[at])
	}
}

// carryOn does what was asked with a run of the broker.
func (p *Page) carryOn(r *http.Request, do string, run desk.Run) (any, error) {
	if do == "resume" && run.Deletes() {
		return nil, refuse(http.StatusForbidden, fmt.Sprintf(
			"the run %s deletes its messages at once, and the page deletes none; return it, or continue it with '%s'",
			run.ID, p.Line("desk", "run", "resume", run.ID, "--yes", "--expect", strconv.Itoa(run.Chosen))))
	}
	j, engine := jobOf(run), p.engine(personOf(r))
	j.Does = do
	switch do {
	case "resume":
		return p.begin(r, j, func(ctx context.Context, progress func(desk.Progress)) (desk.Result, error) { //nolint:contextcheck // a run outlives its request
			return engine.Resume(ctx, run.ID, nil, progress)
		})
	case "return":
		return p.begin(r, j, func(ctx context.Context, progress func(desk.Progress)) (desk.Result, error) { //nolint:contextcheck // a run outlives its request
			return engine.Return(ctx, run.ID, progress)
		})
	case "cancel":
		return runAnswer{run.ID}, engine.Cancel(r.Context(), run.ID)
	default:
		return nil, refuse(http.StatusNotFound, "a run can be resumed, returned or canceled; reload the page")
	}
}
