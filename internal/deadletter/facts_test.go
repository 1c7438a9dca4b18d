package deadletter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/topology"
)

// shop is a topology with three work queues. Two have dead-letter queues of their own.
func shop() topology.Compiled {
	return topology.Compiled{
		Name: "shop", CountHeader: "count",
		WorkQueues: []topology.WorkQueue{
			{Name: "billing", Backoff: "standard", DeadLetterQueue: "billing.dead"},
			{Name: "audit", Backoff: "none", DeadLetterQueue: "shop.dead"},
			{Name: "crm", Backoff: "none", DeadLetterQueue: "shop.dead"},
		},
		Backoffs: []topology.Backoff{{
			Name: "standard", FailedQueue: "shop.standard.failed", RetryExchange: "shop.standard.retry",
			Tiers: []topology.Tier{
				{Delay: 10 * time.Second, Queue: "shop.standard.retry.10s"}, {Delay: time.Minute, Queue: "shop.standard.retry.1m"},
			},
		}},
	}
}

// at is the time of a death in tests.
func at(second int) time.Time { return time.Date(2026, 11, 22, 9, 0, second, 0, time.UTC) }

// died returns an entry of x-death.
func died(queue, reason string, count int64, second int, exchange string, keys ...any) amqp091.Table {
	return amqp091.Table{
		"queue": queue, "reason": reason, "count": count, "time": at(second).Local(), "exchange": exchange,
		"routing-keys": keys,
	}
}

// processed returns the headers of a dead letter of the processor.
func processed(attempts int64, more ...any) amqp091.Table {
	h := amqp091.Table{
		"count": int32(-1), "retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
		"retry-first-failed-at": "2026-11-22T09:00:01.000Z", "retry-last-failed-at": "2026-11-22T09:00:09.500Z",
		"retry-reason": "rejected", "retry-attempts": attempts, "CC": []any{"@billing"},
	}
	for i := 0; i < len(more); i += 2 {
		h[more[i].(string)] = more[i+1]
	}
	return h
}

// factsCase is headers, and what they tell.
type factsCase struct {
	queue   string // where the message lies; empty is billing.dead
	headers amqp091.Table
	route   []string // the queues behind each exchange and key
	want    deadletter.Facts
}

