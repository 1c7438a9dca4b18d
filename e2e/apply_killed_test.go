package e2e_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// SIGKILL ends an apply at any point. The lock is then free, and the next apply, of the same file
// or of the previous one, leaves the broker byte for byte as an uninterrupted apply does.
func TestApplyKilled(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	// More changes in a phase than are carried out at a time.
	files := [2]string{manyQueues(t, "shop", 0, 48), manyQueues(t, "shop", 24, 72)}
	apply := func(i int) *process {
		return start(t, target, "apply", "--yes", "--allow", "drops-routing", "--lock-timeout", lockFreed, "-f", files[i])
	}

	var took time.Duration // from one file to the other, uninterrupted
	var whole [2][]string  // what the broker holds then
	for _, i := range []int{0, 1, 0} {
		began := time.Now()
		apply(i).exits(t, 0)
		took, whole[i] = time.Since(began), target.Definitions(t)
	}

	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same moments each time
	has, between := 0, 0
	killed := 0
	kills := brokertest.Rounds(8, 20)
	mostKills := 3 * kills // where the machine is slow, an apply spends most of its time before its first write
	for killed < kills || between < kills/2 && killed < mostKills {
		// The kills are spread evenly over the time that an apply takes.
		delay := time.Duration((float64(killed%kills) + r.Float64()) / float64(kills) * float64(took))
		began := time.Now()
		p := apply(1 - has)
		if !p.killAfter(t, delay) { // it ended before: the machine has become faster
			p.exits(t, 0)
			took, has = time.Since(began), 1-has
			continue
		}
		killed++
		if left := target.Definitions(t); !slices.Equal(left, whole[0]) && !slices.Equal(left, whole[1]) {
			between++
		}

		has = r.IntN(2) // finish the change, or revert it
		// A request of the killed apply may still be on its way in a busy broker, and be carried out
		// after this apply has read what the broker has: then it says so.
		again := apply(has)
		<-again.ended
		if strings.Contains(again.stderr.String(), "another client may be changing it") {
			again = apply(has)
		}
		again.exits(t, 0)
		start(t, target, "plan", "--detailed-exitcode", "-f", files[has]).exits(t, 0)
		if d := cmp.Diff(whole[has], target.Definitions(t)); d != "" {
			t.Fatalf("killed after %s and applied again, the broker differs (-uninterrupted +now):\n%s", delay, d)
		}
	}
	if between < kills/2 {
		t.Errorf("only %d of %d kills hit between the first write and the last", between, killed)
	}
	t.Logf("an apply takes %s; %d of %d kills hit between its first write and its last",
		took.Round(time.Millisecond), between, killed)
}
