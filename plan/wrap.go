package plan

import (
	"strings"
	"unicode/utf8"
)

// wrap breaks a line at spaces into lines of at most width columns. The lines behind the first
// are indented by four columns more than the first, so that the signs at its left stay visible.
// A word that is longer stays whole. A width of zero, or one too narrow to be of use, breaks
// nothing.
func wrap(line string, width int) []string {
	const narrowest = 40
	if width < narrowest || columns(line) <= width {
		return []string{line}
	}
	content := strings.TrimLeft(line, " ")
	first := line[:len(line)-len(content)]
	indent := first + "    "
	var out []string
	current, used := first, len(first)
	for i, word := range strings.Split(content, " ") {
		n := columns(word)
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

// columns gives how many columns of a terminal a text takes: its characters, without the escape
// sequences that set colors.
func columns(s string) int {
	n := 0
	for s != "" {
		rest, colored := strings.CutPrefix(s, "\x1b[")
		if end := strings.IndexByte(rest, 'm'); colored && end >= 0 {
			s = rest[end+1:]
			continue
		}
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		n++
	}
	return n
}
