package monitor

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

const (
	// limitLines is how many lines of the same text are logged within limitTime. The
	// rest is counted.
	limitLines = 10
	limitTime  = time.Minute
)

// LimitLog returns a logger that writes a line of the same text a few times a minute
// at most: what ten thousand messages a second suffer must not fill the disk. At the
// end of each minute one line says how many were left out. Call flush when the logger
// is used no more: it writes the counts that are still open.
func LimitLog(log *slog.Logger) (limited *slog.Logger, flush func()) {
	shared := &limiter{log: log.Handler(), texts: map[string]*repeated{}}
	return slog.New(&limitHandler{log.Handler(), shared}), shared.flush
}

// limitHandler is the handler of a limited logger. Those that With makes share their
// limiter.
type limitHandler struct {
	slog.Handler
	limiter *limiter
}

// limiter counts what is logged.
type limiter struct {
	log   slog.Handler // without the attributes that With adds for one message
	mu    sync.Mutex
	texts map[string]*repeated
}

// repeated counts the lines of one text within limitTime of the first.
type repeated struct {
	lines int
	last  slog.Record
	end   *time.Timer
}

// Handle logs a record, or counts it.
func (h *limitHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.limiter.over(ctx, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// over counts a record, and reports whether it is one too many.
func (l *limiter) over(ctx context.Context, r slog.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	same, ok := l.texts[r.Message]
	if !ok {
		same = &repeated{}
		l.texts[r.Message] = same
		ctx := context.WithoutCancel(ctx)
		same.end = time.AfterFunc(limitTime, func() { l.sum(ctx, r.Message) })
	}
	same.lines++
	same.last = r
	return same.lines > limitLines
}

// sum logs how many lines of a message were left out, and begins anew.
func (l *limiter) sum(ctx context.Context, message string) {
	l.mu.Lock()
	defer l.mu.Unlock() // while it writes: after flush nothing is written
	same, ok := l.texts[message]
	if !ok {
		return
	}
	delete(l.texts, message)
	same.end.Stop()
	if left := same.lines - limitLines; left > 0 {
		r := slog.NewRecord(time.Now(), same.last.Level, message, same.last.PC)
		r.AddAttrs(slog.Int("left_out", left), slog.String("within", text.Duration(limitTime)))
		_ = l.log.Handle(ctx, r) // a failure to log has nowhere to be reported
	}
}

// flush sums up all texts now.
func (l *limiter) flush() {
	l.mu.Lock()
	texts := slices.Sorted(maps.Keys(l.texts))
	l.mu.Unlock()
	for _, text := range texts {
		l.sum(context.Background(), text)
	}
}

// WithAttrs returns a handler that adds attributes and counts with this one.
func (h *limitHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitHandler{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup does so for a group.
func (h *limitHandler) WithGroup(name string) slog.Handler {
	return &limitHandler{h.Handler.WithGroup(name), h.limiter}
}
