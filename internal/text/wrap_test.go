package text_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Lines are broken at spaces, below the first word, and colors take no columns.
func TestWrap(t *testing.T) {
	t.Parallel()
	red := func(s string) string { return "\x1b[31m" + s + "\x1b[0m" }
	long := strings.Repeat("x", 50)
	for name, tc := range map[string]struct {
		line  string
		width int
		want  []string
	}{
		"no terminal": {strings.Repeat("word ", 40), 0, []string{strings.Repeat("word ", 40)}},
		"too narrow":  {strings.Repeat("word ", 40), 20, []string{strings.Repeat("word ", 40)}},
		"fits":        {"  + queue a", 40, []string{"  + queue a"}},
		"indented": {
			"  + queue billing.invoices (quorum) <- orders: order.placed", 40,
			[]string{"  + queue billing.invoices (quorum) <-", "      orders: order.placed"},
		},
		"a long word": {"warning: " + long + " end", 40, []string{"warning:", "    " + long, "    end"}},
		"colors": {
			"  " + red("+") + " " + strings.Repeat("x", 36), 40,
			[]string{"  " + red("+") + " " + strings.Repeat("x", 36)},
		},
		"a table": {"a    b " + long, 40, []string{"a    b", "    " + long}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, text.Wrap(tc.line, tc.width)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
