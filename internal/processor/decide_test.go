package processor

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// now is the time of every decision below; then is that of an earlier failure.
func now() time.Time { return time.Date(2026, 11, 21, 9, 30, 0, 250_600_000, time.FixedZone("", 3600)) }

const (
	nowText = "2026-11-21T08:30:00.250Z"
	then    = "2026-11-21T08:00:00.000Z"
)

// shop is a topology with the queue billing and two tiers.
func shop() topology.Compiled {
	return topology.Compiled{
		Name: "shop", CountHeader: "count",
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard", DeadLetterQueue: "billing.dead"}},
		Backoffs: []topology.Backoff{{
			Name: "standard", FailedQueue: "shop.standard.failed", RetryExchange: "shop.standard.dlx",
			Tiers: []topology.Tier{
				{Delay: 10 * time.Second, Queue: "shop.standard.retry.10s"},
				{Delay: time.Minute, Queue: "shop.standard.retry.1m"},
			},
		}},
	}
}

// death is an entry of x-death.
func death(queue, reason, exchange string, keys ...any) amqp091.Table {
	return amqp091.Table{
		"queue": queue, "reason": reason, "exchange": exchange, "routing-keys": keys, "count": int64(1),
		"time": now(),
	}
}

// expired is the death of a message that a publisher gave an expiration.
func expired(after string) amqp091.Table {
	d := death("billing", "rejected", "events", "order.placed")
	d["original-expiration"] = after
	return d
}

// failed is a message that billing rejected for the first time.
func failed(headers amqp091.Table) amqp091.Delivery {
	h := amqp091.Table{
		"x-death":             []any{death("billing", "rejected", "events", "order.placed")},
		"x-first-death-queue": "billing", "x-first-death-reason": "rejected", "x-first-death-exchange": "events",
		"x-last-death-queue": "billing", "x-last-death-reason": "rejected", "x-last-death-exchange": "events",
		"x-delivery-count": int64(2), "x-acquired-count": int64(3),
	}
	maps.Copy(h, headers)
	return amqp091.Delivery{RoutingKey: "@billing", Headers: h}
}

// failedAgain is a message that billing rejected after it had waited, with the
// count of the processor.
func failedAgain(count any, headers amqp091.Table) amqp091.Delivery {
	d := failed(amqp091.Table{
		"x-death": []any{
			death("billing", "rejected", "shop.return", "order.placed", "@billing"),
			death("shop.standard.retry.10s", "expired", "shop.standard.dlx", "order.placed", "@billing"),
		},
		"count": count, "retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
		"retry-first-failed-at": then, "retry-last-failed-at": then, "retry-reason": "expired", "retry-attempts": int64(1),
	})
	if n, ok := topology.Integer(count); ok {
		d.Headers["retry-attempts"] = n
	}
	maps.Copy(d.Headers, headers)
	return d
}

// history returns the headers that a decision sets, with some set differently.
func history(headers amqp091.Table) amqp091.Table {
	h := amqp091.Table{
		"count": int32(1), "CC": []any{"@billing"},
		"retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
		"retry-first-failed-at": nowText, "retry-last-failed-at": nowText, "retry-reason": "rejected",
		"retry-attempts": int64(1),
	}
	for name, v := range headers {
		if v == nil {
			delete(h, name)
			continue
		}
		h[name] = v
	}
	return h
}

// noted returns headers with the failure that they tell as their only one.
func noted(h amqp091.Table, tier string) amqp091.Table {
	entry := amqp091.Table{"at": h["retry-last-failed-at"], "attempt": h["retry-attempts"], "reason": h["retry-reason"]}
	if tier != "" {
		entry["tier"] = tier
	}
	h["retry-history"] = []any{entry}
	return h
}

