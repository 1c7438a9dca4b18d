package retry_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// outlasting returns rules of a backoff of two tiers that know a state of each queue. Functions may
// change the backoff.
func outlasting(state retry.State, change ...func(*topology.Backoff)) retry.Rules {
	b := topology.Backoff{
		Name: "standard", RetryExchange: "shop.standard.dlx", RetryUntil: time.Hour,
		RetryOn: []topology.Reason{topology.ReasonRejected, topology.ReasonExpired},
		Tiers: []topology.Tier{
			{Delay: time.Second, Queue: "shop.standard.retry.1s"}, {Delay: time.Minute, Queue: "shop.standard.retry.1m"},
		},
		Outage: &topology.Outage{
			Failing: 0.8, Of: 50, Until: 24 * time.Hour,
			Tier: topology.Tier{Delay: time.Minute, Queue: "shop.standard.retry.outage"},
		},
	}
	for _, f := range change {
		f(&b)
	}
	c := topology.Compiled{
		Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
	}
	return retry.NewRules(c, b, 0).Knowing(step, func(string) (retry.State, time.Time) {
		return state, time.Date(2026, 11, 24, 11, 59, 0, 0, time.UTC) // a minute ago, in all tests
	})
}

// failedOften returns a message that came back and failed again, with this number of attempts, and
// failed for the first time that long ago.
func failedOften(attempts int64, ago time.Duration, now time.Time, reason string,
	headers map[string]any,
) retry.Message {
	h := map[string]any{
		"count": int32(min(3, attempts-1)), "retry-queue": "billing", "retry-attempts": attempts - 1,
		"retry-first-failed-at": now.Add(-ago).UTC().Format(topology.HeaderTime),
		"retry-last-failed-at":  now.Add(-time.Minute).UTC().Format(topology.HeaderTime),
		"x-death": []any{
			map[string]any{
				"queue": "billing", "reason": reason, "exchange": "shop.return", "routing-keys": []any{"order.placed"},
			},
			map[string]any{"queue": "shop.standard.retry.1m", "reason": "expired"},
		},
	}
	maps.Copy(h, headers)
	return retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: h}
}

// What would be dead waits while its queue is in outage, and the attempt does not count, until the
// time of the file has passed. What no retry helps, or what the file excludes, is dead at once.
func TestAnOutageKillsNothing(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	rules := outlasting(retry.InOutage)
	for name, tc := range map[string]struct {
		message  retry.Message
		outcome  retry.Outcome
		count    int32
		attempts int64
	}{
		"a first failure":           {failedOften(1, 0, now, "rejected", nil), retry.Retried, 1, 1},
		"before the last tier":      {failedOften(2, time.Hour, now, "rejected", nil), retry.Retried, 2, 2},
		"after the last tier":       {failedOften(3, time.Hour, now, "rejected", nil), retry.Retried, 3, 2},
		"an expired one":            {failedOften(3, time.Hour, now, "expired", nil), retry.Retried, 3, 2},
		"after until":               {failedOften(3, 24*time.Hour, now, "rejected", nil), retry.DeadLettered, -1, 3},
		"a reason that is excluded": {failedOften(3, time.Hour, now, "maxlen", nil), retry.DeadLettered, -1, 3},
		"an early, excluded reason": {failedOften(2, time.Hour, now, "maxlen", nil), retry.DeadLettered, -1, 2},
		"a first time of no meaning": {
			failedOften(3, 0, now, "rejected", map[string]any{"retry-first-failed-at": "soon"}), retry.DeadLettered, -1, 3,
		},
	} {
		got := rules.Decide(tc.message, now)
		count, attempts := got.Headers["count"], got.Headers["retry-attempts"]
		if got.Outcome != tc.outcome || count != tc.count || attempts != tc.attempts {
			t.Errorf("%s: %s with the count %v after %v attempts", name, got.Outcome, count, attempts)
		}
		if tc.count == 3 && got.Tier.Queue != "shop.standard.retry.outage" {
			t.Errorf("%s: waits in %s", name, got.Tier.Queue)
		}
	}
	said := failedOften(3, time.Hour, now, "rejected", map[string]any{"retry-permanent": true, "x-death": []any{
		map[string]any{"queue": "shop.standard.retry.1m", "reason": "expired"},
	}})
	if got := rules.Decide(said, now); got.Outcome != retry.DeadLettered || got.Reason != topology.ReasonPermanent {
		t.Errorf("permanent: %s, %s", got.Outcome, got.Reason)
	}
}

