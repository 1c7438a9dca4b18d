package spec

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

// nativeFile is a file whose queue has a native backoff. Its backoff is on line 4, its queue on
// line 5.
func nativeFile(backoff, queue string) []Source {
	return []Source{{Name: "f", Data: []byte("version: 1\nname: shop\nbackoff:\n  b: {engine: native, " + backoff +
		"}\nqueues: [{name: q, backoff: b" + queue + "}]\n")}}
}

// A native backoff is a policy of its queue, with what RabbitMQ dead-letters a dead letter at once.
// It has no failed queue, no retry exchange and no tiers.
func TestNativeBackoff(t *testing.T) {
	t.Parallel()
	for tiers, is := range map[string][3]int64{ // the first and the longest delay, and the retries
		"tiers: [10s, 20s, {delay: 25s, attempts: 2}]": {10_000, 25_000, 4},
		"tiers: [10s]":                                           {10_000, 10_000, 1},
		"tiers: [1ms, 2ms, 3ms]":                                 {1, 3, 3},
		"tiers: [5s], attemptsPerTier: 3":                        {5_000, 5_000, 3},
		"exponential: {first: 5s, steps: 2}":                     {5_000, 10_000, 2},
		"exponential: {first: 5s, steps: 4, max: 5s}":            {5_000, 5_000, 4},
		"linear: {first: 5s, attempts: 4}":                       {5_000, 20_000, 4},
		"linear: {first: 5s, attempts: 4, max: 12s}":             {5_000, 12_000, 4},
		"tiers: [{delay: 49d17h2m47.295s, attempts: 1000}]":      {1<<32 - 1, 1<<32 - 1, 1000},
		"tiers: [10s, 20s, 30s, {delay: 35s, attempts: 3}, 35s]": {10_000, 35_000, 7},
	} {
		want := topology.Arguments{"delayed-retry-min": is[0], "delayed-retry-max": is[1], "delivery-limit": is[2]}
		for _, queue := range []string{"", ", deadLetterBy: policy", ", external: true", ", external: true, type: quorum"} {
			c, _, err := LoadFor("4.3.1", nativeFile(tiers, queue), environment())
			if err != nil {
				t.Fatal(err)
			}
			want := want.With("delayed-retry-type", "all").With("dead-letter-exchange", "shop.failed").
				With("dead-letter-routing-key", "@q")
			if queue != ", external: true" { // plan knows the type
				want = want.With("dead-letter-strategy", "at-least-once").With("overflow", "reject-publish")
			}
			if d := cmp.Diff(want, c.Policies[0].Definition); d != "" {
				t.Errorf("%s%s: the policy (-want +got):\n%s", tiers, queue, d)
			}
			b, ok := c.NativeBackoff("b")
			if again, is := topology.NativeOf(c.Policies[0].Definition); !ok || !is || !sameDelays(b, again) {
				t.Errorf("%s: the policy stands for %s, and the backoff is %s", tiers, again.DelaysText(), b.DelaysText())
			}
			failed := topology.Binding{Source: "shop.failed", Destination: "shop.dead", DestinationType: "exchange", Key: "@q"}
			routed := false
			for _, x := range c.Bindings {
				routed = routed || x.Source == failed.Source && x.Destination == failed.Destination && x.Key == failed.Key
			}
			if !routed || len(c.Backoffs) > 0 || len(c.Queues) != 3 || c.Processed(c.WorkQueues[0]) {
				t.Errorf("%s: queues %q, backoffs %v", tiers, c.QueueNames(), c.Backoffs)
			}
		}
	}
}

func sameDelays(a, b topology.Backoff) bool { return a.DelaysText() == b.DelaysText() }

