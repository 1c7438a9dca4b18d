package topology

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/text"
)

// WriteText writes t for a person to read: a line for each object, grouped by
// kind, with its arguments, and with durations next to milliseconds. It prints the owner
// mark once, in the first line.
func WriteText(w io.Writer, t Compiled) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topology %s", t.Name)
	if t.VHost != "" {
		fmt.Fprintf(&b, " on vhost %s", t.VHost)
	}
	fmt.Fprintf(&b, "; everything dlxctl makes carries %s: %s\n", ArgManagedBy, OwnerMark(t.Name))

	group(&b, "exchange", t.Exchanges, func(e Exchange) []string {
		return line(e.Name, e.Type, role(e.Label), with(exchangeFlags(e), describe(e.Arguments)))
	})
	group(&b, "queue", t.Queues, func(q Queue) []string {
		return line(q.Name, q.Type(), role(q.Label), describe(q.Arguments.Without(ArgQueueType)))
	})
	group(&b, "binding", t.Bindings, func(b Binding) []string {
		destination := b.Destination
		if b.DestinationType == ToExchange {
			destination = "exchange:" + destination
		}
		return line(b.Source+" -> "+destination, b.Key, role(b.Label), describe(b.Arguments))
	})
	group(&b, "policy", t.Policies, func(p Policy) []string {
		return line(p.Name, p.Pattern, p.ApplyTo, describe(p.Definition))
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// group writes the objects of one kind below a heading that counts them.
func group[T any](b *strings.Builder, kind string, objects []T, describe func(T) []string) {
	if len(objects) == 0 {
		return
	}
	rows := text.Each(objects, describe)
	var table strings.Builder
	_ = text.Table{Rows: rows}.Write(&table, 0) // into memory: it cannot fail
	fmt.Fprintf(b, "\n%s\n", text.Count(len(objects), kind))
	for row := range strings.Lines(table.String()) {
		b.WriteString("  " + row)
	}
}

func line(cells ...string) []string {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	return cells
}

// Printable returns a text for a terminal, or for a log that is read by a program: control
// characters, and other runes that change what a terminal shows, are replaced by their codes.
func Printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s { // a byte that is not UTF-8 is U+FFFD
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// role returns what an object is for, and which backoff it belongs to.
func role(l Label) string {
	if l.Backoff != "" {
		return string(l.Role) + " " + l.Backoff
	}
	return string(l.Role)
}

func exchangeFlags(e Exchange) string {
	switch {
	case e.External:
		return "external"
	case e.Internal:
		return "internal"
	default:
		return ""
	}
}

// with joins two texts that may be empty.
func with(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// describe returns args without the mark: name=value, words without quotes.
func describe(args Arguments) string {
	var parts []string
	for _, name := range args.Without(ArgManagedBy).Names() {
		parts = append(parts, name+"="+describeValue(name, args[name]))
	}
	return strings.Join(parts, ", ")
}

func describeValue(name string, v any) string {
	switch v := v.(type) {
	case int64:
		if name == ArgMessageTTL {
			return fmt.Sprintf("%d (%s)", v, text.Millis(v))
		}
	case string:
		if word(v) {
			return v
		}
	}
	return FormatValue(v)
}

// word reports whether s can stand without quotes and not be taken for a
// number or for two values.
func word(s string) bool {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`,="`, r) }) {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err != nil && s != "true" && s != "false" && s != "null"
}
