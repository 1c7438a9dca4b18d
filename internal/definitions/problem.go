package definitions

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ProblemError is what is wrong at a place in a file, and what to do.
type ProblemError struct {
	File string
	// Line and Column count from 1. Zero is the whole file.
	Line, Column int
	// Text is "problem; fix".
	Text string
}

// Error returns "file:line:column: problem; fix".
func (p *ProblemError) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// place finds lines and columns in a file. It remembers the last place, so that a file is counted
// once: places are asked for in the order of the file, except for errors.
type place struct {
	file         string
	data         []byte
	offset, line int // the line of the last offset that was asked for, from 0
}

// lineAt returns the line of an offset, from 1.
func (p *place) lineAt(offset int) int {
	offset = min(max(offset, 0), len(p.data))
	if offset < p.offset {
		p.offset, p.line = 0, 0
	}
	p.line += bytes.Count(p.data[p.offset:offset], []byte("\n"))
	p.offset = offset
	return p.line + 1
}

func (p *place) problem(offset int, format string, args ...any) *ProblemError {
	offset = min(max(offset, 0), len(p.data))
	line := p.lineAt(offset)
	begin := bytes.LastIndexByte(p.data[:offset], '\n') + 1
	return &ProblemError{
		File: p.file, Line: line, Column: utf8.RuneCount(p.data[begin:offset]) + 1, Text: fmt.Sprintf(format, args...),
	}
}

// whole returns a problem of the whole file.
func (p *place) whole(format string, args ...any) *ProblemError {
	return &ProblemError{File: p.file, Text: fmt.Sprintf(format, args...)}
}

// exportFix says how to get a file that can be read.
const exportFix = "write one with 'rabbitmqctl export_definitions FILE' or 'curl -u USER http://HOST:15672/api/definitions'"

// listFix says how to get the list of a kind in full.
var listFix = map[string]string{ //nolint:gochecknoglobals // a table
	"queue":    "'rabbitmqctl --formatter json list_queues name type durable auto_delete exclusive arguments policy'",
	"exchange": "'rabbitmqctl --formatter json list_exchanges name type durable auto_delete internal arguments policy'",
	"binding":  "'rabbitmqctl --formatter json list_bindings'",
	"policy":   "'rabbitmqctl --formatter json list_policies'",
}

// notJSON recognizes files that are not JSON text, and says what to do.
func (p *place) notJSON() error {
	data := p.data
	head := strings.TrimLeft(string(data[:min(len(data), 512)]), " \t\r\n")
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return p.whole("the file is empty; %s", exportFix)
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		return p.whole("the file is compressed; decompress it first: gunzip -c %s > definitions.json", p.file)
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		return p.whole("the file is a ZIP archive; unpack it first")
	case bytes.HasPrefix(data, []byte{0x83}):
		return p.whole("the file is in Erlang's external term format; %s", exportFix)
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return p.whole("the file is UTF-16, as PowerShell writes it; write UTF-8: … | Out-File -Encoding utf8 definitions.json")
	case bytes.IndexByte(data, 0) >= 0:
		return p.whole("the file is not text; %s", exportFix)
	case strings.HasPrefix(head, "<"):
		return p.problem(bytes.IndexByte(data, '<'), "the file is a web page, not JSON; check the address and the credentials of the request")
	case strings.HasPrefix(head, "{") || strings.HasPrefix(head, "["):
		return nil
	}
	first, _, _ := strings.Cut(head, "\n")
	return p.notBracket(strings.TrimSpace(first))
}

// notBracket is the problem of a text that begins with neither { nor [.
func (p *place) notBracket(first string) error {
	shown := quoteShort(first)
	switch key, _, colon := strings.Cut(first, ":"); {
	case strings.HasPrefix(first, "---"), strings.HasPrefix(first, "#"), colon && !strings.ContainsAny(key, " \t\""):
		return p.problem(0, "the file is YAML, not JSON: %s; pass a topology file of dlxctl with -f", shown)
	case strings.Contains(first, "\t"):
		return p.problem(0, "the file is a table, not JSON: %s; run rabbitmqctl with --formatter json, rabbitmqadmin with -f raw_json", shown)
	case strings.HasPrefix(first, "Listing ") || strings.HasPrefix(first, "Timeout:"):
		return p.problem(0, "the file begins with a message of rabbitmqctl: %s; run it with --quiet --formatter json", shown)
	case strings.HasPrefix(first, "+--"), strings.HasPrefix(first, "|"):
		return p.problem(0, "the file is a table, not JSON: %s; run rabbitmqadmin with -f raw_json", shown)
	}
	return p.problem(0, "the file is not JSON: %s; %s", shown, exportFix)
}

// quoteShort quotes a value for a message.
func quoteShort(s string) string {
	const limit = 60
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
