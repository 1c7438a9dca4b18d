package desk

import (
	"io"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
)

// The wire forms. Scripts rely on them: a field that is left out is unknown or does not apply.
type (
	lookedJSON struct {
		Queue    string  `json:"queue"`
		Type     string  `json:"type,omitempty"`
		Messages int     `json:"messages"`
		Looked   int     `json:"lookedAt"`
		Missed   string  `json:"notLookedAt,omitempty"`
		Seconds  float64 `json:"seconds"`
		Cost     string  `json:"cost,omitempty"`
	}
	reachJSON struct {
		Queue     string `json:"queue"`
		Exchange  string `json:"exchange,omitempty"`
		Key       string `json:"key,omitempty"`
		Messages  int    `json:"messages"`
		Consumers *int   `json:"consumers,omitempty"`
		Waiting   *int   `json:"waiting,omitempty"`
	}
	proposalJSON struct {
		Action         Action             `json:"action"`
		Looked         lookedJSON         `json:"looked"`
		Chosen         int                `json:"chosen"`
		Copies         int                `json:"copies"`
		ReplayedBefore int                `json:"leftOutReplayedBefore"`
		First          *time.Time         `json:"firstFailed,omitempty"`
		Last           *time.Time         `json:"lastFailed,omitempty"`
		Groups         []deadletter.Group `json:"groups"`
		Reaches        []reachJSON        `json:"reaches"`
		Refusals       []string           `json:"refusals"`
		Command        string             `json:"command,omitempty"`
	}
	resultJSON struct {
		Run           string     `json:"run"`
		Action        Action     `json:"action"`
		Queue         string     `json:"queue,omitempty"`
		To            []string   `json:"to,omitempty"`
		Chosen        int        `json:"chosen"`
		Begun         *time.Time `json:"begun,omitempty"`
		By            string     `json:"by,omitempty"`
		Continued     string     `json:"continuedBy,omitempty"`
		Reason        string     `json:"reason,omitempty"`
		Ended         bool       `json:"ended"`
		Moved         int        `json:"moved"`
		Left          int        `json:"leftInHold"`
		Missing       int        `json:"missing"`
		DoubledAtMost int        `json:"doubledAtMost"`
		FailedAgain   int        `json:"failedAgain"`
		Stopped       string     `json:"stopped,omitempty"`
		Seconds       float64    `json:"seconds"`
	}
	runJSON struct {
		Run     string     `json:"run"`
		Action  Action     `json:"action"`
		Queue   string     `json:"queue"`
		Phase   Phase      `json:"phase"`
		Active  bool       `json:"active"`
		Chosen  int        `json:"chosen"`
		Left    int        `json:"leftInHold"`
		Started *time.Time `json:"started,omitempty"`
		By      string     `json:"by,omitempty"`
		Reason  string     `json:"reason,omitempty"`
	}
)

// WriteProposalJSON writes a proposal for a program. do is the command line that does it.
func WriteProposalJSON(w io.Writer, p Proposal, do string) error {
	out := proposalJSON{
		Action: p.Request.Action, Looked: p.Looked.wire(), Chosen: p.Chosen, Copies: p.Copies,
		ReplayedBefore: p.ReplayedBefore, First: known(p.First), Last: known(p.Last),
		Groups: append([]deadletter.Group{}, p.Groups...), Reaches: []reachJSON{},
		Refusals: append([]string{}, p.Refusals...), Command: do,
	}
	for _, r := range p.Reaches {
		out.Reaches = append(out.Reaches, reachJSON{
			Queue: r.Queue, Exchange: r.Exchange, Key: r.Key, Messages: r.Messages,
			Consumers: counted(r.Consumers), Waiting: counted(r.Waiting),
		})
	}
	return text.WriteJSON(w, out)
}

// WriteResultJSON writes how a run ended, for a program.
func WriteResultJSON(w io.Writer, a Action, r Result) error {
	return text.WriteJSON(w, resultJSON{
		Run: r.Run, Action: a, Queue: r.Queue, To: r.To, Chosen: r.Chosen, Begun: known(r.Begun), By: r.By,
		Continued: r.Continued, Reason: r.Reason, Ended: r.Ended, Moved: r.Moved, Left: r.Left,
		Missing: r.Missing, DoubledAtMost: r.DoubledAtMost, FailedAgain: r.FailedAgain,
		Stopped: r.Stopped, Seconds: r.Took.Seconds(),
	})
}

// WriteRunsJSON writes runs for a program.
func WriteRunsJSON(w io.Writer, runs []Run) error {
	return text.WriteJSON(w, wireRuns(runs))
}

func wireRuns(runs []Run) []runJSON {
	out := []runJSON{}
	for _, r := range runs {
		out = append(out, runJSON{
			Run: r.ID, Action: r.Action, Queue: r.Queue, Phase: r.Phase, Active: r.Active, Chosen: r.Chosen,
			Left: r.Holds, Started: known(r.Started), By: r.By, Reason: r.Reason,
		})
	}
	return out
}

func (l Looked) wire() lookedJSON {
	return lookedJSON{
		Queue: l.Queue, Type: l.Type, Messages: l.Messages, Looked: l.Looked, Missed: l.Missed,
		Seconds: l.Took.Seconds(), Cost: l.Cost,
	}
}

// known returns nil for the zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// counted returns nil for an unknown number.
func counted(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}
