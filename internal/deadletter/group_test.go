package deadletter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

func grouped(t *testing.T, by string, views ...deadletter.View) []deadletter.Group {
	t.Helper()
	b, err := deadletter.ParseBy(by)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != by {
		t.Errorf("ParseBy(%q).String() = %q", by, b)
	}
	groups := deadletter.NewGroups(b)
	for _, v := range views {
		groups.Add(v)
	}
	if groups.Total() != len(views) {
		t.Errorf("counted %d of %d", groups.Total(), len(views))
	}
	return groups.List()
}

func TestMessagesAreGrouped(t *testing.T) {
	t.Parallel()
	a, b := sample(), sample()
	a.LastFailed, a.Handle = at(5), "aaaaaaaaaaaa"
	b.LastFailed, b.Handle = at(1), "bbbbbbbbbbbb"
	other := sample()
	other.Facts = deadletter.Facts{Cause: "expired", Attempts: -1}
	other.Headers, other.Body.Value, other.Type = nil, nil, ""
	for by, values := range map[string][]string{
		"cause":                 {"rejected 2", "expired 1"},
		"error":                 {"timeout after <n> s 2", "missing 1"},
		"queue":                 {"billing 2", "missing 1"},
		"key":                   {"order.placed 2", "missing 1"},
		"exchange":              {"events 2", "missing 1"},
		"type":                  {"order.placed 2", "missing 1"},
		"header:tenant":         {"acme 2", "missing 1"},
		"header:size":           {"7 2", "missing 1"},
		"header:CC":             {`["@billing"] 2`, "missing 1"},
		"body.customer.country": {"AT 2", "missing 1"},
		"body.items[0].qty":     {"1 2", "missing 1"},
		`body["total"]`:         {"12.5 2", "missing 1"},
		"body.customer.vip":     {"true 2", "missing 1"},
	} {
		var got []string
		for _, g := range grouped(t, by, a, other, b) {
			value := g.Value
			if g.Missing {
				value = "missing"
			}
			got = append(got, fmt.Sprintf("%s %d", value, g.Count))
		}
		if d := cmp.Diff(values, got); d != "" {
			t.Errorf("groups by %s (-want +got):\n%s", by, d)
		}
	}
	first := grouped(t, "cause", a, b)[0]
	want := deadletter.Group{
		By: "cause", Value: "rejected", Count: 2, Share: 1, First: at(1), Last: at(5), Example: "aaaaaaaaaaaa",
	}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("group (-want +got):\n%s", d)
	}
}

// Ids above 2^63 differ in digits that a float64 does not keep.
func TestLargeIDsAreGroupsOfTheirOwn(t *testing.T) {
	t.Parallel()
	var reader deadletter.Reader
	one := reader.View(message(`{"id":17000000000000000001}`, nil))
	other := reader.View(message(`{"id":17000000000000000002}`, nil))
	if groups := grouped(t, "body.id", one, other); len(groups) != 2 || groups[0].Value != "17000000000000000001" {
		t.Errorf("the groups are %+v", groups)
	}
	raw, err := json.Marshal(one)
	if err != nil || !strings.Contains(string(raw), `"body":{"id":"17000000000000000001"}`) {
		t.Errorf("the JSON is %s, %v", raw, err)
	}
	f, err := deadletter.NewFilter(`body.id == "17000000000000000001" and float(body.id) > 1`)
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[*deadletter.View]bool{&one: true, &other: false} {
		if got, err := f.Matches(*v); err != nil || got != want {
			t.Errorf("the filter for %s: %t, %v", v.Body.Text, got, err)
		}
	}
}

// Without a property to group by, bodies are not decoded, which would cost several times as much,
// but those in which dramatiq tells the error.
func TestGroupingByErrorDecodesNoBodies(t *testing.T) {
	t.Parallel()
	ways, err := deadletter.NewWays("")
	if err != nil {
		t.Fatal(err)
	}
	if ways.NeedsBody() {
		t.Error("grouping needs the bodies")
	}
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	v := r.Head(message(`{"queue_name":"q","actor_name":"pay","options":{"retries":3,"traceback":"at pay()\nno answer"}}`, nil))
	if got := ways.Add(v)[ways.Chosen()]; got != "no answer" || v.Body.Text != "" {
		t.Errorf("a message of dramatiq is grouped by %q, with the body %q", got, v.Body.Text)
	}
}

