package page

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Stopped is a run that was in progress when the server ended.
type Stopped struct {
	// Cluster is where it was, of a page with several.
	Cluster string
	// Run is its name. Empty: it had taken nothing yet.
	Run string
	// Moved is how many messages had reached their target, Left how many are in the hold.
	Moved, Left int
	// Queue is where it chose messages, and LeftInQueue how many of them are still there: it had no
	// hold.
	Queue       string
	LeftInQueue int
	// Next says what to do about what is left, with a command line; empty if nothing is left.
	Next string
	// Error is why the run failed. Empty if it stopped as it was asked to.
	Error string
}

// Serve serves the page until ctx ends. It then asks the runs of the page to stop, waits until
// each is at a point where nothing is lost, and returns those that it stopped.
func (p *Page) Serve(ctx context.Context, listener net.Listener) ([]Stopped, error) {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	all := append([]*Page{p}, p.clusters...)
	for _, one := range all {
		one.jobs.mu.Lock()
		one.jobs.lifetime = func() (context.Context, context.CancelFunc) { return context.WithCancel(work) }
		one.jobs.mu.Unlock()
	}
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	var failure error
	select {
	case failure = <-ended:
	case <-ctx.Done():
	}
	var stopped []Stopped
	for _, one := range all { // all are asked before the first is waited for
		one.jobs.ask()
	}
	for _, one := range all {
		stopped = append(stopped, one.stopped(one.jobs.close())...)
	}
	grace, cancel := context.WithTimeout(work, 3*time.Second)
	defer cancel()
	_ = server.Shutdown(grace) // a request that is still open then is ended
	_ = server.Close()
	if failure != nil && !errors.Is(failure, http.ErrServerClosed) {
		return stopped, failure
	}
	return stopped, nil
}

// stopped says what is left of the jobs that were stopped.
func (p *Page) stopped(jobs []job) []Stopped {
	var out []Stopped
	for _, j := range jobs {
		s := Stopped{
			Cluster: p.Cluster, Run: j.Run, Moved: j.Result.Moved, Left: j.Result.Left, Error: j.Error,
			Queue: j.Queue, LeftInQueue: j.Result.LeftInQueue,
		}
		switch {
		case j.Run == "" || j.Error == "" && s.Left+s.LeftInQueue == 0:
		case j.Result.Ended: // it has no hold that could be resumed
			s.Next = "to see what is still in the queue: " + p.Line("desk", "list", j.Queue)
		default:
			s.Next = "to continue: " + p.Line("desk", "run", "resume", j.Run, "--yes")
		}
		out = append(out, s)
	}
	return out
}
