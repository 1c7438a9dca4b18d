package cmd

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	// quiet is how long work may take before anything is said about it.
	quiet = 2 * time.Second
	// lineEvery is how often a log gets a line.
	lineEvery = 10 * time.Second
)

// progress tells on stderr how far work is that takes more than a few seconds:
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

// newProgress begins to tell of work of so many steps. finish must be called.
func (a *app) newProgress(verb, noun string, total int) *progress {
	p := &progress{w: a.stderr, verb: verb, noun: noun, total: total, stop: make(chan struct{})}
	every := lineEvery
	if terminal(a.stderr) && !a.dumb() {
		every = 100 * time.Millisecond
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(verb),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	}
	p.over.Go(func() { p.tell(every) })
	return p
}

// step counts one step.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// finish says no more.
func (p *progress) finish() {
	close(p.stop)
	p.over.Wait()
}

// sofar gives the number of steps that are done.
func (p *progress) sofar() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// line writes how far the work is, as a line of a log.
func (p *progress) line(done int) {
	fmt.Fprintf(p.w, "%s %d of %d %s\n", p.verb, done, p.total, p.noun)
}

// left says how long the rest will take if it goes on as it did, and nothing as
// long as that is not known.
func left(passed time.Duration, done, total int) string {
	if done <= 0 || done >= total {
		return ""
	}
	rest := time.Duration(float64(passed) / float64(done) * float64(total-done))
	return fmt.Sprintf(", %s left", max(rest.Round(time.Second), time.Second))
}

func (p *progress) tell(every time.Duration) {
	began := time.Now()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for said := false; ; said = true {
		select {
		case <-timer.C:
		case <-p.stop:
			switch {
			case said && p.bar != nil:
				_ = p.bar.Clear() // a terminal that is gone needs no cleaning
			case said:
				p.line(p.sofar()) // or the last line of a log would say less than was done
			}
			return
		}
		done := p.sofar()
		if p.bar != nil {
			p.bar.Describe(p.verb + left(time.Since(began), done, p.total))
			_ = p.bar.Set(done)
		} else {
			p.line(done)
		}
		timer.Reset(every)
	}
}