// What a native backoff and its queues cannot have is refused by name, at its place.
func TestNativeRefuses(t *testing.T) {
	t.Parallel()
	const linear = "tiers: [1s, 2s]"
	for _, tc := range []struct{ backoff, queue, want string }{
		{"tiers: [10s, 1m, 10m]", "", `f:4:36: backoff "b" has engine: native, and retry 2 waits 1m: RabbitMQ can wait only n times the first delay, 10s, for retry n, and a longest delay from then on; write engine: processor, or the nearest linear schedule: linear: {first: 30s, attempts: 3}`},
		{"tiers: [10s, 20s, 15s]", "", `nearest linear schedule: linear: {first: 10s, attempts: 3, max: 20s}`},
		{"tiers: [10s, 20s, 15s, 20s]", "", `nearest linear schedule: linear: {first: 10s, attempts: 4, max: 20s}`},
		{"tiers: [10s], attemptsPerTier: 2, exponential: {first: 1s, steps: 9}", "", "has both tiers and exponential"},
		{"exponential: {first: 5s, steps: 6}", "", `nearest linear schedule: linear: {first: 10s, attempts: 6}`},
		{"exponential: {first: 1s, steps: 1000, max: 1h}", "", `nearest linear schedule: linear: {first: `},
		{"tiers: [{delay: 1s, attempts: 2}, 2s]", "", `f:4:31: backoff "b" has engine: native, and retry 2 waits 1s`},
		{"tiers: [0s]", "", `f:4:31: backoff "b" has engine: native and a delay of 0; RabbitMQ delays by 1ms or more: write tiers: [1ms], or engine: processor`},
		{"tiers: []", "", `f:4:30: backoff "b" has engine: native and no tiers; add tiers, such as tiers: [10s, 20s, 30s]; for a queue without retries write backoff: none there`},
		{linear + ", retryOn: [rejected]", "", `f:4:40: backoff "b" has engine: native and retryOn; only the processor follows retryOn: remove it, or write engine: processor`},
		{linear + ", retryUntil: 1h", "", `f:4:40: backoff "b" has engine: native and retryUntil`},
		{linear + ", afterExpiry: dead", "", `f:4:40: backoff "b" has engine: native and afterExpiry`},
		{linear + ", outage: {}", "", `f:4:40: backoff "b" has engine: native and outage`},
		{linear, ", type: classic", `f:5:38: queue "q" has the backoff "b", which has engine: native, and is classic; only quorum queues delay retries: write type: quorum, or a backoff with engine: processor`},
		{linear, ", deadLetterBy: arguments", `f:5:46: queue "q" has the backoff "b", which has engine: native, and deadLetterBy: arguments; only a policy`},
		{linear, ", deliveryLimit: 5", `f:5:47: queue "q" has the backoff "b", which has engine: native, and deliveryLimit; the number of its retries`},
		{linear, ", retryTo: r}, {name: r, backoff: none", `f:5:41: queue "q" has the backoff "b", which has engine: native, and retryTo; only the processor`},
		{linear, "}, {name: r, retryTo: q, backoff: c", `f:5:52: queue "r" has retryTo "q", whose backoff "b" has engine: native; its attempts would not go on to count`},
		{linear, ", replaces: r", `f:5:42: queue "q" has the backoff "b", which has engine: native, and replaces; migrate the queue with`},
		{linear, ", dead: {queue: r, external: true}", `f:5:46: queue "q" has the backoff "b", which has engine: native, and an external dead-letter queue; dead letters arrive there with their delivery count`},
		{linear, ", severity: {rules: [{key: a, severity: page}]}", `f:5:42: queue "q" has the backoff "b", which has engine: native, and rules of severity`},
		{linear, ", arguments: {x-message-ttl: 2000}", `f:5:43: queue "q" has the backoff "b", which has engine: native, and x-message-ttl 2000; it counts from the publish, also while RabbitMQ delays a message, and ends its retries: write more than 3000`},
		{"tiers: [{delay: 10s, attempts: 5}]", ", arguments: {x-message-ttl: 20000}", "write more than 50000, all delays"},
		{linear, ", arguments: {x-delayed-retry-type: all, x-delayed-retry-min: 5}", `f:5:43: queue "q" has the backoff "b", which has engine: native, and x-delayed-retry-min; the policy of dlxctl sets it: remove it`},
		{linear, "}, {match: '^svc', external: true, backoff: b", `f:5:74: the match "^svc" has the backoff "b", which has engine: native; only the processor tells`},
	} {
		file := nativeFile(tc.backoff, tc.queue)
		if strings.Contains(tc.queue, "backoff: c") {
			file = append(file, Source{Name: "c", Data: []byte("version: 1\nbackoff: {c: {tiers: [1s]}}\n")})
		}
		_, _, err := LoadFor("4.3", file, environment())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s%s\ngot  %v\nwant %s", tc.backoff, tc.queue, err, tc.want)
		}
	}
}

