package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The longest lines, in characters; a tab counts as one.
const (
	proseColumns = 100
	codeColumns  = 120
)

// passage is a piece of text, and where it begins.
type passage struct {
	text         string
	line, column int
}

// problem is a finding.
type problem struct {
	file         string
	line, column int
	text         string
}

func (p problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.file, p.line, p.column, p.text)
}

// check returns what is wrong with a file, by line. A Go file that cannot be parsed is an error.
func check(file, text string, rules []compiled) ([]problem, error) {
	var found []problem
	passages := lines(text)
	if strings.HasSuffix(file, ".go") {
		var err error
		if passages, err = goPassages(file, text); err != nil {
			return nil, err
		}
	}
	for _, p := range passages {
		for _, r := range rules {
			for _, at := range r.in(p.text) {
				line, column := p.line, p.column
				if before := p.text[:at[0]]; strings.Contains(before, "\n") {
					line += strings.Count(before, "\n")
					column = 1 + utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:])
				} else {
					column += utf8.RuneCountInString(before)
				}
				found = append(found, problem{file, line, column, fmt.Sprintf("%q: write %s", p.text[at[0]:at[1]], r.write)})
			}
		}
	}
	found = append(found, long(file, text, passages)...)
	found = append(found, full(file, text)...)
	slices.SortStableFunc(found, func(a, b problem) int {
		return cmp.Or(a.line-b.line, a.column-b.column)
	})
	return found, nil
}

// lines returns each line of a file that is no Go.
func lines(text string) []passage {
	var out []passage
	for i, line := range strings.Split(text, "\n") {
		out = append(out, passage{line, i + 1, 1})
	}
	return out
}

// goPassages returns the comments and the strings of a Go file, and its names as words:
// dropsRouting is "drops Routing". A name is given once, where it is first.
func goPassages(file, text string) ([]passage, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []passage
	add := func(text string, at token.Pos) {
		p := files.Position(at)
		out = append(out, passage{text, p.Line, p.Column})
	}
	for _, group := range tree.Comments {
		for _, comment := range group.List {
			add(comment.Text, comment.Pos())
		}
	}
	names := map[string]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				add(n.Value, n.Pos())
			}
		case *ast.Ident:
			if !names[n.Name] {
				names[n.Name] = true
				add(words(n.Name), n.Pos())
			}
		}
		return true
	})
	return out, nil
}

// words splits a name at its capitals and underscores. It keeps no positions: a finding
// in a name is reported near it.
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '_':
			b.WriteByte(' ')
			continue
		case unicode.IsUpper(r) && i > 0:
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// comment matches a line of Go that is a comment and nothing else.
var comment = regexp.MustCompile(`^\s*//`)

// literal matches a long string of Go, which stays in one piece so that it can be searched for.
var literal = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.){60,}\"|`[^`]{60,}`")

// unbreakable reports whether the line of Markdown may be long: a table, a link, code, or
// an address.
func unbreakable(line string) bool {
	trimmed := strings.TrimLeft(line, " >-*")
	return strings.HasPrefix(trimmed, "|") || strings.HasPrefix(line, "    ") || strings.Contains(line, "](") ||
		strings.Contains(line, "://")
}

// cellWords is how many words a cell of a table has at most.
const cellWords = 25

// full returns the cells of the tables of a page that have too many words. The reference, which is
// written from help and rules, is left out.
func full(file, text string) []problem {
	if filepath.Ext(file) != ".md" || strings.Contains(file, "testdata/") || strings.Contains(file, "docs/rules/") ||
		strings.Contains(text, "`make golden` writes this page") {
		return nil
	}
	var found []problem
	for i, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, ""), "|") {
			if n := len(strings.Fields(cell)); n > cellWords {
				found = append(found, problem{file, i + 1, 1, fmt.Sprintf("a cell of %d words: at most %d", n, cellWords)})
			}
		}
	}
	return found
}

// conflict matches a line by which git marks a conflict of a merge.
var conflict = regexp.MustCompile(`^(<{7}|>{7}) `)

// suppressed matches a directive for linters at the end of a line of Go.
var suppressed = regexp.MustCompile(`\s*//nolint:.*$`)

// long returns the lines of Go and Markdown that are too long. Lines within a string of several
// lines are text of another format, and so is a generated page.
func long(file, text string, passages []passage) []problem {
	kind := filepath.Ext(file)
	if kind != ".go" && kind != ".md" {
		return nil
	}
	generated := strings.Contains(text, "`make golden` writes this page") || strings.Contains(file, "testdata/")
	if kind == ".md" && generated {
		return nil
	}
	within := map[int]bool{}
	for _, p := range passages {
		if strings.HasPrefix(p.text, "`") {
			for i := range strings.Count(p.text, "\n") {
				within[p.line+i+1] = true
			}
		}
	}
	var found []problem
	inBlock := false
	for i, line := range strings.Split(text, "\n") {
		if kind == ".md" && conflict.MatchString(line) {
			found = append(found, problem{file, i + 1, 1, "a merge has left this mark: choose a side"})
		}
		if kind == ".md" && strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			inBlock = !inBlock
		}
		limit := proseColumns
		switch {
		case kind == ".go" && !comment.MatchString(line):
			if within[i+1] {
				continue
			}
			limit = codeColumns
			line = suppressed.ReplaceAllString(line, "")
			line = literal.ReplaceAllString(line, `""`)
		case kind == ".go" && strings.Contains(line, "://"), kind == ".md" && (inBlock || unbreakable(line)):
			continue
		}
		if n := utf8.RuneCountInString(line); n > limit {
			found = append(found, problem{file, i + 1, limit + 1, fmt.Sprintf("%d characters: break the line at %d", n, limit)})
		}
	}
	return found
}