// What would be dead waits until statistics have shown no outage for a minute. Only what a
// processor has noted counts: a publisher cannot make its message wait, or die, by that header.
func TestWhatIsNotKnownKillsNothingAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	rules := outlasting(retry.NotKnown)
	at := func(ago time.Duration) string { return now.Add(-ago).Format(topology.HeaderTime) }
	for since, want := range map[string]string{
		"": at(0), "soon": at(0), at(59 * time.Second): at(59 * time.Second), at(time.Minute): "",
		at(61 * time.Second): at(0), // before this processor knew anything, or while there was an outage
	} {
		got := rules.Decide(failedOften(3, time.Hour, now, "rejected", map[string]any{"retry-unsure-since": since}), now)
		mark, _ := got.Headers["retry-unsure-since"].(string)
		if waits := got.Outcome == retry.Retried; mark != want || waits != (want != "") {
			t.Errorf("since %q: %s with the mark %q, want %q", since, got.Outcome, mark, want)
		}
	}
	marked := map[string]any{"retry-unsure-since": at(20 * time.Second)}
	for state, want := range map[retry.State]retry.Outcome{
		retry.InOutage: retry.Retried, retry.Working: retry.DeadLettered,
	} {
		got := outlasting(state).Decide(failedOften(3, time.Hour, now, "rejected", marked), now)
		if _, kept := got.Headers["retry-unsure-since"]; got.Outcome != want || kept {
			t.Errorf("state %d: %s, the mark is kept: %t", state, got.Outcome, kept)
		}
	}
	forged := retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: map[string]any{
		"retry-unsure-since": at(time.Hour), "x-death": []any{map[string]any{"queue": "billing", "reason": "rejected"}},
	}}
	got := rules.Decide(forged, now)
	if _, kept := got.Headers["retry-unsure-since"]; kept {
		t.Errorf("a publisher's header stays: %v", got.Headers)
	}
	back := retry.Undo(map[string]any{"retry-queue": "billing", "retry-unsure-since": at(0)}, "count")
	if len(back.Headers) > 0 {
		t.Errorf("Undo leaves %v", back.Headers)
	}
}

// What is out of attempts is never deleted as its time is over, and never dead for that: it waits
// for the end of an outage if its expiration lets it, or else is a dead letter for its own reason.
// While nothing is known it waits for a minute at most, however long the tier is.
func TestOutOfAttemptsIsNotOver(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		state      retry.State
		ago        time.Duration
		queued     time.Duration // of those that wait already
		expiration string
		want       retry.Outcome
	}{
		{retry.NotKnown, 2 * time.Minute, 0, "200000", retry.Retried}, // 80 s are left, of a tier of 10 m
		{retry.NotKnown, 2 * time.Minute, 0, "180001", retry.Retried},
		{retry.NotKnown, 2 * time.Minute, 0, "180000", retry.DeadLettered},
		{retry.NotKnown, time.Hour, 0, "3600000", retry.DeadLettered},
		{retry.InOutage, 2 * time.Minute, 0, "200000", retry.DeadLettered},
		{retry.InOutage, 2 * time.Minute, 0, "720001", retry.Retried},
		{retry.Working, 2 * time.Minute, 0, "720001", retry.DeadLettered},
		{retry.NotKnown, 2 * time.Minute, time.Hour, "200000", retry.DeadLettered},
		{retry.InOutage, 2 * time.Minute, time.Hour, "720001", retry.DeadLettered},
		{retry.InOutage, 2 * time.Minute, time.Hour, "3720001", retry.Retried},
	} {
		for _, after := range []topology.AfterExpiry{topology.ExpiryDead, topology.ExpiryDropped} {
			rules := outlasting(c.state, func(b *topology.Backoff) {
				b.AfterExpiry, b.RetryOn = after, []topology.Reason{topology.ReasonRejected}
				b.Outage.Tier.Delay = 10 * time.Minute
			}).Behind(func() time.Duration { return c.queued })
			m := failedOften(3, c.ago, now, "rejected", map[string]any{"retry-expiration": c.expiration})
			got := rules.Decide(m, now)
			if got.Outcome != c.want || got.Reason != topology.ReasonRejected || got.Attempts != 3 {
				t.Errorf("%+v, afterExpiry %s: %s for the reason %s after %d attempts",
					c, after, got.Outcome, got.Reason, got.Attempts)
			}
		}
	}
}

// A message tells when it failed before, if it has been through a retry queue. One that came back
// without having failed again tells nothing.
func TestEvidence(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	rules := outlasting(retry.Working)
	first := failedOften(1, 0, now, "rejected", map[string]any{"retry-queue": "other"})
	told := failedOften(2, 0, now, "rejected", map[string]any{"x-death": []any{
		map[string]any{"queue": "shop.standard.retry.1m", "reason": "expired"},
	}, "retry-permanent": true})
	returned := failedOften(2, 0, now, "rejected", nil)
	returned.Exchange = "shop.other.dlx"
	for name, tc := range map[string]struct {
		message retry.Message
		want    retry.Evidence
	}{
		"again": {
			failedOften(2, time.Hour, now, "rejected", nil),
			retry.Evidence{Failed: true, Delivered: true, Previous: now.Add(-time.Minute)},
		},
		"first":     {first, retry.Evidence{Failed: true, Delivered: true}},
		"permanent": {told, retry.Evidence{Delivered: true, Told: true, Previous: now.Add(-time.Minute)}},
		"excluded":  {failedOften(2, time.Hour, now, "maxlen", nil), retry.Evidence{Previous: now.Add(-time.Minute)}},
		"returned":  {returned, retry.Evidence{}},
	} {
		if d := cmp.Diff(tc.want, rules.Decide(tc.message, now).Evidence); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Where the broker has no queue for outages yet, a message waits in the last tier instead. It keeps
// the mark, so that its waits end while nothing is known.
func TestAnOutageWithoutItsQueue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	since := now.Add(-20 * time.Second).Format(topology.HeaderTime)
	m := failedOften(3, time.Hour, now, "rejected", map[string]any{
		"count": int32(3), "retry-attempts": int64(2), "retry-unsure-since": since, "retry-reason": "rejected",
	})
	m.Exchange = "shop.standard.dlx"
	got := outlasting(retry.NotKnown).Decide(m, now)
	if got.Tier.Queue != "shop.standard.retry.1m" || got.Headers["retry-attempts"] != int64(2) ||
		got.Headers["retry-unsure-since"] != since {
		t.Errorf("%s, waits in %q with %v", got.Outcome, got.Tier.Queue, got.Headers)
	}
}