func checkFacts(t *testing.T, cases map[string]factsCase, ignore ...string) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := deadletter.Knows(shop())
			known.Route = func(string, string) []string { return tc.route }
			queue := tc.queue
			if queue == "" {
				queue = "billing.dead"
			}
			got := deadletter.Read(amqp091.Delivery{Exchange: "dlx", RoutingKey: "@billing", Headers: tc.headers}, queue, known)
			if d := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(deadletter.Facts{}, ignore...)); d != "" {
				t.Errorf("facts (-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatTheProcessorAndTheBrokerTell(t *testing.T) {
	t.Parallel()
	first, last := at(1), at(9).Add(500*time.Millisecond)
	mine := deadletter.Facts{
		Cause: "rejected", Attempts: 3, WorkQueue: "billing", Exchange: "events", Key: "order.placed",
		FirstFailed: first, LastFailed: last, FromProcessor: true,
	}
	replayed, stale, unroutable := mine, mine, mine
	again := deadletter.Facts{
		Cause: "rejected", Attempts: 1, WorkQueue: "audit", Exchange: "events", Key: "order.placed", FirstFailed: first,
		LastFailed: first,
	}
	replayed.Replays, replayed.Run = 2, "r1"
	stale.WorkQueue, stale.LastFailed = "", at(30)
	stale.Doubt = `it failed in "billing" according to retry-queue, and in "audit" according to x-death`
	repeated := stale
	repeated.LastFailed = time.Time{}
	unroutable.Cause, unroutable.Error = "unroutable", "refused"
	checkFacts(t, map[string]factsCase{
		"a dead letter of the processor": {headers: processed(3), want: mine},
		"one that was replayed": {
			headers: processed(3, "desk-replays", int64(2), "desk-run", "r1"), want: replayed,
		},
		"one that has passed a tier since": {
			headers: processed(3, "x-death", []any{died("shop.standard.retry.1m", "expired", 1, 30, "")}), want: mine,
		},
		"one that then failed in another queue": {
			headers: processed(3, "x-death", []any{died("audit", "rejected", 1, 30, "")}), want: stale,
		},
		"one that failed again in the same queue": {
			headers: processed(3, "x-death", []any{died("billing", "rejected", 1, 5, "")}), want: mine,
		},
		"one that then failed in another queue several times": {
			headers: processed(3, "x-death", []any{died("audit", "rejected", 2, 30, "")}), want: repeated,
		},
		"one in the unroutable queue": {
			queue: "shop.unroutable", headers: processed(3, "retry-error", "refused"), want: unroutable,
		},
		"one that a publisher sent to no queue": {
			queue: "shop.unroutable", headers: amqp091.Table{
				"retry-error": "no queue", "retry-last-failed-at": "2026-11-22T09:00:01.000Z",
			},
			want: deadletter.Facts{
				Cause: "unroutable", Error: "no queue", Attempts: -1, Doubt: "no header names the queue in which it failed",
				FirstFailed: first, LastFailed: first, FromProcessor: true,
			},
		},
		"one that the broker dead-lettered": {
			queue:   "shop.dead",
			headers: amqp091.Table{"x-death": []any{died("audit", "rejected", 1, 1, "events", "order.placed")}},
			want:    again,
		},
		"one that the desk had sent there": {
			queue: "shop.dead",
			headers: amqp091.Table{
				"x-death":        []any{died("audit", "rejected", 1, 1, "shop.return", "@audit")},
				"retry-exchange": "events", "retry-routing-key": "order.placed",
			},
			want: again,
		},
		"one that the broker dead-lettered several times": { // the time is that of the first
			queue: "shop.dead",
			headers: amqp091.Table{"x-death": []any{
				died("wait", "expired", 3, 2, "events", "order.placed"), died("audit", "rejected", 3, 1, "events", "order.placed"),
			}},
			want: deadletter.Facts{
				Cause: "expired", Attempts: 3, WorkQueue: "audit", Exchange: "events", Key: "order.placed", FirstFailed: first,
			},
		},
		"one that waited several times and then died once": {
			queue: "shop.dead",
			headers: amqp091.Table{"x-death": []any{
				died("audit", "delivery_limit", 1, 9, "events", "order.placed"),
				died("wait", "expired", 3, 1, "events", "order.placed"),
			}},
			want: deadletter.Facts{
				Cause: "delivery_limit", Attempts: 1, WorkQueue: "audit", Exchange: "events", Key: "order.placed",
				FirstFailed: first, LastFailed: at(9),
			},
		},
		"no headers": {want: deadletter.Facts{
			Attempts: -1, Doubt: "no header names the queue in which it failed", Exchange: "dlx", Key: "@billing",
		}},
		"forged headers of the wrong types": {
			headers: amqp091.Table{
				"retry-queue": int64(3), "retry-attempts": "x", "x-death": "y", "desk-replays": "z", "rascal": nil,
			},
			want: deadletter.Facts{
				Attempts: -1, Doubt: "no header names the queue in which it failed", Exchange: "dlx", Key: "@billing",
			},
		},
	}, "Hops")
}

// said adds to headers what a consumer says of its failure.
func said(h amqp091.Table) amqp091.Table {
	return with(h,
		"retry-error", "no answer in 30 s", "retry-error-type", "PaymentTimeout", "retry-error-stack", "at pay()")
}

func with(h amqp091.Table, more ...any) amqp091.Table {
	for i := 0; i < len(more); i += 2 {
		h[more[i].(string)] = more[i+1]
	}
	return h
}

// A consumer says why it failed. The processor keeps that; without a backoff, the dead letter is
// what the consumer published. In the unroutable queue, the error is that of the processor.
func TestWhatAConsumerSays(t *testing.T) {
	t.Parallel()
	kept := deadletter.Facts{
		Cause: "rejected", Error: "no answer in 30 s", ErrorType: "PaymentTimeout", Stack: "at pay()", Attempts: 3,
		WorkQueue: "billing", Exchange: "events", Key: "order.placed",
		FirstFailed: at(1), LastFailed: at(9).Add(500 * time.Millisecond), FromProcessor: true,
	}
	permanent, unroutable, silent, typed := kept, kept, unsaid(kept), kept
	permanent.Cause = "permanent"
	unroutable.Cause, unroutable.ErrorType, unroutable.Stack = "unroutable", "", ""
	silent.LastFailed = at(30)
	typed.Error, typed.Stack = "", ""
	address := []any{"retry-exchange", "events", "retry-routing-key", "order.placed"}
	published := deadletter.Facts{
		Cause: "rejected", Error: kept.Error, ErrorType: kept.ErrorType, Stack: kept.Stack, Attempts: -1,
		WorkQueue: "billing", Exchange: "events", Key: "order.placed",
	}
	atOnce, nowhere := published, published
	atOnce.Cause, atOnce.Error, atOnce.ErrorType, atOnce.Stack = "permanent", "", "", ""
	nowhere.Cause, nowhere.WorkQueue, nowhere.Exchange, nowhere.Key = "", "", "dlx", "@billing"
	nowhere.Doubt = "no header names the queue in which it failed"
	lost := nowhere
	lost.Cause, lost.FromProcessor = "unroutable", true
	lost.ErrorType, lost.Stack, lost.Exchange, lost.Key = "", "", "", ""
	live := unsaid(nowhere)
	broker := deadletter.Facts{
		Cause: "expired", Attempts: 0, WorkQueue: "audit", Exchange: "events", Key: "k",
		FirstFailed: at(1), LastFailed: at(1),
	}
	checkFacts(t, map[string]factsCase{
		"kept by the processor":    {headers: said(processed(3)), want: kept},
		"only the type":            {headers: processed(3, "retry-error-type", "PaymentTimeout"), want: typed},
		"dead at once":             {headers: said(processed(3, "retry-reason", "permanent")), want: permanent},
		"while it waits in a tier": {queue: "shop.standard.retry.1m", headers: said(processed(3)), want: kept},
		"on the retry":             {queue: "billing", headers: said(processed(3)), want: kept},
		"then unroutable":          {queue: "shop.unroutable", headers: said(processed(3)), want: unroutable},
		"unroutable, parked": {
			queue: "shop.parked", headers: said(processed(3, "desk-parked-from", "shop.unroutable")), want: unroutable,
		},
		"parked": {
			queue: "shop.parked", headers: said(processed(3, "desk-parked-from", "billing.dead")), want: kept,
		},
		"unroutable, with no queue": {queue: "shop.unroutable", headers: said(amqp091.Table{}), want: lost},
		"then failed again without a say": {
			headers: said(processed(3, "x-death", []any{died("billing", "rejected", 1, 30, "")})), want: silent,
		},
		"without a backoff": {headers: said(with(amqp091.Table{}, address...)), want: published},
		"in the failed queue": {
			queue: "shop.standard.failed", headers: said(with(amqp091.Table{}, address...)), want: published,
		},
		"permanent, and no more":          {headers: with(amqp091.Table{"retry-permanent": true}, address...), want: atOnce},
		"in a queue of others":            {queue: "errors", headers: said(amqp091.Table{}), want: nowhere},
		"of a publisher, in a work queue": {queue: "billing", headers: said(amqp091.Table{}), want: live},
		"of a publisher, of a message that expired": {
			queue: "shop.dead", headers: said(amqp091.Table{"x-death": []any{died("audit", "expired", 1, 1, "events", "k")}}),
			want: broker,
		},
		"of other types": {headers: processed(3, "retry-error", int64(1), "retry-error-type", amqp091.Table{"a": "b"},
			"retry-error-stack", []any{"at"}, "retry-permanent", "true"), want: unsaid(kept)},
		"in bytes": {headers: processed(3, "retry-error", []byte("no answer in 30 s"),
			"retry-error-type", []byte("PaymentTimeout"), "retry-error-stack", []byte("at pay()")), want: kept},
	}, "Hops")
}

// Where no processor has touched a message, the headers of a processor are those of its publisher,
// which would lead the desk to another queue.
func TestAPublisherWritesTheHeadersOfAProcessor(t *testing.T) {
	t.Parallel()
	known := deadletter.Knows(shop())
	for name, tc := range map[string]struct {
		exchange string // with which it came to the dead-letter queue
		deaths   []any
		queue    string
		attempts int
		believed bool
	}{
		"rejected":             {"shop.failed", []any{died("audit", "rejected", 1, 1, "events", "k")}, "audit", 1, false},
		"put back by the desk": {"", []any{died("audit", "rejected", 1, 1, "events", "k")}, "audit", 1, false},
		"said by its consumer": {"shop.failed", nil, "audit", -1, false},
		"rejected after a retry, before the backoff was removed": {
			"shop.failed", []any{
				died("billing", "rejected", 1, 9, "shop.return", "k"),
				died("shop.standard.retry.10s", "expired", 1, 8, "shop.standard.dlx", "k"),
			}, "billing", 3, true,
		},
		"said after a retry": {
			"shop.failed", []any{died("shop.standard.retry.10s", "expired", 1, 8, "shop.standard.dlx", "k")}, "billing", 3, true,
		},
		"a dead letter of a processor": {"shop.standard.dlx", nil, "billing", 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := processed(3, "retry-error", "no answer", "retry-permanent", true)
			if tc.deaths != nil {
				h["x-death"] = tc.deaths
			}
			got := deadletter.Read(amqp091.Delivery{Exchange: tc.exchange, RoutingKey: "@audit", Headers: h}, "shop.dead", known)
			if got.WorkQueue != tc.queue || got.Attempts != tc.attempts || got.FromProcessor != tc.believed {
				t.Errorf("facts %+v", got)
			}
		})
	}
}

