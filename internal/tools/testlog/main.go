// Command testlog reads the output of go test -json and prints what go test prints without it: a
// line for each package, and before it what its failed tests wrote. At the end it prints the
// slowest tests, why others were skipped, and then the lines of the packages again: the last lines
// tell the result.
//
//	go test -json ./... | go run ./internal/tools/testlog
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// slowest is how many tests are listed at the end.
const slowest = 10

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string

	Elapsed float64 // seconds, without the time in which a test waits for its turn
}

// key is a test of a package.
type key struct{ pkg, test string }

// log is what has been read.
type log struct {
	w        io.Writer
	written  map[key]string // by tests that have not passed
	took     map[key]float64
	parents  map[key]bool   // tests that have subtests
	skipped  map[string]int // how many tests, by reason
	packages []string       // the line of each package
}

func run(r io.Reader, w io.Writer) error {
	l := &log{w: w, written: map[key]string{}, took: map[key]float64{}, parents: map[key]bool{}, skipped: map[string]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(w, lines.Text()) // of the go command itself
			continue
		}
		l.add(e)
	}
	l.end()
	return lines.Err()
}

func (l *log) add(e event) {
	k := key{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(l.w, e.Output)
	case e.Test == "":
		l.addPackage(e)
	case e.Action == "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			l.written[k] += e.Output
		}
	case e.Action == "skip":
		l.skipped[reason(l.written[k])]++
		delete(l.written, k)
	case e.Action == "pass":
		delete(l.written, k)
		l.took[k] = e.Elapsed
	case e.Action == "fail":
		l.show(k)
		l.took[k] = e.Elapsed
	}
	for i, c := range e.Test {
		if c == '/' {
			l.parents[key{e.Package, e.Test[:i]}] = true
		}
	}
}

// addPackage prints what a package prints in addition to its tests. When the package fails, the
// tests that have not ended failed too.
func (l *log) addPackage(e event) {
	result := strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t")
	if e.Action == "fail" || result {
		for k := range l.written {
			if k.pkg == e.Package {
				l.show(k)
			}
		}
	}
	if result {
		l.packages = append(l.packages, e.Output)
	}
	if e.Action == "output" && e.Output != "PASS\n" {
		fmt.Fprint(l.w, e.Output)
	}
}

// show prints what a failed test wrote, its result first, as go test does.
func (l *log) show(k key) {
	result, rest := "--- FAIL: "+k.test+"\n", ""
	for line := range strings.Lines(l.written[k]) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "--- FAIL: ") {
			result = strings.TrimLeft(line, " ")
		} else {
			rest += line
		}
	}
	fmt.Fprint(l.w, result, rest)
	delete(l.written, k)
}

// said is the place in front of what a test says.
var said = regexp.MustCompile(`^ *\w+\.go:\d+: `)

// reason returns the first that a skipped test has said: a script says more at its end.
func reason(written string) string {
	for line := range strings.Lines(written) {
		if place := said.FindString(line); place != "" {
			return strings.TrimSpace(line[len(place):])
		}
	}
	return "without a reason"
}

func (l *log) end() {
	var tests []key
	for k := range l.took {
		if !l.parents[k] {
			tests = append(tests, k)
		}
	}
	slices.SortFunc(tests, func(a, b key) int {
		return cmp.Or(cmp.Compare(l.took[b], l.took[a]), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
	fmt.Fprintln(l.w, "slowest tests:")
	for _, k := range tests[:min(slowest, len(tests))] {
		fmt.Fprintf(l.w, "%7.1f s  %s %s\n", l.took[k], k.pkg[strings.LastIndexByte(k.pkg, '/')+1:], k.test)
	}
	if len(l.skipped) > 0 {
		fmt.Fprintln(l.w, "skipped tests:")
	}
	for _, why := range slices.Sorted(maps.Keys(l.skipped)) {
		fmt.Fprintf(l.w, "%7d    %s\n", l.skipped[why], why)
	}
	fmt.Fprint(l.w, strings.Join(l.packages, ""))
}
