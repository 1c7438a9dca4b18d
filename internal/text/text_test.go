package text_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/text"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1 queue":       text.Count(1, "queue"),
		"0 queues":      text.Count(0, "queue"),
		"2 policies":    text.Count(int64(2), "policy"),
		"1 policy":      text.Count(1, "policy"),
		"3 work queues": text.Count(3, "work queue"),
		"2 keys":        text.Count(2, "key"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 50_000: "50,000", 1_234_567: "1,234,567", -100: "-100", -1000: "-1,000",
	} {
		if got := text.Grouped(n); got != want {
			t.Errorf("%d is %q, not %q", n, got, want)
		}
	}
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"shop.a-b_c":         "shop.a-b_c",
		"drops-routing=shop": "drops-routing=shop",
		"":                   "''",
		"a b":                "'a b'",
		"it's":               `'it'\''s'`,
		"=ls":                "'=ls'",
		"a\nb'c\"":           `$'a\nb\'c"'`,
		"^shop$":             "'^shop$'",
	} {
		if got := text.ShellQuote(in); got != want {
			t.Errorf("ShellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	if got, err := text.JSON("<b>"); err != nil || got != `"<b>"` {
		t.Errorf("got %q, %v", got, err)
	}
	var b strings.Builder
	if err := text.WriteJSON(&b, map[string]string{"a": "<b>"}); err != nil || b.String() != "{\n  \"a\": \"<b>\"\n}\n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
	if err := text.WriteJSON(&b, func() {}); err == nil {
		t.Error("a function cannot be written as JSON")
	}
}

// A byte that is not UTF-8 can control a terminal too.
func TestNamesThatAreNotTextAreQuoted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"orders": "orders", "\x9b31m": `"\x9b31m"`, "a\x1b": `"a\x1b"`, "": `""`} {
		if got := text.Name(name); got != want {
			t.Errorf("Name(%q) = %s; want %s", name, got, want)
		}
	}
}
