package decode

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// text reads the body as text if it is text: UTF-8 without control characters, or what the
// content type calls text.
func (r *reading) text(media string) bool {
	if strings.HasPrefix(media, "text/") || utf8.Valid(r.body) && controls(r.body) == 0 {
		r.Format, r.Text = Text, clean(string(r.body), false)
		return true
	}
	return false
}

// binary shows the body in hexadecimal, or as text if it is text but for a few control
// characters.
func (r *reading) binary(media string) {
	const few = 20 // one of so many characters
	if utf8.Valid(r.body) && controls(r.body) <= len(r.body)/few && !strings.Contains(string(r.body), "\x00") {
		r.Format, r.Text = Text, clean(string(r.body), false)
		return
	}
	r.Format, r.Text = Binary, hexadecimal(r.body)
	if len(r.body) > maxHex {
		r.note("the first %d of %d bytes are shown", maxHex, len(r.body))
	}
	if name := foreign(media, r.body); name != "" {
		r.note("%s is not decoded", name)
	}
}

// foreign names formats that dlxctl recognizes and does not decode.
func foreign(media string, body []byte) string {
	switch {
	case strings.HasPrefix(string(body), "\xac\xed\x00\x05"), media == "application/x-java-serialized-object":
		return "Java serialization"
	case media == "application/x-python-serialize", media == "application/x-python-pickle":
		return "Python pickle"
	case media == "application/msgpack", media == "application/x-msgpack", media == "application/vnd.msgpack":
		return "MessagePack"
	case strings.Contains(media, "avro"):
		return "Avro"
	}
	return ""
}

// hexadecimal shows the beginning of a body as hexadecimal and ASCII.
func hexadecimal(body []byte) string {
	return strings.TrimSuffix(hex.Dump(body[:min(len(body), maxHex)]), "\n")
}

// controls counts control characters other than line breaks and tabs.
func controls(body []byte) int {
	n := 0
	for _, b := range body {
		if b < ' ' && b != '\n' && b != '\r' && b != '\t' || b == 0x7f {
			n++
		}
	}
	return n
}

// clean makes a text safe to print: characters that control a terminal, change the direction
// of writing or break lines are shown as escapes. In JSON the escapes are those of JSON, so
// that the text means the same.
func clean(s string, json bool) string {
	if isClean(s) {
		return s
	}
	if !json {
		s = strings.ReplaceAll(s, "\r\n", "\n")
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1 && json:
			b.WriteString(`\ufffd`)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !harmful(r):
			b.WriteString(s[i : i+size])
		case json || r > 0xff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\x%02x`, r)
		}
		i += size
	}
	return b.String()
}

func isClean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, harmful) < 0
}

// harmful reports characters that are not printed as they are.
func harmful(r rune) bool {
	if r == '\n' || r == '\t' || r >= ' ' && r < 0x7f {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == '\ufeff'
}
