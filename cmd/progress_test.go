package cmd

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// A short task prints nothing; a long one prints its progress now and then.
func TestProgressInALog(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lasts time.Duration
		every time.Duration
		total int
		rated bool
		want  string
	}{
		"short": {time.Second, 999 * time.Millisecond, 20, false, ""},
		"long": {
			15 * time.Second, 999 * time.Millisecond, 20, false,
			"applied 2 of 20 changes\napplied 12 of 20 changes\napplied 16 of 20 changes\n",
		},
		"more than expected": {
			15 * time.Second, 999 * time.Millisecond, 5, false,
			"applied 2 of 5 changes\napplied 12 of 12 changes\napplied 16 of 16 changes\n",
		},
		"nothing is done for long": {
			19 * time.Second, 15 * time.Second, 2, false, "applied 1 of 2 changes\napplied 2 of 2 changes\n",
		},
		"messages": {
			20 * time.Second, 999 * time.Microsecond, 50_000, true,
			"moved 2,002 of 50,000 messages, 1,001/s, 48s left\nmoved 12,012 of 50,000 messages, 1,001/s, 38s left\n" +
				"moved 20,021 of 50,000 messages\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := app{stderr: &out}
				var p *progress
				if tc.rated {
					p = a.newMessageProgress(tc.total)
				} else {
					p = a.newProgress("applied", "changes", tc.total)
				}
				for end := time.Now().Add(tc.lasts); time.Now().Before(end); {
					synctest.Wait()
					timer := time.NewTimer(tc.every)
					<-timer.C
					p.step()
				}
				p.finish()
				if out.String() != tc.want {
					t.Errorf("it prints %q, not %q", out.String(), tc.want)
				}
			})
		})
	}
}

// On a terminal the bar is drawn in place. It makes way for lines above it, and is gone at the end.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &progress{w: &out, verb: "applied", noun: "changes", total: 20, bar: true}
	p.above(func() { out.WriteString("before\n") })
	p.set(5)
	p.refresh(-1)
	p.above(func() { out.WriteString("a line\n") })
	p.set(25)
	p.refresh(-1)
	p.last(-1)
	want := "before\n" +
		"\r\x1b[Kapplied 5 of 20 changes  25% |██        |" + "\r\x1b[Ka line\n" +
		"\r\x1b[Kapplied 25 of 25 changes 100% |██████████|" + "\r\x1b[K"
	if out.String() != want {
		t.Errorf("it prints\n%q, not\n%q", out.String(), want)
	}
}

// A log gets one line for the end, however long the task then waits.
func TestProgressSaysTheEndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := app{stderr: &out}
		p := a.newMessageProgress(50_000)
		p.set(50_000)
		<-time.After(time.Minute)
		p.finish()
		if want := "moved 50,000 of 50,000 messages\n"; out.String() != want {
			t.Errorf("it prints %q, not %q", out.String(), want)
		}
	})
}

// A log gets few lines that say the same, however long a task waits for something else.
func TestProgressRarelyRepeatsALine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := app{stderr: &out}
		p := a.newProgress("replayed", "messages", 37)
		p.set(1)
		<-time.After(11 * time.Minute)
		p.set(37)
		p.finish()
		const waits = "replayed 1 of 37 messages\n"
		if want := waits + waits + waits + "replayed 37 of 37 messages\n"; out.String() != want {
			t.Errorf("it prints %q, not %q", out.String(), want)
		}
	})
}

// The line shows the remaining time, once it can be estimated.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		speed float64
		steps int
		want  string
	}{
		{0, 10, ""},
		{.5, 9, ", 18s left"},
		{.5, 1, ", 2s left"},
		{100, 1, ", 1s left"},
		{5, 0, ""},
	} {
		if got := left(tc.speed, tc.steps); got != tc.want {
			t.Errorf("%d steps at %g a second: %q, not %q", tc.steps, tc.speed, got, tc.want)
		}
	}
}

// The speed is that of the last seconds, not of the whole task.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pace
		done := 0
		for range 60 { // a minute in which nothing is done
			p.note(done)
			<-time.After(time.Second)
		}
		for range 12 {
			p.note(done)
			<-time.After(time.Second)
			done += 500
		}
		p.note(done)
		if got := p.speed(); got != 500 {
			t.Errorf("the speed is %g, not 500", got)
		}
	})
}
