package deadletter_test

import (
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
)

// sample is a view to ask about.
func sample() deadletter.View {
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	v := r.View(message(``, processed(3, "tenant", "acme", "size", int32(7),
		"list", []any{"a", amqp091.Table{"n": int64(2)}})))
	v.Error = "timeout after 30 s"
	v.Published = time.Time{}
	v.Body = decode.Document{Format: decode.JSON, Tree: true, Text: `{"customer": "text"}`, Value: map[string]any{
		"customer": map[string]any{"country": "AT", "vip": true}, "total": 12.5, "n": int64(2),
		"items":   []any{map[string]any{"sku": "a", "qty": int64(1)}, map[string]any{"sku": "b", "qty": int64(5)}, "odd"},
		"nothing": nil,
	}}
	v.Copy = 2
	return v
}

func TestFilters(t *testing.T) {
	t.Parallel()
	now := at(0).Add(time.Hour)
	for expression, want := range map[string]bool{
		`cause == "rejected"`:                                                 true,
		`cause != "rejected"`:                                                 false,
		`cause in ["expired", "rejected"]`:                                    true,
		`attempts >= 3 and attempts < 4`:                                      true,
		`error contains "timeout"`:                                            true,
		`error matches "(?i)TIMEOUT after \\d+"`:                              true,
		`lower(upper(error)) startsWith "time"`:                               true,
		`key == "order.placed" && exchange == "events" && queue == "billing"`: true,
		`id == "m-1" or type == "x"`:                                          true,
		`headers.tenant == "acme"`:                                            true,
		`headers["tenant"] == "acme"`:                                         true,
		`headers.size == 7 and headers.size < 7.5`:                            true,
		`headers.CC contains "@billing"`:                                      true,
		`"@billing" in headers.CC`:                                            true,
		`"tenant" in headers`:                                                 true,
		`headers.list[1].n == 2`:                                              true,
		`headers.list[-2] == "a"`:                                             true,
		`body.customer.country == "AT"`:                                       true,
		`body.customer.vip`:                                                   true,
		`not body.customer.vip`:                                               false,
		`body.total > 12 and body.n == 2.0`:                                   true,
		`any(body.items, .qty > 4)`:                                           true,
		`all(body.items, .qty > 0)`:                                           false,
		`count(body.items, .sku != nil) == 2`:                                 true,
		`len(filter(body.items, .sku == "a")) == 1`:                           true,
		`find(body.items, .sku == "b").qty == 5`:                              true,
		`"b" in map(body.items, .sku)`:                                        true,
		`text contains "customer"`:                                            true,
		`size == 0 and copy and replays == 0 and run == ""`:                   true,
		`lastFailed > date("2026-11-22") and lastFailed < now()`:              true,
		`now() - lastFailed < duration("1h")`:                                 true,
		`firstFailed > now() - duration("1m")`:                                false,
		`body.n + 1 == 3 and body.n * 2 - 1 == 3 and -body.n == -2`:           true,
		`let c = body.customer; c.country == "AT" ? c.vip : false`:            true,
		`string(body.n) == "2" and int("7") == headers.size`:                  true,
		`(body.missing ?? "x") == "x"`:                                        true,

		// What is missing is nil, and no comparison with it is true.
		`body.nope.deeper[3].x == "x"`:                     false,
		`body.nope != "x"`:                                 false,
		`body.nope > 1 or body.nope <= 1`:                  false,
		`body.nope == nil and body.nothing == nil`:         true,
		`body.customer != nil`:                             true,
		`body.nope contains "x"`:                           false,
		`not (body.nope contains "x")`:                     true,
		`body.nope matches "x"`:                            false,
		`body.nope in ["x"]`:                               false,
		`"x" in body.nope`:                                 false,
		`body.customer.country.x.y == "z"`:                 false,
		`body.customer.country > 3`:                        false,
		`any(body.nope, true)`:                             false,
		`all(body.nope, false)`:                            true,
		`len(body.nope) > 0`:                               false,
		`lower(body.nope) == ""`:                           false,
		`body.nope + 1 > 0`:                                false,
		`body.n / 0 > 0 or body.n % 0 > 0`:                 false,
		`body.nope and true`:                               false,
		`body.nope`:                                        false,
		`body.n`:                                           false,
		`published < now()`:                                false,
		`published == nil`:                                 true,
		`date(body.nope) < now()`:                          false,
		`duration(body.nope) < duration("1s")`:             false,
		`headers.nope.x == 1`:                              false,
		`int(body.customer) == 1 or first(body.nope) == 1`: false,
		`body.nope ? true : false`:                         false,
		`keys(body.nope) == nil`:                           true,
		`body.items[99] == nil and body.items["x"] == nil`: true,
		`body["customer"]["country"] == "AT"`:              true,
		`body?.customer?.country == "AT"`:                  true,
		`any(body.items, {.sku == "a" and any(body.items, .sku == "b")})`: true,
	} {
		f, err := deadletter.NewFilter(expression)
		if err != nil {
			t.Errorf("NewFilter(%s): %v", expression, err)
			continue
		}
		if got, err := f.At(now).Matches(sample()); err != nil || got != want {
			t.Errorf("%s = %t, %v; want %t", expression, got, err, want)
		}
	}
}

func TestFiltersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		``:                              "the filter is empty",
		`causse == "x"`:                 `column 1: unknown name "causse"; did you mean "cause"?`,
		`attempts > 2 and qeue == "x"`:  `column 18: unknown name "qeue"; did you mean "queue"?`,
		`len(string) == 1`:              `column 5: string is a function; write string(...)`,
		`zzzzzzzzzz`:                    `a filter knows cause, error`,
		`attempts > "3"`:                "column 10: ",
		`firstFailed > "2026-11-22"`:    `write a time as date("2026-11-22")`,
		`cause = "x"`:                   "column 7: write == to compare",
		`error contains`:                "column 14: the expression is not complete",
		`attempts`:                      "bool",
		`error matches "("`:             "column ",
		`error matches key`:             "needs a regular expression in quotes",
		`firstFailed.Year() == 2026`:    "no methods",
		`$env["cause"] == "x"`:          "$env",
		`body.items[0:1] == 1`:          "parts of a text",
		`1 in 1..3`:                     `".."`,
		`repeat("x", 1000000000) == ""`: `unknown name "repeat"`,
		`fromJSON("1") == 1`:            `unknown name "fromJSON"`,
		`timezone("x") == 1`:            `unknown name "timezone"`,
		`sum(body.items) == 1`:          "unknown name",
		`len() == 1`:                    "column ",
		`len(1, 2) == 1`:                "column ",
		strings.Repeat("(", 5000) + "true" + strings.Repeat(")", 5000): "limit",
		strings.Repeat("!", 3000) + "copy":                             "column ",
	} {
		f, err := deadletter.NewFilter(expression)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("NewFilter(%.60s) = %v, %v; want an error of one line with %q", expression, f, err, want)
		}
	}
}

// A filter costs little for any message, whatever it walks through.
func TestAFilterHasALimit(t *testing.T) {
	t.Parallel()
	v := sample()
	items := make([]any, 20_000)
	for i := range items {
		items[i] = strings.Repeat("x", 100)
	}
	v.Body.Value, v.Body.Text = map[string]any{"items": items}, strings.Repeat("x", 1<<20)
	for _, expression := range []string{
		`any(body.items, any(body.items, any(body.items, # == "y")))`,
		`count(map(body.items, map(body.items, #)), true) == 1`,
		`any(body.items, text contains "y")`,
		`len(map(body.items, upper(text))) == 1`,
		`any(body.items, text matches "y")`,
		`any(body.items, text + text == "y")`,
	} {
		f, err := deadletter.NewFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Matches(v); err == nil || got {
			t.Errorf("%s = %t, %v; want an error", expression, got, err)
		}
	}
	f, err := deadletter.NewFilter(`lastFailed < now()`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Matches(v); err == nil || !strings.Contains(err.Error(), "now() has no time") {
		t.Errorf("now() without a time: %v", err)
	}
}

func TestAFilterSaysWhetherItNeedsTheBody(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]bool{
		`cause == "rejected" and queue == "x" and now() > lastFailed`: false,
		`headers.x == 1 and size > 1`:                                 false,
		`body.x == 1`:                                                 true, `copy or text contains "x"`: true,
		`type == "x"`: true,
	} {
		f, err := deadletter.NewFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		if f.NeedsBody() != want {
			t.Errorf("%s needs the body: %t; want %t", expression, f.NeedsBody(), want)
		}
	}
}

// No expression that compiles fails on a message, or panics, but for the limits.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		`cause == "x" and body.a.b > 1`, `any(body.items, .qty in [1, 2])`, `!(headers.x contains key) ? 1 == 2 : copy`,
		`let x = body.n; x + 1 == 2 or -x < 0`, `error matches "a|b"`, `count(body.items) > 1`, `len(string(body.n)) == 1`,
		`len(string) == 1`,
		`find(body.items, .sku).x?.y[1]`, `body[key] == headers[id]`, `{"a": body}.a.n == 2`, `[1, body][1].n == 2`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		t.Parallel()
		filter, err := deadletter.NewFilter(expression)
		if err != nil {
			return
		}
		if _, err := filter.At(at(0)).Matches(sample()); err != nil && !strings.Contains(err.Error(), "cannot be evaluated") {
			t.Errorf("%q: %v", expression, err)
		}
	})
}
