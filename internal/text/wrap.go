package text

import (
	"strings"

	"github.com/rivo/uniseg"
)

// Wrap breaks a line at spaces into lines of at most width columns. The lines behind the first
// are indented by four columns more than the first, so that the signs at its left stay visible.
// A word that is longer stays whole. A width of zero, or one too narrow to be of use, breaks
// nothing.
func Wrap(line string, width int) []string {
	const narrowest = 40
	if width < narrowest || Columns(line) <= width {
		return []string{line}
	}
	content := strings.TrimLeft(line, " ")
	first := line[:len(line)-len(content)]
	indent := first + "    "
	var out []string
	current, used := first, len(first)
	for i, word := range strings.Split(content, " ") {
		n := Columns(word)
		switch {
		case i == 0:
			current, used = current+word, used+n
		case used+1+n <= width:
			current, used = current+" "+word, used+1+n
		default:
			out = append(out, strings.TrimRight(current, " "))
			current, used = indent+word, len(indent)+n
		}
	}
	return append(out, strings.TrimRight(current, " "))
}

// Columns returns how many columns of a terminal a text takes, without the escape sequences that
// set colors.
func Columns(s string) int {
	n := 0
	for s != "" {
		rest, colored := strings.CutPrefix(s, "\x1b[")
		if end := strings.IndexByte(rest, 'm'); colored && end >= 0 {
			s = rest[end+1:]
			continue
		}
		plain := max(1, strings.Index(s[1:], "\x1b[")+1)
		if !strings.Contains(s[1:], "\x1b[") {
			plain = len(s)
		}
		n += uniseg.StringWidth(s[:plain])
		s = s[plain:]
	}
	return n
}
