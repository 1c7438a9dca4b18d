// Words checks the language of the repository: it reports each phrase of the word list
// ([rules]) in comments, strings, names, pages, samples, scripts and expected outputs, and
// each line that is too long. It is run by "make lint".
//
//	go run ./internal/tools/words [FILE...]
//
// Without files it checks all that git tracks. A finding is one line,
// FILE:LINE:COLUMN: "phrase": write REPLACEMENT, and the program exits with 1.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	found, err := run(os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	case found > 0:
		fmt.Fprintf(os.Stderr, "words: %d findings; internal/tools/words/rules.go holds the list\n", found)
		os.Exit(1)
	}
}

// run checks the files, or all tracked ones, and returns the number of findings.
func run(files []string, out io.Writer) (int, error) {
	if len(files) == 0 {
		listed, err := exec.Command("git", "ls-files", "-z").Output() //nolint:noctx // ends by itself
		if err != nil {
			return 0, fmt.Errorf("git ls-files: %w", err)
		}
		files = strings.Split(strings.TrimRight(string(listed), "\x00"), "\x00")

	}
	rules, found := compile(rules()), 0
	for _, file := range files {
		if skipped(file) {
			continue
		}
		data, err := os.ReadFile(file) //nolint:gosec // the caller names the files
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return found, err
		}
		problems, err := check(file, string(data), rules)
		if err != nil {
			return found, err
		}
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		found += len(problems)
	}
	return found, nil
}

// skipped reports whether the file is no prose of the project: a license, the schema of a
// standard, a list of sums, test input, a picture, the history, or the word list itself.
func skipped(file string) bool {
	switch filepath.Base(file) {
	case "LICENSE", "NOTICE", "go.sum", "tools.sum", "go.mod", "tools.mod", "CHANGELOG.md":
		return true
	}
	if strings.Contains(file, "internal/tools/words/") || strings.HasPrefix(filepath.Base(file), "sarif-schema") {
		return true
	}
	for part := range strings.SplitSeq(filepath.ToSlash(file), "/") {
		if slices.Contains([]string{"fuzz", "real", "genomics", "images"}, part) { // inputs and pictures
			return true
		}
	}
	return false
}