// RabbitMQ before 4.3.1 is refused by name. A line without a third number is its newest version.
func TestNativeNeedsAVersion(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"": true, "3.10": false, "4.0.5": false, "4.2.9": false, "4.3.0": false, "4.3.0-rc.2": false,
		"4.3": true, "4.3.1": true, "4.3.10": true, "4.4.0": true, "5.0.0": true,
	} {
		_, _, err := LoadFor(version, nativeFile("tiers: [1s]", ""), environment())
		if ok != (err == nil) || err != nil && !strings.Contains(err.Error(),
			"f:4:15: engine: native is for RabbitMQ 4.3.1 and later, and this file is checked for "+version) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// What defaults has is for queues that it fits: a deliveryLimit, and arguments.
func TestNativeQueuesTakeWhatFits(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]Source{{Name: "f", Data: []byte("version: 1\nname: shop\nbackoff: {b: {engine: native, tiers: [1s]}, c: {tiers: [1s]}}\n" +
		"defaults: {deliveryLimit: 7, deadLetterBy: arguments, backoff: b}\nqueues: [{name: q}, {name: r, backoff: c}]\n")}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	q, r := c.Queues[0], c.Queues[2]
	if q.Arguments.HasAny(topology.ArgDeliveryLimit, topology.ArgDeadLetterExchange) ||
		c.Policies[0].Definition[topology.KeyDeliveryLimit] != int64(1) ||
		r.Arguments[topology.ArgDeliveryLimit] != int64(7) {
		t.Errorf("%v %v\n%v", q, r, c.Policies)
	}
	const want = "2 deliveries, at 0s, +1s; dead after 1s at the earliest; " +
		"RabbitMQ delays and counts what consumers requeue (basic.reject)"
	if got := c.Schedule("q").ScheduleText(); got != want {
		t.Error(got)
	}
}

// The nearest schedule is one that is accepted, of as many attempts.
func TestTheNearestScheduleIsLinear(t *testing.T) {
	t.Parallel()
	for _, delays := range [][]time.Duration{
		{1, 3}, {5, 1}, {7, 7, 1}, {1, 10, 100, 1000}, {3, 1, 4, 1, 5, 9, 2, 6}, {100, 1, 1, 1},
	} {
		var waits []Tier
		for _, d := range delays {
			waits = append(waits, Tier{Delay: d * time.Second, Attempts: 1})
		}
		found := nearestLinear(waits)
		c, _, err := Load(nativeFile(found, ""), environment())
		if err != nil {
			t.Errorf("%v: %s: %v", delays, found, err)
			continue
		}
		if n := len(c.Native[0].Tiers); n != len(delays) {
			t.Errorf("%v: %s has %d attempts", delays, found, n)
		}
	}
}

// The example of the page is a file.
func TestTheExampleOfNativeBackoffs(t *testing.T) {
	t.Parallel()
	_, after, _ := strings.Cut(string(read(t, "../../docs/native.md")), "```yaml\n")
	file, _, _ := strings.Cut(after, "```")
	c, _, err := LoadFor(topology.FirstNative, []Source{{Name: "native.md", Data: []byte(file)}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	const want = "6 deliveries, at 0s, +10s, +20s, +30s ×3; dead after 2m at the earliest"
	if got := c.Schedule("billing").ScheduleText(); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}
