// Package text holds the few text helpers that all packages share: counts with a
// noun, words that are safe to paste into a shell, and JSON for people and scripts.
// It imports no other package of this module.
package text

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Count returns a number with its noun: "1 queue", "2 queues", "0 policies".
func Count[T ~int | ~int64](n T, noun string) string {
	return fmt.Sprintf("%d %s", n, Plural(n, noun))
}

// Plural returns the noun in the form that goes with n: "queue" for 1, "queues"
// for any other number. It knows the plural of nouns in -y after a consonant:
// "policies".
func Plural[T ~int | ~int64](n T, noun string) string {
	if n == 1 {
		return noun
	}
	stem, ok := strings.CutSuffix(noun, "y")
	if ok && stem != "" && !strings.ContainsRune("aeiou", rune(stem[len(stem)-1])) {
		return stem + "ies"
	}
	return noun + "s"
}

// Grouped returns a number with commas between thousands: "50,000".
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Choose returns one if n is 1, else many: Choose(n, "is", "are").
func Choose[T ~int | ~int64](n T, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Some returns the first five names of a list, and counts the others.
func Some(names []string) string { return FirstOf(names, 5) }

// Name returns the name of an object as people read it: as it is, in quotes if it
// could be mistaken for something else or would upset a terminal.
func Name(name string) string {
	odd := name == "" || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || r == '"' })
	if odd || strings.TrimSpace(name) != name {
		return strconv.Quote(name)
	}
	return name
}

// ShellQuote returns s as one word of a POSIX shell, without quotes where none are
// needed. Control characters and marks of direction need the form $'...', which bash, ksh
// and zsh know.
func ShellQuote(s string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./@:+,%-][A-Za-z0-9_./@:+,%=-]*$`).MatchString(s) {
		return s
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		quoted := strconv.Quote(s) // bash reads the same escapes; only the quotes differ
		quoted = quoted[1 : len(quoted)-1]
		return "$'" + strings.NewReplacer(`\"`, `"`, `'`, `\'`).Replace(quoted) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// JSON returns v as one line of JSON, without escaping HTML.
func JSON(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// WriteJSON writes v as indented JSON that ends with a newline, without escaping
// HTML: names stay readable.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// EscapeMarkdown returns s so that Markdown shows it as it is, also in a cell of a table. It must
// be one line.
func EscapeMarkdown(s string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", "|", `\|`, "#", `\#`).Replace(s)
}

// Code returns s as code of Markdown, in one line, whatever backticks it holds.
func Code(s string) string {
	if n := longestBackticks(s); n > 0 {
		fence := strings.Repeat("`", n+1)
		return fence + " " + s + " " + fence
	}
	return "`" + s + "`"
}

// Fence returns the line before and after s as a block of code of Markdown: names in s may hold
// backticks.
func Fence(s string) string { return strings.Repeat("`", max(3, longestBackticks(s)+1)) }

func longestBackticks(s string) int {
	longest, run := 0, 0
	for _, c := range s {
		run++
		if c != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
