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
		if err := (text.Table{Rows: rows, Whole: []int{0}}).Write(&b, tc.width); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != tc.want {
			t.Errorf("with %d columns:\n%s\nwant\n%s", tc.width, got, tc.want)
		}
	}
}

// Numbers are aligned to the right, a name that must stay whole gets a line of its own where the
// terminal is too narrow, and a style covers all lines of its row.
func TestTableOfNumbers(t *testing.T) {
	t.Parallel()
	mark := func(s string) string { return "<" + s + ">" }
	table := text.Table{Numbers: 2, Whole: []int{0}}
	table.Add(mark, "QUEUE", "OWNER", "READY", "DEAD")
	table.Add(nil, "billing", "team of billing", "12", "<=3")
	table.Add(mark, "a.very.long.name", "", "0", "1")
	for width, want := range map[int]string{
		0: "<QUEUE             OWNER            READY  DEAD>\n" +
			"billing           team of billing     12   <=3\n" +
			"<a.very.long.name                       0     1>\n",
		31: "<QUEUE     OWNER     READY  DEAD>\n" +
			"billing   team of…     12   <=3\n" +
			"<a.very.long.name>\n" +
			"<                        0     1>\n",
	} {
		var b strings.Builder
		if err := table.Write(&b, width); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != want {
			t.Errorf("with %d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}

// What a person came to read is cut only where the other columns are as narrow as they may be.
func TestTableCutsTheLastColumnsLast(t *testing.T) {
	t.Parallel()
	table := text.Table{Whole: []int{0}, Last: []int{1}}
	table.Add(nil, "HANDLE", "ERROR", "KEY")
	table.Add(nil, "0a1b2c3d4e5f", "no such customer", "order.placed.austria")
	for width, want := range map[int]string{
		45: "HANDLE        ERROR             KEY\n0a1b2c3d4e5f  no such customer  order.placed…\n",
		36: "HANDLE        ERROR         KEY\n0a1b2c3d4e5f  no such cus…  order.p…\n",
	} {
		var b strings.Builder
		if err := table.Write(&b, width); err != nil || b.String() != want {
			t.Errorf("with %d columns, %v:\n%s\nwant\n%s", width, err, b.String(), want)
		}
	}
}
