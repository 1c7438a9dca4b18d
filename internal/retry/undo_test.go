package retry_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// The law of Undo: however often a message fails, and wherever it ends, Undo returns what its
// publisher had set.
func TestUndoReturnsWhatThePublisherSet(t *testing.T) {
	t.Parallel()
	c := shop("count", map[string]int{"a": 3})
	rules := rulesOf(c, "a")
	rapid.Check(t, func(t *rapid.T) {
		want := published(t)
		origin := rapid.SampledFrom([]string{"billing", "billing", "unknown"}).Draw(t, "queue")
		m := failed(want, origin, rapid.Bool().Draw(t, "the broker keeps CC"))
		lost := rapid.IntRange(1, 6).Draw(t, "the failure without an address")
		for i := range rapid.IntRange(1, 5).Draw(t, "failures") {
			if i+1 == lost { // the queue has lost its dead-letter routing key
				m.Key = "order.placed"
			}
			d := rules.Decide(m, moment(t))
			if rapid.IntRange(0, 9).Draw(t, "the broker refuses it") == 0 {
				d = rules.ToUnroutable(m, retry.Decision{Cause: retry.Refused}, "it is full", moment(t))
			}
			if diff := cmp.Diff(want, retry.Undo(d.Headers, "count")); diff != "" {
				t.Fatalf("%s (-published +undone):\n%s", d.Outcome, diff)
			}
			if d.Outcome != retry.Retried {
				return
			}
			m = failedAgain(d)
		}
	})
}

// published draws a message as a publisher may send it.
func published(t *rapid.T) retry.Published {
	keys := rapid.SliceOfN(rapid.SampledFrom([]any{"x.y", "", "billing", "order.placed"}), 0, 2)
	list := func(label string) []any {
		if l := keys.Draw(t, label); len(l) > 0 {
			return l
		}
		return nil
	}
	p := retry.Published{
		Headers: rapid.MapOfN(rapid.SampledFrom([]string{"mine", "x-mine", "retry", "retry-count", "x-match", "desk-run"}),
			rapid.SampledFrom([]any{nil, "", "text", int64(1), true, []any{"a"}}), 0, 4).Draw(t, "headers"),
		CC: list("CC"), BCC: list("BCC"),
		UserID:     rapid.SampledFrom([]string{"", "shopper"}).Draw(t, "user-id"),
		Expiration: rapid.SampledFrom([]string{"", "0", "60000"}).Draw(t, "expiration"),
	}
	if rapid.Bool().Draw(t, "sets the count header") {
		p.Headers["count"] = rapid.SampledFrom([]any{nil, "1", int64(-1), int32(2), int64(900), true}).Draw(t, "count")
	}
	return p
}

// failed returns a message as it comes to the failed queue after its first failure. Since RabbitMQ
// 4.0 a dead letter keeps the header CC.
func failed(p retry.Published, origin string, keepsCC bool) retry.Message {
	m := retry.Message{
		Exchange: "shop.failed", Key: topology.AddressKey(origin), UserID: p.UserID, Headers: maps.Clone(p.Headers),
	}
	if p.CC != nil && keepsCC {
		m.Headers["CC"] = p.CC
	}
	if p.BCC != nil { // the broker removes it when it routes the message, and other protocols may keep it
		m.Headers["BCC"] = p.BCC
	}
	died := map[string]any{
		"queue": origin, "reason": "rejected", "exchange": "events",
		"routing-keys": append([]any{"order.placed"}, p.CC...),
	}
	if p.Expiration != "" {
		died["original-expiration"] = p.Expiration
	}
	m.Headers["x-death"] = []any{died}
	m.Headers["x-first-death-queue"] = origin
	return m
}

// failedAgain returns a message that has waited in its tier and failed again.
func failedAgain(d retry.Decision) retry.Message {
	h := maps.Clone(d.Headers)
	keys := []any{d.Key, topology.AddressKey(d.Queue)}
	h["x-death"] = []any{
		map[string]any{"queue": d.Queue, "reason": "rejected", "exchange": "shop.return", "routing-keys": keys},
		map[string]any{"queue": d.Tier.Queue, "reason": "expired", "exchange": d.Exchange, "routing-keys": keys},
	}
	h["x-delivery-count"] = int64(1)
	return retry.Message{Exchange: "shop.failed", Key: topology.AddressKey(d.Queue), Headers: h}
}

// An address of a work queue is not what a publisher added: a processor has set it.
func TestUndoGivesNoAddresses(t *testing.T) {
	t.Parallel()
	got := retry.Undo(map[string]any{"retry-cc": []any{"@billing", "x", int64(1)}, "CC": []any{"@billing"}}, "count")
	if !slices.Equal(got.CC, []any{"x"}) || len(got.Headers) > 0 {
		t.Errorf("Undo: %+v", got)
	}
}
