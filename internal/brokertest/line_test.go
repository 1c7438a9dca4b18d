package brokertest_test

import (
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// On a push all lines together try each variant, and each line some; at night each tries all.
func TestShare(t *testing.T) { //nolint:paralleltest // it sets the environment
	for n := range 8 {
		var all, tried []int
		for i := range n {
			all = append(all, i)
		}
		for _, line := range []string{"3.10", "4.0", "4.3"} {
			t.Setenv("DLXCTL_TEST_LINE", line)
			t.Setenv("DLXCTL_TEST_LONG", "")
			share := brokertest.Share(all)
			if n > 0 && len(share) == 0 || n > 2 && len(share) > (n+2)/3 {
				t.Errorf("of %d, line %s tries %v", n, line, share)
			}
			tried = append(tried, share...)
			t.Setenv("DLXCTL_TEST_LONG", "1")
			if share := brokertest.Share(all); !slices.Equal(share, all) {
				t.Errorf("of %d, line %s tries %v each night", n, line, share)
			}
		}
		slices.Sort(tried)
		if !slices.Equal(slices.Compact(tried), all) {
			t.Errorf("of %d, the lines try %v", n, tried)
		}
	}
}
