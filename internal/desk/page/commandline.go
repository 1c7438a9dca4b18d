package page

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// command writes a command line of dlxctl that can be pasted into a shell.
func (p *Page) command(words ...string) string {
	var quoted []string
	for _, word := range append(append([]string{}, p.Command...), words...) {
		quoted = append(quoted, quote(word))
	}
	return strings.Join(quoted, " ")
}

// quote quotes a word for a POSIX shell. A word with control characters is written with their
// codes, so that what is pasted cannot act on the terminal.
func quote(word string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:=,@%+", r))
	}
	switch {
	case word == "":
		return "''"
	case strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0:
		return word
	case strings.IndexFunc(word, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) }) >= 0:
		var b strings.Builder
		for _, c := range []byte(word) {
			if c < ' ' || c >= 0x7f || c == '\'' || c == '\\' {
				fmt.Fprintf(&b, `\x%02x`, c)
			} else {
				b.WriteByte(c)
			}
		}
		return "$'" + b.String() + "'"
	default:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
}

// commandLine returns the command line that does what a request asks for. chosen is how many
// messages it must choose; negative only shows.
func (p *Page) commandLine(ask Ask, chosen int) string {
	words := []string{"desk", string(ask.Action)}
	if ask.Action == desk.Edit && len(ask.Handles) == 1 {
		words = append(words, ask.Handles[0], ask.Queue)
		if chosen >= 0 {
			words = append(words, "--yes")
		}
		return p.command(words...)
	}
	words = append(words, ask.Queue)
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, value)
		}
	}
	add("--where", ask.Where)
	add("--since", ask.Since)
	for _, h := range ask.Handles {
		add("--handle", h)
	}
	if ask.Limit > 0 {
		add("--limit", strconv.Itoa(ask.Limit))
	}
	if ask.Action == desk.Replay {
		if ask.Again {
			words = append(words, "--again")
		}
		add("--to", ask.To)
		add("--rate", ask.Rate)
		add("--ramp", ask.Ramp)
		add("--stop-on", ask.StopOn)
	}
	add("--reason", ask.Reason)
	if chosen >= 0 {
		words = append(words, "--yes", "--expect", strconv.Itoa(chosen))
	}
	return p.command(words...)
}
