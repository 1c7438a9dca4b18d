// Package goldentest compares outputs with files that "make golden" writes.
package goldentest

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag of make golden: what tests get becomes what they want.
//
//nolint:gochecknoglobals // a flag of the test binary
var Update = flag.Bool("update", false, "write what the tests get as what they want")

// Check fails the test if a file has other contents than got. With -update it writes them.
func Check(tb testing.TB, path string, got []byte) {
	tb.Helper()
	if *Update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); d != "" {
		tb.Errorf("%s differs; run make golden (-want +got):\n%s", path, d)
	}
}