// The timeline of a message is its history. Of the failures before it only the number is known.
// What is not a history, as a consumer may write it, tells nothing.
func TestTheTimelineIsTheHistory(t *testing.T) {
	t.Parallel()
	entry := func(attempt any, more ...any) amqp091.Table {
		h := amqp091.Table{"at": "2026-11-22T09:00:05.000Z", "attempt": attempt, "reason": "rejected"}
		for i := 0; i < len(more); i += 2 {
			h[more[i].(string)] = more[i+1]
		}
		return h
	}
	h := processed(5, "retry-history", []any{
		entry("x"), 7, entry(int64(-1)),
		entry(int64(4), "error-type", "Timeout", "tier", "1s"), entry(int64(5), "tier", 7),
	})
	known := deadletter.Knows(shop())
	got := deadletter.Read(amqp091.Delivery{Exchange: "shop.standard.dlx", Headers: h}, "billing.dead", known)
	want := []deadletter.Hop{
		{Queue: "billing", Count: 3, Time: at(1), Exchange: "events", Keys: []string{"order.placed"}},
		{Queue: "billing", Reason: "rejected", Count: 1, Time: at(5), Attempt: 4, ErrorType: "Timeout", Tier: "1s"},
		{Queue: "billing", Reason: "rejected", Count: 1, Time: at(5), Attempt: 5},
	}
	if d := cmp.Diff(want, got.Hops); d != "" {
		t.Errorf("hops (-want +got):\n%s", d)
	}
	forged := amqp091.Table{
		"retry-queue": "billing", "retry-attempts": int64(5), "retry-history": h["retry-history"],
		"x-death": []any{died("audit", "rejected", 1, 1, "events", "k")},
	}
	got = deadletter.Read(amqp091.Delivery{Exchange: "shop.failed", Headers: forged}, "shop.dead", known)
	if len(got.Hops) != 1 || got.Hops[0].Attempt != 0 {
		t.Errorf("a publisher's history is believed: %+v", got.Hops)
	}
}

