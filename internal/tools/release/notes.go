package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// notes returns what the changelog says about a version: the section with its number, or, for what
// is not a tag, the unreleased one. Its links lead into the repository at that version.
func (r release) notes(changelog string) (string, error) {
	heading := r.version
	if r.described != "v"+r.version {
		heading = "Unreleased"
	}
	begin := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(heading) + `( .*)?\n`).FindStringIndex(changelog)
	if begin == nil {
		return "", fmt.Errorf("CHANGELOG.md has no section %q; rename the unreleased one", "## "+heading)
	}
	text, _, _ := strings.Cut(changelog[begin[1]:], "\n## ")
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("the section %q of CHANGELOG.md is empty", "## "+heading)
	}
	// A line break of the source is one of the page there.
	text = regexp.MustCompile(`([^\n])\n +([^ \n*-])`).ReplaceAllString(text, "$1 $2")
	text = regexp.MustCompile(`\]\(([A-Za-z][^):]*)\)`).
		ReplaceAllString(text, "](https://github.com/dlxctl/dlxctl/blob/"+r.commit+"/$1)")
	return text + "\n", nil
}

// writeNotes writes the notes of CHANGELOG.md into a file.
func (r release) writeNotes(name string) error {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	text, err := r.notes(string(changelog))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
