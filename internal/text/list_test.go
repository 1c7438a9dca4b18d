package text_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/text"
)

func TestLists(t *testing.T) {
	t.Parallel()
	five := []string{"a", "b", "c", "d", "e"}
	for want, got := range map[string]string{
		"":                       text.List(nil) + text.FirstOf(nil, 3),
		"a":                      text.List(five[:1]),
		"a, b and c":             text.List(five[:3]),
		"a, b or c":              text.Or(nil) + text.Or(five[:3]),
		"a, b, c":                text.FirstOf(five[:3], 3),
		"a, b, c, d, e":          text.FirstOf(five, 4),
		"a, b, c and 2 more":     text.FirstOf(five, 3),
		"a and b":                text.ListFirst(five[:2], 1),
		"a, b and 3 more":        text.ListFirst(five, 2),
		"a, b and 9 more":        text.More(five[:2], 11),
		"a|b|c|d|e":              strings.Join(text.FirstLines(five, 4), "|"),
		"a|b|… and 3 more":       strings.Join(text.FirstLines(five, 2), "|"),
		"a\nand 2 more problems": text.FirstErrors([]error{errors.New("a"), errors.New("b"), errors.New("c")}, 1).Error(),
		`"" b`:                   strings.Join(text.Names([]string{"", "b"}), " "),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := text.FirstErrors(nil, 1); err != nil {
		t.Errorf("no problem is %v", err)
	}
}
