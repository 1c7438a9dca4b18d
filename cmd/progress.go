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
	if terminal(a.stderr) {
		every = 100 * time.Millisecond
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(verb),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
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

func (p *progress) tell(every time.Duration) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for said := false; ; said = true {
		select {
		case <-timer.C:
		case <-p.stop:
			if said && p.bar != nil {
				_ = p.bar.Clear() // a terminal that is gone needs no cleaning
			}
			return
		}
		p.mu.Lock()
		done := p.done
		p.total = max(p.total, done) // more may come than was there at the beginning
		p.mu.Unlock()
		if p.bar != nil {
			p.bar.ChangeMax(p.total)
			_ = p.bar.Set(done)
		} else {
			fmt.Fprintf(p.w, "%s %d of %d %s\n", p.verb, done, p.total, p.noun)
		}
		timer.Reset(every)
	}
}
