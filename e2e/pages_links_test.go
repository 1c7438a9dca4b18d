package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the Markdown files of the repository that readers open.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG"} {
		found = append(found, "../"+page+".md")
	}
	return found
}

// Each relative link of the pages leads to a file, and to a heading where it names one.
func TestLinksInThePages(t *testing.T) {
	t.Parallel()
	links := 0
	for _, page := range pages(t) {
		text, _ := proseOf(t, page)
		for _, found := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			file, heading, _ := strings.Cut(found[1], "#")
			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads to no file", page, found[1])
				continue
			}
			if heading != "" {
				if _, headings := proseOf(t, target); !headings[heading] {
					t.Errorf("%s: the link %s leads to no heading", page, found[1])
				}
			}
		}
	}
	if links < 60 {
		t.Errorf("only %d links were found", links)
	}
}

// Each page of docs/ is in the index.
func TestIndexOfThePages(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages(t) {
		name := filepath.Base(page)
		if filepath.Dir(page) == "../docs" && name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// Each file and folder that ARCHITECTURE.md and CONTRIBUTING.md name exists, so that a
// reader finds the place to change.
func TestPathsInThePages(t *testing.T) {
	t.Parallel()
	paths := 0
	for _, page := range []string{"../ARCHITECTURE.md", "../CONTRIBUTING.md"} {
		text, _ := proseOf(t, page)
		for _, found := range regexp.MustCompile("`([a-z0-9_.]+(?:/[a-z0-9_.{},]*)+)`").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(found[1], "testdata/") || strings.HasPrefix(found[1], "testing/") {
				continue // a folder of several packages, and a package of Go
			}
			paths++
			if _, err := os.Stat(filepath.Join("..", found[1])); err != nil {
				t.Errorf("%s: %s does not exist", page, found[1])
			}
		}
	}
	if paths < 20 {
		t.Errorf("only %d paths were found", paths)
	}
}

// Each test that the pages name exists, so that a promise leads to its proof.
func TestProofsInThePages(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		exists[filepath.Base(path)] = true
		data, err := os.ReadFile(path)
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(data, -1) {
			exists[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	proofs := 0
	for _, page := range pages(t) {
		text, _ := proseOf(t, page)
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz)\\w+|\\w+_test\\.go)`").FindAllStringSubmatch(text, -1) {
			proofs++
			if !exists[found[1]] {
				t.Errorf("%s names %s, which does not exist", page, found[1])
			}
		}
	}
	if proofs < 30 {
		t.Errorf("only %d tests were found", proofs)
	}
}

// proseOf returns a page without its blocks, and the names by which links reach its headings.
func proseOf(t *testing.T, page string) (text string, headings map[string]bool) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(string(data), "")
	headings = map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(found[1]), "")
		headings[strings.ReplaceAll(name, " ", "-")] = true
	}
	return text, headings
}
