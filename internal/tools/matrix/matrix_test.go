package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sources returns the names of all tests of the module, as the results name them.
func sources(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("../../..", filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := packageName(strings.TrimSuffix(module+"/"+filepath.ToSlash(dir), "/."))
		declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
		for _, found := range declared.FindAllStringSubmatch(string(data), -1) {
			names = append(names, pkg+"."+found[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 200 {
		t.Fatalf("only %d tests were found", len(names))
	}
	return names
}

// Each expression of each area names a test that no area before it has: a promise does
// not lose its test when that test is renamed.
func TestEachExpressionNamesATest(t *testing.T) {
	t.Parallel()
	left := sources(t)
	for _, a := range areas() {
		for _, expr := range a.tests {
			if expr != "" && !slices.ContainsFunc(left, regexp.MustCompile(expr).MatchString) {
				t.Errorf("%q: %s names no test", a.promise, expr)
			}
		}
		left = slices.DeleteFunc(left, a.has)
	}
	if len(left) > 0 {
		t.Errorf("%q are in no area", left)
	}
}

// So does each name in the expressions' parentheses.
func TestEachNameOfAnExpressionNamesATest(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, a := range areas() {
		for _, expr := range a.tests {
			open := strings.LastIndex(expr, "(")
			if open < 0 || !strings.HasSuffix(expr, ")") {
				continue
			}
			for name := range strings.SplitSeq(strings.TrimSuffix(expr[open+1:], ")"), "|") {
				if one := regexp.MustCompile(expr[:open] + "(" + name + ")"); !slices.ContainsFunc(all, one.MatchString) {
					t.Errorf("%q: %s in %s names no test", a.promise, name, expr)
				}
			}
		}
	}
}

// oneRun is the output of go test -json for a run with failures.
func oneRun() string { return strings.ReplaceAll(oneRunOfModule, "MODULE", module) }

const oneRunOfModule = `{"Action":"start","Package":"MODULE/internal/processor"}
{"Action":"run","Package":"MODULE/internal/processor","Test":"TestOutages"}
{"Action":"pass","Package":"MODULE/internal/processor","Test":"TestOutages/kill"}
{"Action":"output","Package":"MODULE/internal/processor","Test":"TestOutages/stop","Output":"    a_test.go:3: lost 1\n"}
{"Action":"fail","Package":"MODULE/internal/processor","Test":"TestOutages/stop"}
{"Action":"fail","Package":"MODULE/internal/processor","Test":"TestOutages"}
{"Action":"output","Package":"MODULE/internal/processor","Test":"TestACluster","Output":"    c_test.go:3: on 4.3\n"}
{"Action":"skip","Package":"MODULE/internal/processor","Test":"TestACluster"}
{"Action":"output","Package":"MODULE/internal/processor","Test":"TestSoak","Output":"    b_test.go:3: not asked for\n"}
{"Action":"skip","Package":"MODULE/internal/processor","Test":"TestSoak"}
{"Action":"fail","Package":"MODULE/internal/processor"}
{"Action":"pass","Package":"MODULE/e2e","Test":"TestEachChange/a/b"}
{"Action":"fail","Package":"MODULE/e2e","Test":"TestEachChange"}
{"Action":"run","Package":"MODULE/e2e","Test":"TestScripts"}
{"Action":"fail","Package":"MODULE/e2e"}
{"ImportPath":"MODULE/internal/broker","Action":"build-output","Output":"no"}
{"Action":"fail","Package":"MODULE/internal/broker","FailedBuild":"MODULE/internal/broker"}
{"Action":"skip","Package":"MODULE/internal/demo"}
`

// A failure is counted once, wherever it is: in a subtest, in a test outside its
// subtests, in the build, or in a test that did not end.
func TestRead(t *testing.T) {
	t.Parallel()
	r, err := read(strings.NewReader(oneRun()))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]outcome{}
	for _, found := range r.tests {
		got[found.name] = found.outcome
	}
	want := map[string]outcome{
		"processor.TestOutages/kill": passed,
		"processor.TestOutages/stop": failed,
		"processor.TestACluster":     skipped,
		"processor.TestSoak":         skipped,
		"e2e.TestEachChange":         failed,
		"e2e.TestEachChange/a/b":     passed,
		"e2e.TestScripts":            failed,
		"broker.(package)":           failed,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := read(strings.NewReader("ok\n")); err == nil {
		t.Error("the output of go test without -json is accepted")
	}
}

// The page has a column for the tests without a broker, one for each version, in order, and one
// for the cluster where there was one; it names what failed, and why something was skipped.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for version, text := range map[string]string{
		"4.3.6": strings.Replace(oneRun(), `"skip","Package":"github.com/dlxctl/dlxctl/internal/processor","Test":"TestAC`,
			`"pass","Package":"github.com/dlxctl/dlxctl/internal/processor","Test":"TestAC`, 1),
		"3.10.8": oneRun(),
		"none":   `{"Action":"pass","Package":"github.com/dlxctl/dlxctl/internal/retry","Test":"TestDecide"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, version+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var page, complaints strings.Builder
	if err := run([]string{dir, "Commit abc."}, &page, &complaints); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n\nCommit abc.\n\n",
		"| promise | no broker | 3.10.8 | 4.3.6 | 4.3.6, three nodes |\n",
		"| processor: no message is lost, whatever fails |  | 1, **1 failed**, 1 skipped | 1, **1 failed**, 1 skipped | 1 |\n",
		"| **all** | 1 | 2, **4 failed**, 1 skipped | 2, **4 failed**, 1 skipped | 1 |\n",
		"- 3.10.8: `broker.(package)`\n",
		"- 4.3.6: `processor.TestSoak`: not asked for\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q:\n%s", want, &page)
		}
	}
	if !strings.Contains(complaints.String(),
		"== failed on RabbitMQ 4.3.6: processor.TestOutages/stop\n    a_test.go:3: lost 1\n") {
		t.Errorf("what failed is not shown:\n%s", &complaints)
	}
}
