package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

// limitTime is the time for which lines are counted.
const limitTime = time.Minute

// Limit says how many lines of the same text are logged in a minute. The rest is counted.
type Limit struct {
	Lines int
	// By is the key of an attribute, such as queue: lines with different values of it are counted
	// apart. It must be added by With. Empty: lines differ by their text alone.
	By string
}

// LimitLog returns a logger that writes a line of the same text a few times a minute
// at most: what ten thousand messages a second suffer must not fill the disk. At the
// end of each minute one line says how many were left out. Call flush when the logger
// is used no more: it writes the counts that are still open.
func LimitLog(log *slog.Logger, limit Limit) (limited *slog.Logger, flush func()) {
	shared := &limiter{limit: limit, log: log.Handler(), kinds: map[kind]*repeated{}}
	return slog.New(&limitHandler{log.Handler, shared, ""}), shared.flush
}

// limitHandler is the handler of a limited logger. Those that With makes share their
// limiter.
type limitHandler struct {
	// made returns the handler with the attributes of With. They are read, and masked if they are a
	// [slog.LogValuer], for lines that are written alone: in a flood most are not.
	made    func() slog.Handler
	limiter *limiter
	by      string // the value of the attribute Limit.By
}

// Enabled reports whether records of a level are logged.
func (h *limitHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.limiter.log.Enabled(ctx, level)
}

// kind is what lines have in common that are counted together.
type kind struct{ text, by string }

// limiter counts what is logged.
type limiter struct {
	limit Limit
	log   slog.Handler // without the attributes that With adds for one message
	mu    sync.Mutex
	kinds map[kind]*repeated
}

// repeated counts the lines of one kind within limitTime of the first.
type repeated struct {
	lines int
	last  slog.Record
	end   *time.Timer
}

// Handle logs a record, or counts it.
func (h *limitHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.limiter.over(ctx, kind{r.Message, h.by}, r) {
		return nil
	}
	return h.made().Handle(ctx, r)
}

// over counts a record, and reports whether it is one too many.
func (l *limiter) over(ctx context.Context, k kind, r slog.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	same, ok := l.kinds[k]
	if !ok {
		same = &repeated{}
		l.kinds[k] = same
		ctx := context.WithoutCancel(ctx)
		same.end = time.AfterFunc(limitTime, func() { l.sum(ctx, k) })
	}
	same.lines++
	same.last = r
	return same.lines > l.limit.Lines
}

// sum logs how many lines of a kind were left out, and begins anew.
func (l *limiter) sum(ctx context.Context, k kind) {
	l.mu.Lock()
	defer l.mu.Unlock() // while it writes: after flush nothing is written
	same, ok := l.kinds[k]
	if !ok {
		return
	}
	delete(l.kinds, k)
	same.end.Stop()
	if left := same.lines - l.limit.Lines; left > 0 {
		r := slog.NewRecord(time.Now(), same.last.Level, k.text, same.last.PC)
		if k.by != "" {
			r.AddAttrs(slog.String(l.limit.By, k.by))
		}
		r.AddAttrs(slog.Int("left_out", left), slog.String("within", text.Duration(limitTime)))
		_ = l.log.Handle(ctx, r) // a failure to log has nowhere to be reported
	}
}

// flush sums up all kinds now.
func (l *limiter) flush() {
	l.mu.Lock()
	kinds := slices.SortedFunc(maps.Keys(l.kinds), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.by, b.by))
	})
	l.mu.Unlock()
	for _, k := range kinds {
		l.sum(context.Background(), k)
	}
}

// WithAttrs returns a handler that adds attributes and counts with this one.
func (h *limitHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	by := h.by
	for _, a := range attrs {
		if a.Key == h.limiter.limit.By {
			by = a.Value.String()
		}
	}
	return &limitHandler{func() slog.Handler { return h.made().WithAttrs(attrs) }, h.limiter, by}
}

// WithGroup does so for a group.
func (h *limitHandler) WithGroup(name string) slog.Handler {
	return &limitHandler{func() slog.Handler { return h.made().WithGroup(name) }, h.limiter, h.by}
}