func TestDecide(t *testing.T) {
	t.Parallel()
	type want struct {
		outcome  retry.Outcome
		exchange string
		key      string
		tier     string
		attempts int64
		headers  amqp091.Table
	}
	again := func(tier string, attempts int64, headers amqp091.Table) want {
		return want{retry.Retried, "shop.standard.dlx", "order.placed", tier, attempts, headers}
	}
	dead := func(attempts int64, headers amqp091.Table) want {
		headers["count"] = int32(-1)
		return want{retry.DeadLettered, "shop.standard.dlx", "order.placed", "", attempts, headers}
	}
	toUnroutable := func(key string, headers amqp091.Table) want {
		return want{retry.Unroutable, "shop.unroutable", key, "", 0, headers}
	}
	onlyRejected := shop()
	onlyRejected.Backoffs[0].RetryOn = []topology.Reason{topology.ReasonRejected}
	renamed := shop()
	renamed.CountHeader = "tries"

	for name, tc := range map[string]struct {
		topology topology.Compiled
		delivery amqp091.Delivery
		want     want
	}{
		"the first failure waits in the first tier, under the publisher's key": {
			shop(), failed(nil), again("10s", 1, history(nil)),
		},
		"the second failure waits in the second tier and keeps the time of the first": {
			shop(), failedAgain(int64(1), nil),
			again("1m", 2, history(amqp091.Table{"count": int32(2), "retry-attempts": int64(2), "retry-first-failed-at": then})),
		},
		"past the last attempt it is a dead letter": {
			shop(), failedAgain(int64(2), nil),
			dead(3, history(amqp091.Table{"retry-attempts": int64(3), "retry-first-failed-at": then})),
		},
		"a count beyond a backoff that shrank is a dead letter": {
			shop(), failedAgain(int64(7), nil),
			dead(8, history(amqp091.Table{"retry-attempts": int64(8), "retry-first-failed-at": then})),
		},
		"a count of any integer width is read": {
			shop(), failedAgain(uint8(1), nil),
			again("1m", 2, history(amqp091.Table{"count": int32(2), "retry-attempts": int64(2), "retry-first-failed-at": then})),
		},
		"a death that is not in retryOn is a dead letter at once": {
			onlyRejected, failed(amqp091.Table{"x-death": []any{death("billing", "expired", "events", "order.placed")}}),
			dead(1, history(amqp091.Table{"retry-reason": "expired"})),
		},
		"a death in retryOn is retried": {onlyRejected, failed(nil), again("10s", 1, history(nil))},
		"the count header has the name of the file": {
			renamed, failed(amqp091.Table{"count": "mine"}),
			again("10s", 1, history(amqp091.Table{"tries": int32(1), "count": "mine"})),
		},

		"a publisher's own count means nothing and is kept aside": {
			shop(), failed(amqp091.Table{"count": int64(2)}),
			again("10s", 1, history(amqp091.Table{"retry-original-count": int64(2)})),
		},
		"a publisher's count of text keeps its type": {
			shop(), failed(amqp091.Table{"count": "7"}), again("10s", 1, history(amqp091.Table{"retry-original-count": "7"})),
		},
		"a publisher's table as count is kept aside": {
			shop(), failed(amqp091.Table{"count": amqp091.Table{"a": int32(1)}}),
			again("10s", 1, history(amqp091.Table{"retry-original-count": amqp091.Table{"a": int32(1)}})),
		},
		"a publisher's own retry headers are replaced": {
			shop(), failed(amqp091.Table{
				"count": int64(2), "retry-queue": "billing", "retry-exchange": "x", "retry-routing-key": "y", "retry-attempts": "z",
				"retry-first-failed-at": "never", "retry-error": "none", "retry-cc": "w", "retry-user-id": "v",
				"retry-expiration": "u",
			}),
			again("10s", 1, history(amqp091.Table{"retry-original-count": int64(2)})),
		},
		// Publishers of other protocols may set such headers. The broker refuses a
		// CC or BCC that is not a list whenever it is published.
		"headers named as those that address a message are kept aside": {
			shop(), failed(amqp091.Table{"CC": "x", "BCC": int32(1)}),
			again("10s", 1, history(amqp091.Table{"retry-cc": "x", "retry-bcc": int32(1)})),
		},
		"a count without a retry queue in x-death is not believed": {
			shop(), failedAgain(int64(1),
				amqp091.Table{"x-death": []any{death("billing", "rejected", "events", "order.placed")}}),
			again("10s", 1, history(amqp091.Table{"retry-original-count": int64(1)})),
		},
		"a retry queue of another topology is not believed": {
			shop(), failedAgain(int64(1), amqp091.Table{"x-death": []any{
				death("billing", "rejected", "events", "order.placed"), death("other.standard.retry.10s", "expired", "x", "y"),
			}}),
			again("10s", 1, history(amqp091.Table{"retry-original-count": int64(1)})),
		},
		"a count that was made in another queue is not believed": {
			shop(), failedAgain(int64(1), amqp091.Table{"retry-queue": "audit"}),
			again("10s", 1, history(amqp091.Table{"retry-original-count": int64(1), "retry-cc": []any{"@billing"}})),
		},
		"a retry queue of another backoff is believed, as queues change their backoff": {
			shop(), failedAgain(int64(1), amqp091.Table{"x-death": []any{
				death("billing", "rejected", "shop.return", "order.placed", "@billing"),
				death("shop.patient.retry.1h", "expired", "x", "y"),
			}}),
			again("1m", 2, history(amqp091.Table{"count": int32(2), "retry-attempts": int64(2), "retry-first-failed-at": then})),
		},

		"an expiration that the broker took away is kept": {
			shop(), failed(amqp091.Table{"x-death": []any{expired("60000")}}),
			again("10s", 1, history(amqp091.Table{"retry-expiration": "60000"})),
		},
		"an expiration that was kept stays": {
			shop(), failedAgain(int64(1), amqp091.Table{"retry-expiration": "60000"}),
			again("1m", 2, history(amqp091.Table{
				"count": int32(2), "retry-attempts": int64(2), "retry-first-failed-at": then,
				"retry-expiration": "60000",
			})),
		},

		"without x-death it is a first failure for an unknown reason, under its address": {
			shop(),
			amqp091.Delivery{RoutingKey: "@billing", Headers: amqp091.Table{"mine": "yes"}},
			want{retry.Retried, "shop.standard.dlx", "@billing", "10s", 1, history(amqp091.Table{
				"mine": "yes", "CC": nil, "retry-exchange": "", "retry-routing-key": "", "retry-reason": "unknown",
			})},
		},
		"without headers too": {
			onlyRejected,
			amqp091.Delivery{RoutingKey: "@billing"},
			want{retry.Retried, "shop.standard.dlx", "@billing", "10s", 1, history(amqp091.Table{
				"CC": nil, "retry-exchange": "", "retry-routing-key": "", "retry-reason": "unknown",
			})},
		},
		"only the newest death in its own queue counts": {
			shop(), failed(amqp091.Table{"x-death": []any{
				death("elsewhere", "maxlen", "a", "b"), death("billing", "delivery_limit", "events", "order.paid"),
				death("billing", "expired", "c", "d"),
			}}),
			want{
				retry.Retried, "shop.standard.dlx", "order.paid", "10s", 1,
				history(amqp091.Table{"retry-reason": "delivery_limit", "retry-routing-key": "order.paid"}),
			},
		},
		"a publisher's CC is kept aside": {
			shop(), failed(amqp091.Table{"x-death": []any{death("billing", "rejected", "events", "order.placed", "copy.one",
				"copy.two")}}),
			again("10s", 1, history(amqp091.Table{"retry-cc": []any{"copy.one", "copy.two"}})),
		},
		"a key that looks like an address would reach two queues: it travels under its own address": {
			shop(), failed(amqp091.Table{"x-death": []any{death("billing", "rejected", "events", "@audit")}}),
			want{
				retry.Retried, "shop.standard.dlx", "@billing", "10s", 1,
				history(amqp091.Table{"CC": nil, "retry-routing-key": "@audit"}),
			},
		},
		// A publisher may write any headers, and a key of more than 255 bytes
		// ends the connection.
		"a header too long to be a key is not believed, and x-death is": {
			shop(), failedAgain(int64(1), amqp091.Table{"retry-routing-key": strings.Repeat("k", 256)}),
			again("1m", 2, history(amqp091.Table{
				"count": int32(2), "retry-attempts": int64(2), "retry-first-failed-at": then,
				"retry-routing-key": strings.Repeat("k", 256),
			})),
		},
		"the longest key is believed": {
			shop(), failedAgain(int64(1), amqp091.Table{"retry-routing-key": strings.Repeat("k", 255)}),
			want{retry.Retried, "shop.standard.dlx", strings.Repeat("k", 255), "1m", 2, history(amqp091.Table{
				"count": int32(2), "retry-attempts": int64(2), "retry-first-failed-at": then,
				"retry-routing-key": strings.Repeat("k", 255),
			})},
		},
		"with a key in x-death that is too long it travels under its own address": {
			shop(), failed(amqp091.Table{"x-death": []any{death("billing", "rejected", "events", strings.Repeat("k", 256))}}),
			want{
				retry.Retried, "shop.standard.dlx", "@billing", "10s", 1,
				history(amqp091.Table{"CC": nil, "retry-routing-key": strings.Repeat("k", 256)}),
			},
		},
		"what a consumer added stays": {
			shop(), failed(amqp091.Table{"error": "boom", "nested": amqp091.Table{"a": []any{int8(1), nil, []byte("x")}}}),
			again("10s", 1, history(amqp091.Table{
				"error":  "boom",
				"nested": amqp091.Table{"a": []any{int8(1), nil, []byte("x")}},
			})),
		},

		"a key that is not an address is parked": {
			shop(),
			amqp091.Delivery{RoutingKey: "order.placed", Headers: amqp091.Table{"mine": "yes"}},
			toUnroutable("order.placed", amqp091.Table{
				"mine": "yes", "retry-error": `the routing key "order.placed" names no work queue`, "retry-last-failed-at": nowText,
			}),
		},
		"a queue that the file does not know is parked": {
			shop(), func() amqp091.Delivery { d := failed(nil); d.RoutingKey = "@gone"; return d }(),
			toUnroutable("@gone", amqp091.Table{
				"retry-error": `the topology "shop" has no work queue "gone"`, "retry-last-failed-at": nowText,
				"retry-reason": "unknown",
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := cmp.Diff(amqp091.Table{}, tc.delivery.Headers)
			rules := retry.NewRules(tc.topology, tc.topology.Backoffs[0], 0)
			got := decide(rules, tc.delivery, now())
			tier := ""
			if got.Tier.Queue != "" {
				tier = topology.FormatDelay(got.Tier.Delay)
			}
			if tc.want.outcome != retry.Unroutable {
				noted(tc.want.headers, tc.want.tier)
			}
			if d := cmp.Diff(tc.want, want{got.Outcome, got.Exchange, got.Key, tier, got.Attempts, got.Message.Headers},
				cmp.AllowUnexported(want{})); d != "" {
				t.Errorf("Decide (-want +got):\n%s", d)
			}
			if after := cmp.Diff(amqp091.Table{}, tc.delivery.Headers); after != before {
				t.Error("Decide changed the headers of the delivery")
			}
		})
	}
}

// Counts that no processor wrote are never a reason to drop a message: each is a first failure.
// That of a dead letter is unroutable: no tier of the file takes one.
func TestDecideDistrustsCounts(t *testing.T) {
	t.Parallel()
	for _, count := range []any{
		"1", 1.0, float32(1), int64(0), int64(-3), int64(math.MinInt64), int64(1_000_001), int64(math.MaxInt64),
		true, []byte("1"), nil, now(),
		amqp091.Decimal{Value: 1},
		[]any{int64(1)},
		amqp091.Table{},
	} {
		got := decide(retry.NewRules(shop(), shop().Backoffs[0], 0), failedAgain(count, nil), now())
		if got.Outcome != retry.Retried || got.Attempts != 1 {
			t.Errorf("count %v (%T): %s after attempt %d, want a retry after attempt 1", count, count, got.Outcome, got.Attempts)
		}
	}
	dead := failedAgain(topology.DeadLetterCount, nil)
	if got := decide(retry.NewRules(shop(), shop().Backoffs[0], 0), dead, now()); got.Outcome != retry.Unroutable {
		t.Errorf("a dead letter that came back from a tier is %s", got.Outcome)
	}
}

// All properties stay, but for the two that would make the broker refuse or drop
// the message: headers keep them.
func TestDecideKeepsProperties(t *testing.T) {
	t.Parallel()
	d := failed(nil)
	d.ContentType, d.ContentEncoding, d.DeliveryMode, d.Priority = "text/plain", "gzip", 2, 7
	d.CorrelationId, d.ReplyTo, d.MessageId, d.Type, d.AppId = "c", "r", "m", "t", "a"
	d.Timestamp, d.Body = then1970(), []byte("body")
	d.UserId, d.Expiration = "alice", "60000"

	got := decide(retry.NewRules(shop(), shop().Backoffs[0], 0), d, now()).Message
	want := amqp091.Publishing{
		ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 7,
		CorrelationId: "c", ReplyTo: "r", MessageId: "m", Type: "t", AppId: "a", Timestamp: then1970(), Body: []byte("body"),
		Headers: noted(history(amqp091.Table{"retry-user-id": "alice", "retry-expiration": "60000"}), "10s"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
}

func then1970() time.Time { return time.Unix(12345, 0) }

// What would not fit a frame is parked with the reason, and if there is no room
// for that either, without: nothing of the publisher's is cut.
func TestDecideHeadersThatFitNoFrame(t *testing.T) {
	t.Parallel()
	d := failed(amqp091.Table{"big": strings.Repeat("x", 1000)})
	plain := relay.HeaderSize(relay.Republish(d, amqp091.Table{"big": d.Headers["big"]}))
	rules := func(frameMax int) retry.Rules { return retry.NewRules(shop(), shop().Backoffs[0], frameMax) }

	roomy := decide(rules(plain+3000), d, now())
	if roomy.Outcome != retry.Retried {
		t.Errorf("with room it is %s", roomy.Outcome)
	}
	tight := decide(rules(plain+300), d, now())
	if tight.Outcome != retry.Unroutable || tight.Message.Headers["retry-error"] == nil {
		t.Errorf("without room for the history it is %s with %v", tight.Outcome, tight.Error)
	}
	full := decide(rules(plain), d, now())
	if full.Outcome != retry.Unroutable || relay.HeaderSize(full.Message) > plain {
		t.Errorf("without any room it is %s with %d bytes of %d", full.Outcome, relay.HeaderSize(full.Message), plain)
	}
	if d := cmp.Diff(amqp091.Table{"big": d.Headers["big"]}, full.Message.Headers); d != "" {
		t.Errorf("headers without any room (-want +got):\n%s", d)
	}
}

// Neither is there room for the longer names under which CC and BCC are kept: they
// are the last to go.
func TestDecideParksAddressesThatFitNoFrame(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1000)
	d := amqp091.Delivery{
		RoutingKey: "@billing",
		Headers:    amqp091.Table{"big": big, "CC": []any{"copy.one"}, "BCC": []any{"copy.two"}},
	}
	kept := func(headers amqp091.Table) int {
		headers["big"] = big
		return relay.HeaderSize(relay.Republish(d, headers))
	}
	for name, tc := range map[string]struct {
		frameMax int
		want     amqp091.Table
	}{
		"room for both": {
			kept(amqp091.Table{"retry-cc": []any{"copy.one"}, "retry-bcc": []any{"copy.two"}}),
			amqp091.Table{"big": big, "retry-cc": []any{"copy.one"}, "retry-bcc": []any{"copy.two"}},
		},
		"as they came": {
			relay.HeaderSize(relay.Republish(d, d.Headers)),
			amqp091.Table{"big": big, "retry-cc": []any{"copy.one"}},
		},
		"room for neither": {kept(amqp091.Table{}), amqp091.Table{"big": big}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decide(retry.NewRules(shop(), shop().Backoffs[0], tc.frameMax), d, now())
			if size := relay.HeaderSize(got.Message); got.Outcome != retry.Unroutable || size > tc.frameMax {
				t.Errorf("it is %s with %d bytes of %d", got.Outcome, size, tc.frameMax)
			}
			if d := cmp.Diff(tc.want, got.Message.Headers); d != "" {
				t.Errorf("headers (-want +got):\n%s", d)
			}
		})
	}
}
