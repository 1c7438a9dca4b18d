package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// column is a version, alone or as a cluster.
type column struct {
	title string
	tests []test
}

// columns separates the tests of a cluster from those on one node. A line without a test
// of a cluster has no column for it.
func columns(runs []results) []column {
	inCluster := regexp.MustCompile(cluster)
	var all []column
	for _, r := range runs {
		if r.version == "none" {
			all = append(all, column{title: "no broker", tests: r.tests})
			continue
		}
		one, three := column{title: r.version}, column{title: r.version + ", three nodes"}
		for _, t := range r.tests {
			switch {
			case !inCluster.MatchString(t.name):
				one.tests = append(one.tests, t)
			case t.outcome != skipped:
				three.tests = append(three.tests, t)
			}
		}
		all = append(all, one)
		if len(three.tests) > 0 {
			all = append(all, three)
		}
	}
	return all
}

// write writes the page.
func write(w io.Writer, about string, areas []area, columns []column) error {
	var b strings.Builder
	b.WriteString("# What is verified on which RabbitMQ\n\n")
	b.WriteString("`make matrix` writes this page from the results of the tests. A number is how many tests passed,\n")
	b.WriteString("each subtest counted. Tests run against real nodes of these versions, some on the newest alone.\n")
	b.WriteString("Tests that are newer than the commit below are not in it.\n\n")
	if about != "" {
		fmt.Fprintf(&b, "%s\n\n", about)
	}
	b.WriteString("| promise |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(columns)) + "\n")
	left := make([][]test, len(columns))
	for i, c := range columns {
		left[i] = c.tests
	}
	for _, a := range areas {
		cells := make([]string, len(columns))
		for i := range columns {
			var mine []test
			mine, left[i] = part(left[i], a)
			cells[i] = count(mine)
		}
		if strings.Join(cells, "") != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", a.promise, strings.Join(cells, " | "))
		}
	}
	b.WriteString("| **all** |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", count(c.tests))
	}
	b.WriteString("\n")
	writeList(&b, "Failed", failed, columns)
	writeList(&b, "Skipped", skipped, columns)
	_, err := io.WriteString(w, b.String())
	return err
}

func part(tests []test, a area) (mine, others []test) {
	for _, t := range tests {
		if a.has(t.name) {
			mine = append(mine, t)
		} else {
			others = append(others, t)
		}
	}
	return mine, others
}

// count returns the text of a cell; empty if there is no test.
func count(tests []test) string {
	n := map[outcome]int{}
	for _, t := range tests {
		n[t.outcome]++
	}
	var words []string
	if n[passed] > 0 {
		words = append(words, fmt.Sprint(n[passed]))
	}
	if n[failed] > 0 {
		words = append(words, fmt.Sprintf("**%d failed**", n[failed]))
	}
	if n[skipped] > 0 {
		words = append(words, fmt.Sprintf("%d skipped", n[skipped]))
	}
	return strings.Join(words, ", ")
}

// reason matches why a test skipped itself: the last line that names a file.
var reason = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: (.*)$`)

// fewNames is how many tests with one reason are named. More are counted.
const fewNames = 3

// width is how long a line of the page is at most.
const width = 100

// writeList names the tests that did not pass, with the reason of those that were
// skipped.
func writeList(b *strings.Builder, title string, wanted outcome, columns []column) {
	var lines []string
	for _, c := range columns {
		names, reasons := map[string][]string{}, []string{}
		for _, t := range c.tests {
			if t.outcome != wanted {
				continue
			}
			why := ""
			if found := reason.FindAllStringSubmatch(t.output, -1); wanted == skipped && found != nil {
				why = ": " + found[len(found)-1][1]
			}
			if names[why] == nil {
				reasons = append(reasons, why)
			}
			names[why] = append(names[why], t.name)
		}
		for _, why := range reasons {
			if len(names[why]) > fewNames && wanted == skipped {
				lines = append(lines, item(fmt.Sprintf("- %s, %d tests", c.title, len(names[why])), why))
				continue
			}
			for _, name := range names[why] {
				lines = append(lines, item(fmt.Sprintf("- %s: `%s`", c.title, name), why))
			}
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n## %s\n\n%s\n", title, strings.Join(slices.Compact(lines), "\n"))
	}
}

// item returns what begins with what and ends with why, on two lines if it is too long for one.
func item(what, why string) string {
	if len(what)+len(why) > width {
		why = strings.Replace(why, ": ", ":\n  ", 1)
	}
	return what + why
}
