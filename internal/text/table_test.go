package text_test

import (
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/dlxctl/dlxctl/internal/text"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		s     string
		width int
		want  string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"whatever", 0, "whatever"},
		{"注文番号", 8, "注文番号"},
		{"注文番号", 7, "注文番…"},
		{"注文番号", 6, "注文…"}, // half a character does not fit
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
		{"👩‍👩‍👧‍👧 family", 4, "👩‍👩‍👧‍👧 …"},
		{"x", 1, "x"},
		{"xy", 1, "…"},
	} {
		got := text.Fit(tc.s, tc.width)
		if got != tc.want || tc.width > 0 && uniseg.StringWidth(got) > tc.width {
			t.Errorf("%q in %d columns is %q, want %q", tc.s, tc.width, got, tc.want)
		}
	}
}

// A table keeps its columns in line, and fits the terminal.
func TestTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{
		{"QUEUE", "TOP CAUSE", "OWNER"},
		{"billing.dead", strings.Repeat("no such customer ", 5), "team"},
		{"注文.dead", "rejected", "-"},
	}
	for _, tc := range []struct {
		width int
		want  string
	}{
		{0, "QUEUE         TOP CAUSE" + strings.Repeat(" ", 78) + "OWNER\n" +
			"billing.dead  " + strings.Repeat("no such customer ", 5) + "  team\n" +
			"注文.dead     rejected" + strings.Repeat(" ", 79) + "-\n"},
		{30, "QUEUE         TOP CAUSE  OWNER\n" +
			"billing.dead  no such …  team\n" +
			"注文.dead     rejected   -\n"},
		{40, "QUEUE         TOP CAUSE            OWNER\n" +
			"billing.dead  no such customer n…  team\n" +
			"注文.dead     rejected             -\n"},
	} {
		var b strings.Builder
		if err := text.Table(&b, rows, tc.width, 0); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != tc.want {
			t.Errorf("with %d columns:\n%s\nwant\n%s", tc.width, got, tc.want)
		}
	}
}
