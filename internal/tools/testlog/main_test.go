package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const events = `{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"    not shown\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":2}
{"Action":"output","Package":"m/a","Test":"TestBad/sub","Output":"    a_test.go:3: lost 1\n"}
{"Action":"output","Package":"m/a","Test":"TestBad/sub","Output":"    --- FAIL: TestBad/sub (1.00s)\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad/sub","Elapsed":1}
{"Action":"output","Package":"m/a","Test":"TestBad","Output":"--- FAIL: TestBad (3.00s)\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad","Elapsed":3}
{"Action":"output","Package":"m/a","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a\t4s\n"}
{"Action":"fail","Package":"m/a","Elapsed":4}
{"ImportPath":"m/b","Action":"build-output","Output":"b.go:1: no\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b [build failed]\n"}
{"Action":"fail","Package":"m/b","Elapsed":0,"FailedBuild":"m/b"}
go: warning
{"Action":"output","Package":"m/c","Test":"TestNot","Output":"    c_test.go:3: no history\n"}
{"Action":"output","Package":"m/c","Test":"TestNot","Output":"--- SKIP: TestNot (0.00s)\n"}
{"Action":"skip","Package":"m/c","Test":"TestNot","Elapsed":0}
{"Action":"output","Package":"m/c","Output":"PASS\n"}
{"Action":"output","Package":"m/c","Output":"ok  \tm/c\t1s\n"}
{"Action":"pass","Package":"m/c","Elapsed":1}
`

// What failed, what did not end and what was not built is shown, and why a test was skipped; what
// passed is not.
func TestRun(t *testing.T) {
	t.Parallel()
	const want = `--- FAIL: TestBad/sub (1.00s)
    a_test.go:3: lost 1
--- FAIL: TestBad (3.00s)
--- FAIL: TestHangs
panic: test timed out
FAIL	m/a	4s
b.go:1: no
FAIL	m/b [build failed]
go: warning
ok  	m/c	1s
slowest tests:
    2.0 s  a TestGood
    1.0 s  a TestBad/sub
skipped tests:
      1    no history
FAIL	m/a	4s
FAIL	m/b [build failed]
ok  	m/c	1s
`
	var got strings.Builder
	if err := run(strings.NewReader(events), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}