// Without a property to group by, messages are grouped by error where any has one, and otherwise by
// cause. If they are one group, what else tells them apart is known from the same messages.
func TestTheWayToGroup(t *testing.T) {
	t.Parallel()
	plain := deadletter.View{Facts: deadletter.Facts{Cause: "rejected", Key: "order.placed", WorkQueue: "billing"}}
	failed, typed, other := plain, plain, plain
	failed.Error, typed.ErrorType = "no answer", "PaymentTimeout"
	other.Key = "order.paid"
	for name, tc := range map[string]struct {
		asked string
		views []deadletter.View
		by    string
		apart string
	}{
		"no errors":                {"", []deadletter.View{plain, plain}, "cause", "[]"},
		"nothing":                  {"", nil, "cause", "[]"},
		"one error":                {"", []deadletter.View{plain, plain, failed}, "error", "[]"},
		"one type of an error":     {"", []deadletter.View{plain, typed}, "error", "[]"},
		"what the person asks for": {"cause", []deadletter.View{failed, failed}, "cause", "[]"},
		"one cause, two keys":      {"", []deadletter.View{plain, plain, other}, "cause", "[{key 2}]"},
		"one error, two keys":      {"error", []deadletter.View{plain, plain, other}, "error", "[{key 2}]"},
		"each message of its own":  {"", []deadletter.View{plain, other}, "cause", "[]"},
		"two groups need no other": {"key", []deadletter.View{plain, plain, other}, "key", "[]"},
		"one cause, two errors":    {"cause", []deadletter.View{plain, plain, failed}, "cause", "[{error 2}]"},
	} {
		ways, err := deadletter.NewWays(tc.asked)
		if err != nil {
			t.Fatal(err)
		}
		groups := map[string]bool{}
		for _, v := range tc.views {
			groups[ways.Add(v)[ways.Chosen()]] = true
		}
		by, apart := ways.By()[ways.Chosen()].String(), ways.Apart(len(groups))
		if got := fmt.Sprint(apart); by != tc.by || got != tc.apart {
			t.Errorf("%s: by %s, apart %s; want %s, %s", name, by, got, tc.by, tc.apart)
		}
	}
	many, err := deadletter.NewWays("")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		v := plain
		v.Key, v.Exchange = fmt.Sprint("key ", i/2), fmt.Sprint(i%100)
		many.Add(v)
	}
	if got := fmt.Sprint(many.Apart(1)); got != "[{exchange 100}]" {
		t.Errorf("of 500 keys and 100 exchanges, %s tell messages apart", got)
	}
	if _, err := deadletter.NewWays("causes"); err == nil {
		t.Error("there is a way named causes")
	}
}

// The laws of the ways: error is the default if and only if a message has one, and what they say of
// another property is what grouping by it gives.
func TestWaysAgreeWithGroups(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		few := rapid.SampledFrom([]string{"", "", "a", "b"})
		views, failed := make([]deadletter.View, rapid.IntRange(1, 6).Draw(rt, "messages")), false
		ways, err := deadletter.NewWays("")
		if err != nil {
			rt.Fatal(err)
		}
		for i := range views {
			v := &views[i]
			v.Error, v.ErrorType, v.Cause = few.Draw(rt, "error"), few.Draw(rt, "error type"), few.Draw(rt, "cause")
			v.Key, v.WorkQueue, v.Type = few.Draw(rt, "key"), few.Draw(rt, "queue"), few.Draw(rt, "type")
			failed = failed || v.Error+v.ErrorType != ""
			ways.Add(*v)
		}
		by := ways.By()[ways.Chosen()].String()
		if (by == "error") != failed {
			rt.Errorf("by %s, and an error is %t", by, failed)
		}
		for _, a := range ways.Apart(len(grouped(t, by, views...))) {
			if n := len(grouped(t, a.By, views...)); n != a.Groups || n < 2 {
				rt.Errorf("by %s there are %d groups, and not %d", a.By, n, a.Groups)
			}
		}
	})
}

func TestErrorsThatDifferInNumbersAreAlike(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order 123 has 4.5 items":                                "order <n> has <n> items",
		"no customer 0f8fad5b-d9cb-469f-a165-70867728950e found": "no customer <id> found",
		"bad pointer 0xC0FFEE":                                   "bad pointer <id>",
		"digest 9f86d081884c7d65 differs":                        "digest <id> differs",
		"no such customer d1":                                    "no such customer d<n>",
		"AT_42 and C17 of ann.2+x@mail.example.org":              "AT_<n> and C<n> of <email>",
		"order ord_8f3a2 at 2026-11-22T09:00:01Z":                "order ord_<id> at <n>-<n>-<id>:<n>Z",
		"hash abcdef12 of kX92jd1":                               "hash <id> of <id>",
		"OAuth2Exception: 3 s":                                   "OAuth<n>Exception: <n> s",
		"order123 failed":                                        "order<n> failed",
		"at 12:30:05 after 30s":                                  "at <n> after <n>s",
		"deadbeef feedback":                                      "deadbeef feedback",
		"two lines\nof 7":                                        "two lines",
		"":                                                       "",
	} {
		v := sample()
		v.Error = text
		if got := grouped(t, "error", v)[0].Value; got != want {
			t.Errorf("%q is alike %q; want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"boom 7": "com.acme.v2.Base64Error: boom <n>", "": "com.acme.v2.Base64Error",
	} {
		v := sample()
		v.Error, v.ErrorType = text, "com.acme.v2.Base64Error"
		if got := grouped(t, "error", v)[0].Value; got != want {
			t.Errorf("with a type: %q, want %q", got, want)
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	views := make([]deadletter.View, 10_050)
	for i := range views {
		views[i].Key, views[i].Handle = fmt.Sprint("key ", i), "aaaaaaaaaaaa"
	}
	views[0].Key = strings.Repeat("ü", 5000)
	groups := grouped(t, "key", views...)
	last := groups[len(groups)-1]
	if len(groups) != 10_001 || !last.Others || last.Count != 50 {
		t.Errorf("%d groups, the last %+v", len(groups), last)
	}
	for _, g := range groups {
		if len([]rune(g.Value)) > 200 {
			t.Errorf("a group has a name of %d characters", len([]rune(g.Value)))
		}
	}
	raw, err := json.Marshal(last)
	if err != nil || !strings.Contains(string(raw), `"value":null,"others":true,"count":50`) {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestWaysToGroupThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for by, want := range map[string]string{
		"":          "use cause, error, queue",
		"causes":    `did you mean "cause"?`,
		"header:":   "names no header",
		"headers.x": "header:NAME",
		"body.":     "column",
		"body.a b":  "column",
		"body[":     "column",
	} {
		if b, err := deadletter.ParseBy(by); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseBy(%q) = %v, %v; want an error with %q", by, b, err, want)
		}
	}
}
