package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// Who only looks needs the tag management and permissions for nothing, of which
// the broker wants to have been told.
func TestReadersNeedNothing(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := legacyStage(t, target, "quorum", "old")
	reader, nobody := target.User(t, "management", "^$", "^$", "^$"), target.User(t, "", "^$", "^$", "^$")
	saved := filepath.Join(t.TempDir(), "plan.json")
	for _, args := range [][]string{
		{"plan"}, {"plan", "--save", saved}, {"plan", "-o", "json"}, {"status"}, {"migrate", "status"}, {"migrate", "--dry-run"},
	} {
		before := target.Definitions(t)
		if code, out := dlxctl(reader, append(args, "-f", file)...); code != 0 {
			t.Errorf("%q exits with %d:\n%s", args, code, out)
		}
		if code, out := dlxctl(nobody, append(args, "-f", file)...); code != 1 || !strings.Contains(out, "lacks the tag management") {
			t.Errorf("%q without the tag exits with %d:\n%s", args, code, out)
		}
		if d := cmp.Diff(before, target.Definitions(t)); d != "" {
			t.Errorf("%q writes (-before +after):\n%s", args, d)
		}
	}
	for _, args := range [][]string{{"apply", "--yes"}, {"migrate", "--yes"}} {
		before := target.Definitions(t)
		if code, out := dlxctl(reader, append(args, "-f", file)...); code != 1 || !strings.Contains(out, `may not declare the queue "shop.lock"`) {
			t.Errorf("%q by a reader exits with %d:\n%s", args, code, out)
		}
		if d := cmp.Diff(before, target.Definitions(t)); d != "" {
			t.Errorf("%q writes (-before +after):\n%s", args, d)
		}
	}
	for _, args := range [][]string{{"validate"}, {"compile"}, {"rights"}} {
		if code, out := dlxctl(nobody, append(args, "-f", file)...); code != 0 {
			t.Errorf("%q exits with %d:\n%s", args, code, out)
		}
	}
}
