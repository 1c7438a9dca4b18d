// Command matrix prints the table of what is verified on which version of RabbitMQ, as
// Markdown. It reads the results of the tests, DIR/VERSION.json, which go test -json has
// written, and prints each failed test on stderr too. DIR/none.json has those of the tests
// that need no broker.
//
//	go run ./internal/tools/matrix DIR [ABOUT]
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("usage: matrix DIR [ABOUT]")
	}
	paths, err := filepath.Glob(filepath.Join(args[0], "*.json"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no results in %s", args[0])
	}
	var runs []results
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		r, err := read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.version = strings.TrimSuffix(filepath.Base(path), ".json")
		for _, t := range r.tests {
			if t.outcome == failed {
				fmt.Fprintf(stderr, "== failed on RabbitMQ %s: %s\n%s", r.version, t.name, t.output)
			}
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b results) int { return compareVersions(a.version, b.version) })
	about := ""
	if len(args) == 2 {
		about = args[1]
	}
	return write(stdout, about, areas(), columns(runs))
}

// compareVersions puts 3.10.8 before 4.0.5 and 3.9 before 3.10, and no broker first.
func compareVersions(a, b string) int {
	numbers := func(v string) []int {
		var all []int
		for part := range strings.SplitSeq(v, ".") {
			n := 0
			_, _ = fmt.Sscanf(part, "%d", &n) // what is not a number counts as 0
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}
