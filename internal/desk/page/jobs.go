package page

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
)

// job is a run that this page works on, or worked on.
type job struct {
	ID     string      `json:"id"`
	Run    string      `json:"run"`
	Action desk.Action `json:"action"`
	// Forever: the run deletes messages, and was begun on the command line.
	Forever bool `json:"forever,omitempty"`
	// Does is resume or return; empty is the first execution.
	Does         string    `json:"does"`
	Queue        string    `json:"queue"`
	By           string    `json:"by"`
	Reason       string    `json:"reason"`
	Chosen       int       `json:"chosen"`
	Started      time.Time `json:"started"`
	StopFailures int       `json:"stopFailures"`
	StopShare    float64   `json:"stopShare"`

	Progress desk.Progress `json:"progress"`
	Ended    *time.Time    `json:"ended"`
	Result   desk.Result   `json:"result"`
	Error    string        `json:"error"`

	cancel context.CancelFunc
}

// jobOf returns what the broker knows of a run.
func jobOf(run desk.Run) *job {
	return &job{
		Run: run.ID, Action: run.Action, Queue: run.Queue, By: run.By, Reason: run.Reason, Chosen: run.Chosen,
		Started: run.Started, StopFailures: run.Send.StopFailures, StopShare: run.Send.StopShare,
		Forever: run.Forever,
	}
}

// jobs are the runs of this page.
type jobs struct {
	mu     sync.Mutex
	all    []*job
	next   int
	closed bool
	asked  []*job // those that the end of the server has asked to stop
	// lifetime makes the context of a job, which outlives its request and ends with the server. It
	// is nil before the server serves.
	lifetime func() (context.Context, context.CancelFunc)
	changed  *sync.Cond
}

// work is what a job does: an execution, a resumption or a return.
type work func(context.Context, func(desk.Progress)) (desk.Result, error)

// maxJobs is how many jobs the page remembers, unless more are in progress.
const maxJobs = 50

type jobAnswer struct {
	Job string `json:"job"`
}

// begin starts a job and answers with its name. The job outlives the request.
func (p *Page) begin(r *http.Request, j *job, work work) (any, error) {
	if refusal := p.jobs.begin(j, p.Now, work); refusal != "" {
		return nil, refuse(http.StatusConflict, refusal)
	}
	p.Log.Info("run started", "action", string(j.Action), "queue", j.Queue, "messages", j.Chosen, "by", personOf(r).name)
	return jobAnswer{j.ID}, nil
}

// begin starts a job. It says why not, if not.
func (l *jobs) begin(j *job, now Clock, work work) (refusal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.lifetime == nil {
		return "the server is stopping, and nothing was moved; start 'dlxctl desk serve' again"
	}
	if j.Run != "" && slices.ContainsFunc(l.all, func(o *job) bool { return o.Run == j.Run && o.Ended == nil }) {
		return "this page is already working on run " + j.Run + "; wait for its end, or stop it first"
	}
	l.next++
	j.ID, j.Started = strconv.Itoa(l.next), now().UTC()
	ctx, cancel := l.lifetime()
	j.cancel = cancel
	l.all = append(l.all, j)
	l.forget()
	go func() {
		defer cancel()
		result, err := work(ctx, func(progress desk.Progress) { l.progress(j, progress) })
		l.end(j, now, result, err)
	}()
	return ""
}

// forget removes the oldest jobs that have ended, as far as there are too many.
func (l *jobs) forget() {
	for len(l.all) > maxJobs {
		oldest := slices.IndexFunc(l.all, func(o *job) bool { return o.Ended != nil })
		if oldest < 0 {
			return
		}
		l.all = slices.Delete(l.all, oldest, oldest+1)
	}
}

func (l *jobs) progress(j *job, progress desk.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.Progress = progress
	if progress.Run != "" {
		j.Run = progress.Run
	}
}

func (l *jobs) end(j *job, now Clock, result desk.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now().UTC()
	j.Ended, j.Result = &at, result
	if result.Run != "" {
		j.Run = result.Run
	}
	if err != nil {
		j.Error = err.Error()
	}
	l.changed.Broadcast()
}

// stop asks a job of this page to stop. It reports false if the page does not work on the run.
func (l *jobs) stop(run string, a Allowed) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.all {
		if j.Run == run && run != "" && j.Ended == nil && a.permits(j.Action) {
			j.cancel()
			return true
		}
	}
	return false
}

// ask asks all jobs to stop, and lets none begin any more.
func (l *jobs) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, j := range l.all {
		if j.Ended == nil {
			j.cancel()
			l.asked = append(l.asked, j)
		}
	}
}

// close waits until the jobs that were asked to stop have stopped, and returns them.
func (l *jobs) close() []job {
	l.mu.Lock()
	defer l.mu.Unlock()
	running := l.asked
	for slices.ContainsFunc(running, func(j *job) bool { return j.Ended == nil }) {
		l.changed.Wait()
	}
	return text.Each(running, func(j *job) job { return *j })
}

// list returns copies of the jobs, the newest first.
func (l *jobs) list() []job {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]job, 0, len(l.all))
	for _, j := range slices.Backward(l.all) {
		out = append(out, *j)
	}
	return out
}
