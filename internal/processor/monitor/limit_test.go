package monitor

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines is a buffer that timers write to.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// read is a value that counts how often it is read.
type read struct{ times *int }

func (r read) LogValue() slog.Value {
	*r.times++
	return slog.StringValue("m")
}

func TestTheSameTextIsLoggedAFewTimesAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limitLines = 10
		var out lines
		log, flush := LimitLog(slog.New(slog.NewTextHandler(&out, nil)), Limit{Lines: limitLines})
		reads := 0 // a value may take long to mask
		for range 5000 {
			log.With("message_id", read{&reads}).Error("moved message to the unroutable queue")
		}
		if reads != limitLines {
			t.Errorf("the values of %d lines are read", reads)
		}
		log.Warn("another")
		if n := strings.Count(out.String(), "\n"); n != limitLines+1 {
			t.Errorf("%d lines of one trouble and one of another", n)
		}
		out.Reset()
		<-time.After(limitTime + time.Second) // of the bubble
		synctest.Wait()
		want := fmt.Sprintf(`level=ERROR msg="moved message to the unroutable queue" left_out=%d within=1m`,
			5000-limitLines)
		if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("afterwards it says %q, want one line with %q", out.String(), want)
		}
		out.Reset()
		log.Error("moved message to the unroutable queue")
		if !strings.Contains(out.String(), "moved message") {
			t.Error("a new time does not begin")
		}
		for range limitLines {
			log.Error("moved message to the unroutable queue")
		}
		out.Reset()
		flush()
		if !strings.Contains(out.String(), "left_out=1 ") {
			t.Errorf("at the end it says %q", out.String())
		}
		out.Reset()
		<-time.After(2 * limitTime)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("after the end it says %q", out.String())
		}
	})
}

// Lines about each queue are counted by themselves: a queue with many does not hide those of
// another.
func TestLinesAreLimitedForEachQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log, flush := LimitLog(slog.New(slog.NewTextHandler(&out, nil)), Limit{Lines: 20, By: "queue"})
		for i := range 5000 {
			log.With("queue", "busy", "message_id", i).Warn("dead-lettered message")
		}
		log.With("queue", "calm", "message_id", 1).Warn("dead-lettered message")
		busy, calm := strings.Count(out.String(), "queue=busy"), strings.Count(out.String(), "queue=calm")
		if busy != 20 || calm != 1 {
			t.Errorf("%d lines of the busy queue and %d of the other", busy, calm)
		}
		out.Reset()
		flush()
		if got := out.String(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, `level=WARN msg="dead-lettered message" queue=busy left_out=4980 within=1m`) {
			t.Errorf("at the end it says %q", got)
		}
	})
}