// A message that retryTo has sent to another queue tells where it failed before. Of failures that
// its history does not have, the first queue alone is known.
func TestTheTimelineNamesTheQueues(t *testing.T) {
	t.Parallel()
	known := deadletter.Knows(shop())
	entry := func(attempt int64, queue any) amqp091.Table {
		return amqp091.Table{"at": "2026-11-22T09:00:05.000Z", "attempt": attempt, "reason": "rejected", "queue": queue}
	}
	read := func(history ...any) deadletter.Facts {
		h := processed(3, "retry-first-queue", "mail", "retry-history", history)
		return deadletter.Read(amqp091.Delivery{Exchange: "shop.standard.dlx", Headers: h}, "billing.dead", known)
	}
	queues := func(f deadletter.Facts) (out []string) {
		for _, hop := range f.Hops {
			out = append(out, hop.Queue)
		}
		return out
	}
	got := read(entry(1, "mail"), entry(2, 7), entry(3, "billing"))
	if d := cmp.Diff([]string{"mail", "billing", "billing"}, queues(got)); d != "" || got.WorkQueue != "billing" ||
		got.FirstQueue != "mail" {
		t.Errorf("%s, first in %s (-want +got):\n%s", got.WorkQueue, got.FirstQueue, d)
	}
	if d := cmp.Diff([]string{"mail", "billing"}, queues(read(entry(3, "billing")))); d != "" {
		t.Errorf("a short history (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"billing"}, queues(read())); d != "" { // no tiers are assumed
		t.Errorf("no history (-want +got):\n%s", d)
	}
	var shown strings.Builder
	err := deadletter.WriteShow(&shown, deadletter.View{Facts: got}, 0)
	if err != nil || !strings.Contains(shown.String(), "failed first in  mail") {
		t.Errorf("%v:\n%s", err, &shown)
	}
}

// unsaid returns facts without what a consumer said.
func unsaid(f deadletter.Facts) deadletter.Facts {
	f.Error, f.ErrorType, f.Stack = "", "", ""
	return f
}

// Where no topology is known, the name of the unroutable queue tells whose error it is.
func TestErrorsWithoutATopology(t *testing.T) {
	t.Parallel()
	for queue, want := range map[string]string{
		"shop.unroutable": "unroutable, no answer in 30 s, ", "billing.dead": "rejected, no answer in 30 s, PaymentTimeout",
	} {
		f := deadletter.Read(amqp091.Delivery{Headers: said(processed(1))}, queue, nil)
		if got := strings.Join([]string{f.Cause, f.Error, f.ErrorType}, ", "); got != want {
			t.Errorf("in %s: %s; want %s", queue, got, want)
		}
	}
}

// The origin is where a consumer failed. If the headers name several places, none is chosen.
func TestTheOriginOfAForeignDeadLetterIsNeverGuessed(t *testing.T) {
	t.Parallel()
	deaths := func(list ...any) amqp091.Table { return amqp091.Table{"x-death": list} }
	for name, tc := range map[string]struct {
		headers amqp091.Table
		route   []string
		queue   string
		doubt   string
	}{
		"rejected after a delay": {
			headers: deaths(died("w", "rejected", 1, 2, "dlx"), died("delay", "expired", 1, 1, "x")), queue: "w",
		},
		"a retry loop": {
			headers: deaths(died("w", "rejected", 3, 2, "x", "k"), died("wait", "expired", 2, 1, "x")), queue: "w",
		},
		"expired in one queue":      {headers: deaths(died("w", "expired", 1, 1, "x")), queue: "w"},
		"dropped by a length limit": {headers: deaths(died("w", "maxlen", 1, 1, "x")), queue: "w"},
		"expired in two queues": {
			headers: deaths(died("b", "expired", 1, 1, "x"), died("a", "expired", 1, 1, "x")),
			doubt:   `x-death names "a", "b", and no consumer failed in any of them`,
		},
		"expired in two queues, one of the topology": {
			headers: deaths(died("audit", "expired", 1, 1, "x"), died("a", "expired", 1, 1, "x")), queue: "audit",
		},
		"expired in two queues of the topology": {
			headers: deaths(died("audit", "expired", 1, 1, "x"), died("crm", "expired", 1, 1, "x")), doubt: `"audit", "crm"`,
		},
		"rejected in two queues": {
			headers: deaths(died("b", "rejected", 1, 1, "x"), died("a", "delivery_limit", 1, 1, "x")),
			doubt:   `in "b" according to x-death, and in "a"`,
		},
		"looked at in the dead-letter queue": {
			headers: deaths(died("billing.dead", "rejected", 1, 3, "x"), died("billing", "rejected", 1, 1, "x")),
			queue:   "billing",
		},
		"without x-death": {
			headers: amqp091.Table{"x-first-death-queue": "w", "x-first-death-reason": "rejected"}, queue: "w",
		},
		"first and last differ": {
			headers: amqp091.Table{
				"x-first-death-queue": "w", "x-first-death-reason": "rejected", "x-last-death-queue": "v",
				"x-last-death-reason": "rejected",
			}, doubt: `in "v" according to x-death, and in "w"`,
		},
		"a framework and the broker agree": {
			headers: amqp091.Table{"x-death": []any{died("w", "rejected", 1, 1, "x")}, "NServiceBus.FailedQ": "w"}, queue: "w",
		},
		"a framework after a delay of the broker": {
			headers: amqp091.Table{
				"x-death": []any{died("nsb.v2.delay-level-03", "expired", 1, 1, "x")}, "NServiceBus.FailedQ": "w",
			},
			queue: "w",
		},
		"a framework and the broker differ": {
			headers: amqp091.Table{"x-death": []any{died("w", "rejected", 1, 1, "x")}, "NServiceBus.FailedQ": "v"},
			doubt:   `in "w" according to x-death, and in "v" according to NServiceBus.FailedQ`,
		},
		"an exchange with one queue": {
			headers: spring("events", "k"), route: []string{"billing"}, queue: "billing",
		},
		"an exchange with two queues": {
			headers: spring("events", "k"), route: []string{"billing", "crm"}, doubt: `lead to 2 queues: "billing", "crm"`,
		},
		"an exchange with none": {
			headers: spring("events", "k"), doubt: `names the exchange "events" and the key "k", and no queue`,
		},
		"the default exchange": {headers: spring("", "w"), queue: "w"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := deadletter.Knows(shop())
			known.Route = func(string, string) []string { return tc.route }
			f := deadletter.Read(amqp091.Delivery{Headers: tc.headers}, "errors", known)
			if f.WorkQueue != tc.queue || !strings.Contains(f.Doubt, tc.doubt) || (tc.doubt == "") != (f.Doubt == "") {
				t.Errorf("origin %q, doubt %q; want %q, %q", f.WorkQueue, f.Doubt, tc.queue, tc.doubt)
			}
		})
	}
}

