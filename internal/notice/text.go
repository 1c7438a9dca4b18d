package notice

import (
	"encoding/base64"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"
)

const (
	// longestError is how many bytes of an error a text has.
	longestError = 200
	// longestText is how many bytes the text of a template has at most.
	longestText = 4 << 10
)

// joiner is a word joiner, which takes no room.
const joiner = "\u2060"

// Escape keeps a text from being read as mark-up where a chat shows it. Slack calls people by
// <!channel>. Mattermost does by @channel, unless a character of a word is in front of it, and has
// links and images such as ![text](URL).
func Escape(s string) string {
	var b strings.Builder
	before := ' '
	for _, r := range s {
		if r == '(' && before == ']' {
			b.WriteString(joiner)
		}
		b.WriteRune(r)
		if r == '@' && !unicode.In(before, unicode.L, unicode.N) {
			b.WriteString(joiner)
		}
		before = r
	}
	return entities(b.String())
}

// entities escapes what chats read as mark-up everywhere, in code too.
func entities(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// clean is a notice whose texts can be shown.
type clean struct {
	Notice

	command string
}

// Command is that of the notice. In a chat it is code: it can be pasted, and calls no person whose
// name is that of a queue.
func (c clean) Command() string { return c.command }

// cleaned returns n with texts that are safe in one line, and escaped. Of an error that is the
// first line. No text ends the code that a chat shows.
func (n Notice) cleaned(escape func(string) string) clean {
	command := Notice{Queue: Plain(n.Queue)}.Command()
	if escape != nil {
		command = "`" + entities(strings.ReplaceAll(command, "`", "'")) + "`"
	}
	n.Error, _, _ = strings.Cut(strings.TrimSpace(n.Error), "\n")
	n.Error, n.ErrorType = shorten(n.Error), shorten(n.ErrorType)
	for _, s := range []*string{
		&n.Topology, &n.Queue, &n.MovedTo, &n.MessageID, &n.Reason, &n.FirstFailure, &n.Owner, &n.Severity,
		&n.Error, &n.ErrorType, &n.BodyType, &n.BodyNote, &n.BodyFormat, &n.BodyText, &n.Body, &n.BodyBase64,
	} {
		if *s = Plain(*s); escape != nil {
			*s = escape(strings.ReplaceAll(*s, "`", "'"))
		}
	}
	return clean{n, command}
}

func shorten(s string) string {
	if short := First(s, longestError); len(short) < len(s) {
		return short + "…"
	}
	return s
}

// Plain keeps what a message says about itself from being read as further lines, or in another
// direction.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r':
			return ' '
		case !unicode.IsGraphic(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, s)
}

// Template is the text of a target's notices.
type Template struct{ parsed *template.Template }

// ParseTemplate reads a template of Go's text/template, whose data is a [Notice]. It fails for one
// that no notice has a text for.
func ParseTemplate(s string) (*Template, error) {
	parsed, err := template.New("template").Parse(s)
	if err != nil {
		return nil, err
	}
	t := &Template{parsed}
	for _, n := range []Notice{{}, {Event: "dead_letter", Messages: 2, Attempts: 3, Error: "x", Owner: "x"}} {
		if _, err := t.Text(n, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Text returns the text of a notice. escape is that of [Notice.Line]: what the template itself says
// is not escaped.
func (t *Template) Text(n Notice, escape func(string) string) (string, error) {
	var b strings.Builder
	if err := t.parsed.Execute(&limited{&b, longestText}, n.cleaned(escape)); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(strings.TrimSpace(b.String()), "�"), nil
}

// limited keeps the beginning of what is written.
type limited struct {
	*strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	kept := p[:min(len(p), l.left)]
	l.left -= len(kept)
	_, _ = l.Builder.Write(kept) // it never fails
	return len(p), nil
}

// First returns the first bytes of a text, without a rune that the limit would cut in two.
func First(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(s[:limit-cutRune([]byte(s[:limit]))])
}

// Beginning returns the first bytes of a body: as text where they are UTF-8, without a
// rune that the cap would cut in two, and else in base64, so that none is changed.
func Beginning(body []byte, limit int) (text, encoded string) {
	head := body[:min(len(body), limit)]
	whole := head
	if len(head) < len(body) {
		whole = head[:len(head)-cutRune(head)]
	}
	if utf8.Valid(whole) {
		return string(whole), ""
	}
	return "", base64.StdEncoding.EncodeToString(head)
}

// cutRune returns the number of bytes at the end of head that begin a rune and do not
// end it.
func cutRune(head []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(head); n++ {
		if last := head[len(head)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
