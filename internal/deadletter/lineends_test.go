package deadletter_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// formText is what a form of a web page makes of a text.
func formText(s string) string { return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s) }

func TestLineEndsStay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, edited, want string }{
		"CRLF":                    {"a\r\nb\r\n", "a\nc\n", "a\r\nc\r\n"},
		"a line more":             {"a\r\nb\r\n", "a\nb\nc\n", "a\r\nb\r\nc\r\n"},
		"mixed, one line changed": {"a\r\nb\nc\rd\r\n", "a\nb\nx\nd\n", "a\r\nb\nx\rd\r\n"},
		"mixed, a line less":      {"a\r\nb\nc\r\nd\n", "a\nc\nd\n", "a\r\nc\r\nd\n"},
		"mixed, in the middle":    {"a\nb\r\nc\nd\r\ne\n", "x\nb\ny\nz\nd\nw\n", "x\nb\r\ny\nz\nd\r\nw\n"},
		"no end at the end":       {"a\r\nb", "a\nb\nc", "a\r\nb\r\nc"},
		"line feeds":              {"a\nb\n", "a\nc\n", "a\nc\n"},
		"one line":                {"a", "a\nb", "a\nb"},
		"nothing before":          {"", "a\nb", "a\nb"},
		"nothing left":            {"a\r\n", "", ""},
	} {
		if got := string(deadletter.LineEnds([]byte(tc.before), []byte(tc.edited))); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A text that was saved as it was shown stays byte for byte, whatever its line ends.
func TestATextThatWasNotEditedStays(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test that can be repeated
	for range 5000 {
		var b strings.Builder
		for range r.IntN(20) {
			b.WriteByte("ab\r\n"[r.IntN(4)])
		}
		before := b.String()
		if got := string(deadletter.LineEnds([]byte(before), []byte(formText(before)))); got != before {
			t.Fatalf("%q became %q", before, got)
		}
	}
	large := strings.Repeat("line\r\n", 60_000)
	got := string(deadletter.LineEnds([]byte(large), []byte("x\n"+formText(large)+"y\n")))
	if got != "x\r\n"+large+"y\r\n" {
		t.Error("a large text has other line ends")
	}
}
