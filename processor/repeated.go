package processor

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// troubleLines is how many lines of the same text are logged within
	// troubleTime. The rest is counted.
	troubleLines = 10
	troubleTime  = time.Minute
)

// trouble is a handler of logs that says the same only so often: what ten
// thousand messages a second suffer must not fill the disk. At the end of each
// troubleTime one line says how many were left out.
type trouble struct {
	slog.Handler
	shared *told
}

// told is what was said. It is shared by the loggers that With gives.
type told struct {
	log   slog.Handler // without what With adds about one message
	mu    sync.Mutex
	texts map[string]*repeated
}

// repeated counts the lines of one text in the time that began with the first.
type repeated struct {
	lines int
	last  slog.Record
	end   *time.Timer
}

// limited gives a logger that says the same only so often. What is left out when
// it is used no more, flush tells.
func limited(log *slog.Logger) (out *slog.Logger, flush func()) {
	shared := &told{log: log.Handler(), texts: map[string]*repeated{}}
	return slog.New(&trouble{log.Handler(), shared}), shared.flush
}

// Handle logs a record, or counts it.
func (t *trouble) Handle(ctx context.Context, r slog.Record) error {
	t.shared.mu.Lock()
	same, ok := t.shared.texts[r.Message]
	if !ok {
		same = &repeated{}
		t.shared.texts[r.Message] = same
		ctx := context.WithoutCancel(ctx)
		same.end = time.AfterFunc(troubleTime, func() { t.shared.sum(ctx, r.Message) })
	}
	same.lines++
	same.last = r
	over := same.lines > troubleLines
	t.shared.mu.Unlock()
	if over {
		return nil
	}
	return t.Handler.Handle(ctx, r)
}

// sum says how many lines of a text were left out, and begins anew.
func (t *told) sum(ctx context.Context, text string) {
	t.mu.Lock()
	defer t.mu.Unlock() // while it writes: after flush nothing is written
	same, ok := t.texts[text]
	if !ok {
		return
	}
	delete(t.texts, text)
	same.end.Stop()
	if left := same.lines - troubleLines; left > 0 {
		r := slog.NewRecord(time.Now(), same.last.Level, text, same.last.PC)
		r.AddAttrs(slog.Int("left_out", left), slog.String("within", troubleTime.String()))
		_ = t.log.Handle(ctx, r) // there is nobody to tell that logging fails
	}
}

// flush sums up all texts now.
func (t *told) flush() {
	t.mu.Lock()
	texts := slices.Sorted(maps.Keys(t.texts))
	t.mu.Unlock()
	for _, text := range texts {
		t.sum(context.Background(), text)
	}
}

// WithAttrs gives a handler that adds attributes and counts with this one.
func (t *trouble) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &trouble{t.Handler.WithAttrs(attrs), t.shared}
}

// WithGroup does so for a group.
func (t *trouble) WithGroup(name string) slog.Handler {
	return &trouble{t.Handler.WithGroup(name), t.shared}
}