func spring(exchange, key string) amqp091.Table {
	return amqp091.Table{
		"x-exception-message": "boom", "x-exception-stacktrace": "at A", "x-original-exchange": exchange,
		"x-original-routingKey": key, "retry-count": int32(2),
	}
}

// stamp begins the headers in which Symfony keeps stamps.
const stamp = `X-Message-Stamp-Symfony\Component\Messenger\Stamp\`

func TestWhatFrameworksTell(t *testing.T) {
	t.Parallel()
	checkFacts(t, map[string]factsCase{
		"NServiceBus": {headers: amqp091.Table{
			"NServiceBus.FailedQ": "sales", "NServiceBus.TimeOfFailure": "2026-11-22 09:00:01:000000 Z",
			"NServiceBus.ExceptionInfo.ExceptionType": "System.Exception", "NServiceBus.ExceptionInfo.Message": "boom",
			"NServiceBus.ExceptionInfo.StackTrace": "at A",
			"NServiceBus.EnclosedMessageTypes":     "Shop.Order, Shop, Version=1;IOrder",
		}, want: deadletter.Facts{
			Framework: "NServiceBus", Cause: "failed", Error: "boom", ErrorType: "System.Exception", Stack: "at A",
			Job:      "Shop.Order",
			Attempts: -1, WorkQueue: "sales", ByFramework: true, FirstFailed: at(1), LastFailed: at(1),
		}},
		"MassTransit": {headers: amqp091.Table{
			"MT-Reason": "fault", "MT-Fault-InputAddress": "rabbitmq://h/v/sales%2Feu?durable=true", "MT-Fault-Message": "boom",
			"MT-Fault-ExceptionType": "System.Exception", "MT-Fault-StackTrace": "at A",
			"MT-Fault-Timestamp":   "2026-11-22T09:00:01.0000000Z",
			"MT-Fault-MessageType": "Order", "MT-Fault-RetryCount": int32(2),
		}, want: deadletter.Facts{
			Framework: "MassTransit", Cause: "failed", Error: "boom", ErrorType: "System.Exception", Stack: "at A", Job: "Order",
			Attempts: 3, WorkQueue: "sales/eu", ByFramework: true, FirstFailed: at(1), LastFailed: at(1),
		}},
		"MassTransit with redeliveries": {headers: amqp091.Table{
			"MT-Reason": "fault", "MT-Fault-InputAddress": "queue:sales", "MT-Fault-RetryCount": int32(3),
			"MT-Redelivery-Count": "2",
		}, want: deadletter.Facts{
			Framework: "MassTransit", Cause: "failed", Attempts: 12, WorkQueue: "sales", ByFramework: true,
		}},
		"Rebus": {headers: amqp091.Table{
			"rbs2-error-details": "boom: System.Exception: boom\n   at A", "rbs2-source-queue": "sales",
			"rbs2-msg-type": "Shop.Order, Shop", "rbs2-delivery-count": "5",
		}, want: deadletter.Facts{
			Framework: "Rebus", Cause: "failed", Error: "boom: System.Exception: boom", Job: "Shop.Order", Attempts: 5,
			Stack: "boom: System.Exception: boom\n   at A", WorkQueue: "sales", ByFramework: true,
		}},
		"Symfony": {headers: amqp091.Table{
			"type": "App\\Order",
			stamp + "ErrorDetailsStamp": `[{"exceptionMessage":"old"},{"exceptionClass":"E",` +
				`"exceptionMessage":"boom","flattenException":{"trace_as_string":"#0 a"}}]`,
			stamp + "SentToFailureTransportStamp": `[{"originalReceiverName":"async"}]`,
			stamp + "RedeliveryStamp":             `[{"retryCount":3},{"retryCount":0}]`,
		}, want: deadletter.Facts{
			Framework: "Symfony", Cause: "failed", Error: "boom", ErrorType: "E", Stack: "#0 a", Job: "App\\Order", Attempts: -1,
			Doubt: `SentToFailureTransportStamp names the transport "async", which need not be a queue`,
		}},
		"Symfony without a failure transport": {headers: amqp091.Table{
			stamp + "ErrorDetailsStamp": `[{"exceptionMessage":"boom"}]`, stamp + "RedeliveryStamp": `[{"retryCount":3}]`,
			"x-death": []any{died("w", "rejected", 1, 1, "", "w")},
		}, want: deadletter.Facts{
			Framework: "Symfony", Cause: "rejected", Error: "boom", Attempts: 4, WorkQueue: "w", Key: "w", FirstFailed: at(1),
			LastFailed: at(1),
		}},
		"Laravel": {headers: amqp091.Table{
			"laravel": amqp091.Table{"attempts": int32(2)}, "x-death": []any{died("w", "rejected", 1, 1, "", "w")},
		}, want: deadletter.Facts{
			Framework: "Laravel", Cause: "rejected", Attempts: 3, WorkQueue: "w", Key: "w", FirstFailed: at(1),
			LastFailed: at(1),
		}},
		"Brighter": {headers: amqp091.Table{
			"MessageType": "MT_EVENT", "Topic": "t", "HandledCount": int32(2),
			"x-death": []any{died("w", "rejected", 1, 1, "", "w")},
		}, want: deadletter.Facts{
			Framework: "Brighter", Cause: "rejected", Attempts: 3, WorkQueue: "w", Key: "w", FirstFailed: at(1),
			LastFailed: at(1),
		}},
		"AMQP 1.0": {headers: amqp091.Table{
			"x-opt-dead-letter-reason": "no customer", "x-opt-dead-letter-category": "business",
			"x-death": []any{died("w", "rejected", 1, 1, "", "w")},
		}, want: deadletter.Facts{
			Framework: "AMQP 1.0 client", Cause: "rejected", Error: "no customer", ErrorType: "business", Attempts: 1,
			WorkQueue: "w", Key: "w", FirstFailed: at(1), LastFailed: at(1),
		}},
		"AMQP 1.0 with the annotations of the contract": {headers: amqp091.Table{
			"x-opt-error": []byte("no customer"), "x-opt-error-type": "business", "x-opt-error-stack": "at A",
			"x-opt-dead-letter-reason": "of an earlier attempt", "x-death": []any{died("w", "rejected", 1, 1, "", "w")},
		}, want: deadletter.Facts{
			Framework: "AMQP 1.0 client", Cause: "rejected", Error: "no customer", ErrorType: "business", Stack: "at A",
			Attempts: 1, WorkQueue: "w", Key: "w", FirstFailed: at(1), LastFailed: at(1),
		}},
		"MassTransit without a handler": {headers: amqp091.Table{"MT-Reason": "dead-letter"}, want: deadletter.Facts{
			Framework: "MassTransit", Cause: "skipped", Attempts: -1, Doubt: "no header names the queue in which it failed",
		}},
		"Spring": {headers: spring("events", "k"), route: []string{"billing"}, want: deadletter.Facts{
			Framework: "Spring", Cause: "failed", Error: "boom", Stack: "at A", Attempts: 3,
			WorkQueue: "billing", ByFramework: true,
			Exchange: "events", Key: "k",
		}},
		"Wolverine": {headers: amqp091.Table{
			"exception-type": "E", "exception-message": "boom", "exception-stack": "at A", "failed-at": "1795338001000",
			"original-destination": "rabbitmq://queue/sales", "attempts": int32(3),
		}, want: deadletter.Facts{
			Framework: "Wolverine", Cause: "failed", Error: "boom", ErrorType: "E", Stack: "at A", Attempts: 3,
			WorkQueue: "sales", ByFramework: true,
			FirstFailed: at(1), LastFailed: at(1),
		}},
		"Rascal": {headers: amqp091.Table{"rascal": amqp091.Table{
			"originalQueue": "sales", "originalExchange": "events", "originalRoutingKey": "k",
			"error": amqp091.Table{
				"message": "boom", "code": "EFAIL",
			}, "recovery": amqp091.Table{"sales": amqp091.Table{"republished": int8(2)}},
		}}, want: deadletter.Facts{
			Framework: "Rascal", Cause: "failed", Error: "boom", ErrorType: "EFAIL", Attempts: 3,
			WorkQueue: "sales", ByFramework: true,
			Exchange: "events", Key: "k",
		}},
		"Kicks": {headers: amqp091.Table{
			"retry_info": `[{"error":"boom","num_attempts":6,"failed_at":"2026-11-22T10:00:01+01:00",` +
				`"error_class":"E","error_message":"boom","backtrace":["a","b"],` +
				`"properties":{"headers":{"x-death":[{"queue":"sales","reason":"rejected","count":5}]}}},{"error":"old"}]`,
		}, want: deadletter.Facts{
			Framework: "Kicks", Cause: "failed", Error: "boom", ErrorType: "E", Stack: "a\nb", Attempts: 6,
			WorkQueue: "sales", ByFramework: true,
			FirstFailed: at(1), LastFailed: at(1),
		}},
		"Watermill": {headers: amqp091.Table{
			"reason_poisoned": "boom", "topic_poisoned": "sales", "handler_poisoned": "h",
		}, want: deadletter.Facts{
			Framework: "Watermill", Cause: "failed", Error: "boom", Attempts: -1, Job: "h",
			Doubt: `topic_poisoned names the topic "sales", which need not be a queue`,
		}},
		"Celery": {headers: amqp091.Table{
			"task": "tasks.add", "id": "1", "argsrepr": "(1,)", "retries": int8(0), "x-death": []any{
				died("celery", "rejected", 1, 1, "", "celery"),
			},
		}, want: deadletter.Facts{
			Framework: "Celery", Cause: "rejected", Attempts: 1, Job: "tasks.add", WorkQueue: "celery", Key: "celery",
			FirstFailed: at(1), LastFailed: at(1),
		}},
	}, "Hops")
}

// The way of a message has the tiers in which it waited, though no header names them.
func TestTheTimelineHasTheTiers(t *testing.T) {
	t.Parallel()
	last := at(9).Add(500 * time.Millisecond)
	for name, tc := range map[string]struct {
		headers amqp091.Table
		want    []deadletter.Hop
	}{
		"three attempts": {processed(3), []deadletter.Hop{
			{Queue: "billing", Count: 1, Time: at(1), Exchange: "events", Keys: []string{"order.placed"}},
			{Queue: "shop.standard.retry.10s", Reason: "expired", Count: 1, Assumed: true},
			{Queue: "billing", Count: 1, Assumed: true},
			{Queue: "shop.standard.retry.1m", Reason: "expired", Count: 1, Assumed: true},
			{Queue: "billing", Reason: "rejected", Count: 1, Time: last},
		}},
		"more attempts than tiers today": {processed(4), []deadletter.Hop{
			{Queue: "billing", Reason: "rejected", Count: 4, Time: at(1), Exchange: "events", Keys: []string{"order.placed"}},
		}},
		"the broker alone": {
			amqp091.Table{"x-death": []any{died("w", "rejected", 2, 2, "dlx", "k"), died("delay", "expired", 2, 1, "x", "k")}},
			[]deadletter.Hop{
				{Queue: "delay", Reason: "expired", Count: 2, Time: at(1), Exchange: "x", Keys: []string{"k"}},
				{Queue: "w", Reason: "rejected", Count: 2, Time: at(2), Exchange: "dlx", Keys: []string{"k"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := deadletter.Read(amqp091.Delivery{Headers: tc.headers}, "billing.dead", deadletter.Knows(shop()))
			if d := cmp.Diff(tc.want, got.Hops); d != "" {
				t.Errorf("hops (-want +got):\n%s", d)
			}
		})
	}
}

// A framework that makes texts of all headers, as NServiceBus does, keeps the marks of the desk.
func TestMarksOfTheDeskAreKnownAsTexts(t *testing.T) {
	t.Parallel()
	d := amqp091.Delivery{Headers: amqp091.Table{"desk-replays": "2", "desk-run": []byte("r1")}}
	if f := deadletter.Read(d, "error", nil); f.Replays != 2 || f.Run != "r1" || deadletter.RunOf(d) != "r1" {
		t.Errorf("%+v", f)
	}
}
