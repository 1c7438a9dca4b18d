package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// world is a topology file, and messages with what consumers do to each.
type world struct {
	file     strings.Builder
	backoffs []string
	queues   []string
	classic  map[string]bool
	messages []trace.Input
}

func drawWorld(t *rapid.T) *world {
	w := &world{classic: map[string]bool{}}
	fmt.Fprintf(&w.file, "version: 1\nname: shop\ncountHeader: %s\ndefaults: {type: %s}\nbackoff:\n",
		rapid.SampledFrom([]string{"count", "tries"}).Draw(t, "count header"), drawType(t))
	for i := range rapid.IntRange(1, 3).Draw(t, "backoffs") {
		w.drawBackoff(t, fmt.Sprint("b", i))
	}
	w.file.WriteString(`exchanges:
  - {name: topics}
  - {name: one, type: direct, bindings: [{exchange: topics, key: "a.#"}]}
  - {name: all, type: fanout, bindings: [{exchange: one, key: a.b}]}
  - {name: docs, type: headers}
queues:
`)
	for i := range rapid.IntRange(1, 4).Draw(t, "queues") {
		w.drawQueue(t, fmt.Sprint("q", i))
	}
	for i := range rapid.IntRange(3, 8).Draw(t, "messages") {
		w.messages = append(w.messages, w.drawMessage(t, i))
	}
	return w
}

func drawType(t *rapid.T) string {
	return rapid.SampledFrom([]string{topology.Quorum, topology.Classic}).Draw(t, "type")
}

func (w *world) drawBackoff(t *rapid.T, name string) {
	delay := rapid.SampledFrom([]string{"0s", "50ms", "80ms", "150ms", "50ms"})
	var tiers []string
	for range rapid.IntRange(1, 3).Draw(t, "tiers") {
		tiers = append(tiers, fmt.Sprintf("{delay: %s, attempts: %d}", delay.Draw(t, "delay"),
			rapid.IntRange(1, 2).Draw(t, "attempts")))
	}
	retryOn := ""
	if rapid.IntRange(0, 3).Draw(t, "has reasons") == 0 {
		reason := rapid.SampledFrom([]string{"rejected", "delivery_limit", "expired"}).Draw(t, "reason")
		retryOn = ", retryOn: [" + reason + "]"
	}
	fmt.Fprintf(&w.file, "  %s: {tiers: [%s]%s}\n", name, strings.Join(tiers, ", "), retryOn)
	w.backoffs = append(w.backoffs, name)
}

func (w *world) drawQueue(t *rapid.T, name string) {
	kind := drawType(t)
	fmt.Fprintf(&w.file, "  - name: %s\n    type: %s\n    backoff: %s\n    dead: %s\n", name, kind,
		rapid.SampledFrom(append(slices.Clone(w.backoffs), topology.NoBackoff)).Draw(t, "backoff"),
		rapid.SampledFrom([]string{"own", "shared"}).Draw(t, "dead"))
	if kind == topology.Quorum {
		fmt.Fprintf(&w.file, "    deliveryLimit: %d\n", rapid.IntRange(0, 2).Draw(t, "delivery limit"))
	}
	if rapid.IntRange(0, 3).Draw(t, "by policy") == 0 {
		w.file.WriteString("    deadLetterBy: policy\n")
	}
	bindings := []string{
		"{exchange: topics, key: a.b}", `{exchange: topics, key: "a.*"}`, `{exchange: topics, key: "#.c"}`,
		"{exchange: one, keys: [a.b, a.c]}", "{exchange: all}", "{exchange: docs, match: any, headers: {kind: 1, lang: de}}",
		"{exchange: docs, headers: {kind: 1}}",
	}
	chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(bindings), 1, 4, rapid.ID).Draw(t, "bindings")
	fmt.Fprintf(&w.file, "    bindings: [%s]\n", strings.Join(chosen, ", "))
	w.queues = append(w.queues, name)
	w.classic[name] = kind == topology.Classic
}

func (w *world) drawMessage(t *rapid.T, i int) trace.Input {
	in := trace.Input{
		Exchange: rapid.SampledFrom([]string{"topics", "one", "all", "docs", ""}).Draw(t, "exchange"),
		Key:      rapid.SampledFrom([]string{"a.b", "a.c", "b.c", "a", ""}).Draw(t, "key"),
		Headers:  map[string]any{"id": fmt.Sprint("m-", i)},
		Failures: rapid.SampledFrom([]int{trace.Always, 0, 1, 2, 3}).Draw(t, "failures"),
		Cause:    rapid.SampledFrom([]trace.Cause{trace.Rejected, trace.Rejected, trace.Crash}).Draw(t, "cause"),
	}
	if in.Exchange == "" {
		in.Key = rapid.SampledFrom(w.queues).Draw(t, "queue")
	}
	for _, h := range []struct {
		name   string
		values []any
	}{
		{"kind", []any{int64(1), "1"}},
		{"lang", []any{"de"}},
		{"count", []any{int64(1), int64(7), "x"}},
		{"retry-queue", []any{"q0"}},
		{"CC", []any{[]any{"a.c"}, []any{"@q0", "x"}}},
		{"BCC", []any{[]any{"a.b"}}},
	} {
		if rapid.IntRange(0, 2).Draw(t, h.name) == 0 {
			in.Headers[h.name] = rapid.SampledFrom(h.values).Draw(t, h.name)
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
		minute := time.Minute // no consumer is that slow
		in.Expiration = &minute
	}
	// A classic queue, and one without a limit, delivers a message again and again.
	if in.Cause == trace.Crash && slices.ContainsFunc(w.queues, func(q string) bool { return w.classic[q] }) {
		in.Cause = trace.Rejected
	}
	return in
}
