package cmd

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

const (
	// quiet is how long a task may take before progress is shown.
	quiet = 2 * time.Second
	// lineEvery is the time between two progress lines in a log.
	lineEvery = 10 * time.Second
	// repeatAfter is how many times a line is left out that says the same as the one before: a task
	// that waits for hours must not fill a log.
	repeatAfter = 30
	// paceOver is the time over which the speed is measured.
	paceOver = 10 * time.Second
)

// progress shows, on stderr, the progress of a task that takes more than a few seconds:
// with a bar on a terminal, elsewhere with a line now and then.
type progress struct {
	w     io.Writer
	verb  string // such as "applied"
	noun  string // such as "changes"
	rated bool   // also shows the speed, and in a log the remaining time

	mu    sync.Mutex // guards the two numbers
	total int
	done  int

	draw  sync.Mutex // guards the terminal, and the fields below
	bar   bool       // a bar is drawn, on a terminal
	shown bool       // something was printed
	same  int        // how many lines were left out that said the same as the last one
	pace  pace

	stop chan struct{}
	over sync.WaitGroup
}

// newProgress shows the progress of a task with total steps. finish must be called.
func (a *app) newProgress(verb, noun string, total int) *progress {
	return a.startProgress(&progress{verb: verb, noun: noun, total: total})
}

// newMessageProgress is newProgress for messages that are moved; it also shows how many a second.
func (a *app) newMessageProgress(total int) *progress {
	return a.startProgress(&progress{verb: "moved", noun: "messages", total: total, rated: true})
}

func (a *app) startProgress(p *progress) *progress {
	p.w, p.stop = a.stderr, make(chan struct{})
	every := lineEvery
	if terminal(a.stderr) && !a.dumb() {
		every, p.bar = 100*time.Millisecond, true
	}
	p.over.Go(func() { p.show(every) })
	return p
}

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

// setOf says how many of how many steps are done.
func (p *progress) setOf(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = done, total
}

// finish ends the output.
func (p *progress) finish() {
	close(p.stop)
	p.over.Wait()
}

// above calls write, which prints lines on the terminal, while the bar is hidden.
func (p *progress) above(write func()) {
	p.draw.Lock()
	defer p.draw.Unlock()
	if p.bar && p.shown {
		fmt.Fprint(p.w, "\r"+clearLine)
	}
	write()
}

func (p *progress) drawBar(done, total int) {
	const width = 10
	full := width * done / max(1, total)
	fmt.Fprintf(p.w, "\r%s%s %3d%% |%s%s|", clearLine, p.describe(done, total), 100*done/max(1, total),
		strings.Repeat("█", full), strings.Repeat(" ", width-full))
}

// sofar returns the number of steps that are done, and of all: there may be more steps
// than expected.
func (p *progress) sofar() (done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = max(p.total, p.done)
	return p.done, p.total
}

// describe returns the progress as a line: "moved 19,414 of 50,000 messages, 9,700/s, 3s left".
func (p *progress) describe(done, total int) string {
	line := fmt.Sprintf("%s %s of %s %s", p.verb, text.Grouped(int64(done)), text.Grouped(int64(total)), p.noun)
	if p.rated && done < total {
		if speed := p.pace.speed(); speed >= 1 {
			line += fmt.Sprintf(", %s/s", text.Grouped(int64(speed)))
		}
	}
	if p.rated || p.bar {
		line += left(p.pace.speed(), total-done)
	}
	return line
}

// left returns how long the remaining steps will take at that many a second, as text. It is
// empty if that is unknown.
func left(speed float64, steps int) string {
	if speed <= 0 || steps <= 0 {
		return ""
	}
	rest := time.Duration(float64(steps) / speed * float64(time.Second))
	return fmt.Sprintf(", %s left", max(rest.Round(time.Second), time.Second))
}

func (p *progress) show(every time.Duration) {
	p.pace.note(0)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for printed := -1; ; {
		select {
		case <-timer.C:
		case <-p.stop:
			p.last(printed)
			return
		}
		printed = p.refresh(printed)
		timer.Reset(every)
	}
}

// refresh draws the bar, or prints a line. printed is the number of steps on the line before;
// refresh returns that on the new one.
func (p *progress) refresh(printed int) int {
	p.draw.Lock()
	defer p.draw.Unlock()
	done, total := p.sofar()
	p.pace.note(done)
	switch {
	case p.bar:
		p.shown = true
		p.drawBar(done, total)
	case done == 0, done == total && done == printed:
		// A log needs no line that says nothing.
	case done == printed && p.same < repeatAfter:
		p.same++
	default:
		p.shown, p.same = true, 0
		fmt.Fprintln(p.w, p.describe(done, total))
		return done
	}
	return printed
}

// last ends the output: the bar disappears, and the last line of a log shows all that was done.
func (p *progress) last(printed int) {
	p.draw.Lock()
	defer p.draw.Unlock()
	done, total := p.sofar()
	switch {
	case p.shown && p.bar:
		fmt.Fprint(p.w, "\r"+clearLine)
	case p.shown && done != printed:
		p.pace = pace{}
		fmt.Fprintln(p.w, p.describe(done, total))
	}
}

// pace measures the speed of the last seconds: a task waits at times, and its parts differ.
type pace struct{ seen []paceMark }

// paceMark is how many steps were done at a time.
type paceMark struct {
	at   time.Time
	done int
}

// note notes how many steps are done now.
func (p *pace) note(done int) {
	now := time.Now()
	p.seen = append(p.seen, paceMark{now, done})
	for len(p.seen) > 2 && now.Sub(p.seen[1].at) >= paceOver {
		p.seen = p.seen[1:]
	}
}

// speed returns how many steps are done in a second. Zero: none, or it is not known yet.
func (p *pace) speed() float64 {
	if len(p.seen) < 2 {
		return 0
	}
	first, last := p.seen[0], p.seen[len(p.seen)-1]
	passed := last.at.Sub(first.at)
	if passed <= 0 {
		return 0
	}
	return float64(last.done-first.done) / passed.Seconds()
}
