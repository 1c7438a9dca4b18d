package deadletter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	want := deadletter.Group{Value: "rejected", Count: 2, Share: 1, First: at(1), Last: at(5), Example: "aaaaaaaaaaaa"}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("group (-want +got):\n%s", d)
	}
}

func TestErrorsThatDifferInNumbersAreAlike(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order 123 has 4.5 items":                                "order <n> has <n> items",
		"no customer 0f8fad5b-d9cb-469f-a165-70867728950e found": "no customer <id> found",
		"bad pointer 0xC0FFEE":                                   "bad pointer <hex>",
		"digest 9f86d081884c7d65 differs":                        "digest <hex> differs",
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
	v := sample()
	v.Error, v.ErrorType = "boom", "System.Exception"
	if got := grouped(t, "error", v)[0].Value; got != "System.Exception: boom" {
		t.Errorf("with a type: %q", got)
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
