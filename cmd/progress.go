package cmd

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	// quiet is how long a task may take before progress is shown.
	quiet = 2 * time.Second
	// lineEvery is the time between two progress lines in a log.
	lineEvery = 10 * time.Second
)

// progress shows, on stderr, the progress of a task that takes more than a few seconds:
// with a bar on a terminal, elsewhere with a line now and then.
type progress struct {
	w     io.Writer
	verb  string // such as "applied"
	noun  string // such as "changes"
	total int

	mu   sync.Mutex
	done int
	bar  *progressbar.ProgressBar
	stop chan struct{}
	over sync.WaitGroup
}

// newProgress shows the progress of a task with total steps. finish must be called.
func (a *app) newProgress(verb, noun string, total int) *progress {
	p := &progress{w: a.stderr, verb: verb, noun: noun, total: total, stop: make(chan struct{})}
	every := lineEvery
	if terminal(a.stderr) && !a.dumb() {
		every = 100 * time.Millisecond
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(verb),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	}
	p.over.Go(func() { p.show(every) })
	return p
}

// step counts one step.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// set says how many steps are done.
func (p *progress) set(done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = done
}

// finish ends the output.
func (p *progress) finish() {
	close(p.stop)
	p.over.Wait()
}

// sofar returns the number of steps that are done, and of all: there may be more steps
// than expected.
func (p *progress) sofar() (done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = max(p.total, p.done)
	return p.done, p.total
}

// line writes the progress as a line of a log.
func (p *progress) line() {
	done, total := p.sofar()
	fmt.Fprintf(p.w, "%s %d of %d %s\n", p.verb, done, total, p.noun)
}

// left returns how long the remaining steps will take at the same speed, as text. It is
// empty as long as that is unknown.
func left(passed time.Duration, done, total int) string {
	if done <= 0 || done >= total {
		return ""
	}
	rest := time.Duration(float64(passed) / float64(done) * float64(total-done))
	return fmt.Sprintf(", %s left", max(rest.Round(time.Second), time.Second))
}

func (p *progress) show(every time.Duration) {
	began := time.Now()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for said := false; ; said = true {
		select {
		case <-timer.C:
		case <-p.stop:
			switch {
			case said && p.bar != nil:
				_ = p.bar.Clear() // a terminal that is gone needs no cleanup
			case said:
				p.line() // the last line of a log shows all that was done
			}
			return
		}
		done, total := p.sofar()
		if p.bar != nil {
			p.bar.ChangeMax(total)
			p.bar.Describe(p.verb + left(time.Since(began), done, total))
			_ = p.bar.Set(done)
		} else {
			p.line()
		}
		timer.Reset(every)
	}
}
