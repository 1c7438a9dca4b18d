package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// outcome is how a test ended. The zero value is one that did not end.
type outcome int

const (
	unfinished outcome = iota
	passed
	failed
	skipped
)

// test is a test that ran, or a subtest without subtests of its own.
type test struct {
	// name is package and test, as in processor.TestOutages/kill.
	name    string
	outcome outcome
	output  string
}

// results are those of one run on one version of RabbitMQ.
type results struct {
	version string
	tests   []test // by name
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

const module = "github.com/dlxctl/dlxctl"

// read reads the output of go test -json. A test that has subtests counts only if
// it failed and none of them did. A package that failed though no test of it did
// counts as one, and so does a test that did not end.
func read(r io.Reader) (results, error) {
	tests := map[string]*test{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return results{}, fmt.Errorf("not the output of go test -json: %w", err)
		}
		if e.Package == "" {
			continue // of the build; the package fails too
		}
		name := packageName(e.Package) + "." + e.Test
		if e.Test == "" {
			name += "(package)"
		}
		t := tests[name]
		if t == nil {
			t = &test{name: name}
			tests[name] = t
		}
		switch e.Action {
		case "output":
			t.output += e.Output
		case "pass":
			t.outcome = passed
		case "fail":
			t.outcome = failed
		case "skip":
			t.outcome = skipped
		}
	}
	return results{tests: leaves(tests)}, lines.Err()
}

// packageName is the package's path below the module, or below internal/ there.
func packageName(path string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	return strings.TrimPrefix(name, "internal/")
}

// leaves returns the tests that count, by name.
func leaves(all map[string]*test) []test {
	parents, failedBelow := map[string]bool{}, map[string]bool{}
	for name, t := range all {
		if t.outcome == unfinished {
			t.outcome = failed
		}
		pkg, _, _ := strings.Cut(name, ".Test")
		pkg, _, _ = strings.Cut(pkg, ".Fuzz")
		above := []string{pkg + ".(package)"}
		for i := range name {
			if name[i] == '/' && i > len(pkg) {
				above = append(above, name[:i])
			}
		}
		for _, p := range above {
			if p == name {
				continue
			}
			parents[p] = true
			failedBelow[p] = failedBelow[p] || t.outcome == failed
		}
	}
	var found []test
	for name, t := range all {
		switch {
		case strings.HasSuffix(name, ".(package)") && t.outcome != failed: // the package ran, or has no tests
		case parents[name] && (t.outcome != failed || failedBelow[name]):
		default:
			found = append(found, *t)
		}
	}
	slices.SortFunc(found, func(a, b test) int { return strings.Compare(a.name, b.name) })
	return found
}
