package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 21)
	for _, c := range []struct {
		name, file, text string
		want             []string
	}{
		{"a page", "docs/a.md", "The policy\nis in force.\n", []string{`docs/a.md:2:4: "in force": write in effect`}},
		{
			"two in a line", "a.txtar", "it outranks ours\n",
			[]string{
				`a.txtar:1:4: "outranks": write override`,
				`a.txtar:1:13: "ours": write the noun: dlxctl's objects, the other team's policy`,
			},
		},
		{"a word inside another", "a.md", "hours and behindhand\n", nil},
		{"capitals", "a.md", "In Force\n", []string{`a.md:1:1: "In Force": write in effect`}},
		{"an exception", "a.md", "each dead letter, and capital letters\n", nil},
		{"no exception", "a.md", "each letter\n", []string{`a.md:1:6: "letter": write dead letter, or message`}},
		{
			"a comment", "a.go", "package a\n\n// It goes on\n// for ever.\nvar x int\n",
			[]string{`a.go:4:4: "for ever": write forever`},
		},
		{
			"a string", "a.go", "package a\n\nconst x = `one\ntwo beside three`\n",
			[]string{`a.go:4:5: "beside": write next to, with, or in addition to`},
		},
		{"a name", "a.go", "package a\n\nfunc inForce() {}\n", []string{`a.go:3:6: "in Force": write in effect`}},
		{
			"a doc comment", "a.go", "package a\n\n// x gives a number.\nvar x int // what it gives\n",
			[]string{`a.go:3:1: "// x gives": write returns, in a doc comment`},
		},
		{"an import", "a.go", "package a\n\nimport _ \"example.com/ladder\"\n", nil},
		{"long prose", "a.md", long + "\n", []string{"a.md:1:101: 105 characters: break the line at 100"}},
		{"a conflict", "a.md", "<<<<<<< HEAD\n", []string{"a.md:1:1: a merge has left this mark: choose a side"}},
		{"a long row of a table", "a.md", "| " + long + "\n", nil},
		{"a full cell", "a.md", "| a | " + long + long + " |\n", []string{"a.md:1:1: a cell of 42 words: at most 25"}},
		{"a long line in a block", "a.md", "```\n" + long + "\n```\n", nil},
		{
			"a long comment", "a.go", "package a\n\n// " + long + "\nvar x int\n",
			[]string{"a.go:3:101: 108 characters: break the line at 100"},
		},
		{"a long string stays in one piece", "a.go", "package a\n\nconst x = \"" + long + "\\\"" + long + "\"\n", nil},
		{
			"long code", "a.go", "package a\n\nvar _ = []int{" + strings.Repeat("1234, ", 20) + "1}\n",
			[]string{"a.go:3:121: 136 characters: break the line at 120"},
		},
		{"code may be longer", "a.go", "package a\n\nconst x = \"" + long[:90] + "\"\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			problems, err := check(c.file, c.text, compile(rules()))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := check("a.go", "no Go", nil); err == nil {
		t.Error("a file that is no Go is checked")
	}
}

// Each phrase of the list is found, and what is written in its place is not banned itself.
func TestRules(t *testing.T) {
	t.Parallel()
	list := compile(rules())
	for _, r := range list {
		for _, other := range list {
			if at := other.in(strings.ReplaceAll(r.write, "dead letter", "")); len(at) > 0 {
				t.Errorf("%q: the replacement %q has a phrase of %q", r.banned, r.write, other.banned)
			}
		}
	}
}
