package topology_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

// A pattern of queues can be read back, and matches these queues alone.
func TestQueuesPattern(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[a-c.|()\\^$:?*+\[\]{}é-]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		names, other := rapid.SliceOfN(name, 1, 5).Draw(t, "names"), name.Draw(t, "other")
		pattern := topology.QueuesPattern(names)
		want := slices.Compact(slices.Sorted(slices.Values(names)))
		if d := cmp.Diff(want, topology.PatternQueues(pattern)); d != "" {
			t.Fatalf("%s (-want +got):\n%s", pattern, d)
		}
		if got := regexp.MustCompile(pattern).MatchString(other); got != slices.Contains(names, other) {
			t.Fatalf("%s matches %q: %t", pattern, other, got)
		}
	})
	for _, pattern := range []string{"", ".*", "^a", "a$", "^(?:b|a)$", "^(?:a)$", "^a.b$", "^(?!)$", "(?!)"} {
		if got := topology.PatternQueues(pattern); got != nil {
			t.Errorf("the pattern %q, which QueuesPattern does not make, gives %q", pattern, got)
		}
	}
}

func TestProtectionName(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"ttl-all", "a.b.c", "7", "", "with / and space"} {
		name := topology.ProtectionName("shop", topology.RoleDeadLetter, 12, base)
		role, n, got, ok := topology.ProtectionOf("shop", name)
		if !ok || role != topology.RoleDeadLetter || n != 12 || got != base {
			t.Errorf("%q gives %q, %d, %q, %t", name, role, n, got, ok)
		}
		if owner, generated := topology.PolicyOwner(name); !generated || owner != "shop" {
			t.Errorf("%q belongs to %q, %t", name, owner, generated)
		}
		if _, _, _, ok := topology.ProtectionOf("mail", name); ok || topology.IsSwitchName("shop", name) {
			t.Errorf("%q is taken for something else", name)
		}
	}
	for _, name := range []string{
		"dlxctl.shop.queue.protect.dead.1.x", "dlxctl.shop.protect.dead.x.y",
		"dlxctl.shop.protect.dead.0.y", "dlxctl.shop.protect", "shop.protect.dead.1.x",
	} {
		if _, _, _, ok := topology.ProtectionOf("shop", name); ok {
			t.Errorf("%q is taken for a protection", name)
		}
	}
}
