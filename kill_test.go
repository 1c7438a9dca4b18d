package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// kills is how often TestApplyKilled kills.
const kills = 20

// lockFreed is within what time the lock of an apply is free that was killed or lost
// its connection: the broker first finishes what the connection had asked for.
const lockFreed = "20s"

// An apply is killed by SIGKILL wherever it happens to be. The lock is then free,
// and the next apply, of the same file or of the one before, makes the broker as
// one that nobody disturbed does, to the byte.
func TestApplyKilled(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	files := [2]string{manyQueues(t, "shop", 0, 300), manyQueues(t, "shop", 150, 450)}
	apply := func(i int) *process {
		return start(t, target, "apply", "--yes", "--allow", "drops-routing", "--lock-timeout", lockFreed, "-f", files[i])
	}

	var took time.Duration // from one file to the other, undisturbed
	var whole [2][]string  // what the broker then has
	for _, i := range []int{0, 1, 0} {
		began := time.Now()
		apply(i).exits(t, 0)
		took, whole[i] = time.Since(began), target.Definitions(t)
	}

	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same moments each time
	has, between := 0, 0
	for killed := 0; killed < kills; {
		// Spread evenly: one in each twentieth of the time.
		delay := time.Duration((float64(killed) + r.Float64()) / kills * float64(took))
		began := time.Now()
		p := apply(1 - has)
		if !p.killAfter(t, delay) { // it was done before: the machine has become faster
			p.exits(t, 0)
			took, has = time.Since(began), 1-has
			continue
		}
		killed++
		if left := target.Definitions(t); !slices.Equal(left, whole[0]) && !slices.Equal(left, whole[1]) {
			between++
		}

		has = r.IntN(2) // on, or back
		apply(has).exits(t, 0)
		start(t, target, "plan", "--detailed-exitcode", "-f", files[has]).exits(t, 0)
		if d := cmp.Diff(whole[has], target.Definitions(t)); d != "" {
			t.Fatalf("killed after %s, applied again: not as undisturbed (-undisturbed +now):\n%s", delay, d)
		}
	}
	if between < kills/2 {
		t.Errorf("only %d of %d kills came between the first write and the last", between, kills)
	}
	t.Logf("an apply takes %s; %d of %d kills came between its first write and its last",
		took.Round(time.Millisecond), between, kills)
}

// killAfter kills p after a while, and reports false if it had ended by itself.
func (p *process) killAfter(t *testing.T, delay time.Duration) bool {
	t.Helper()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-p.ended:
		return false
	case <-timer.C:
	}
	_ = p.Process.Kill() // it may have ended just now
	<-p.ended
	return p.ProcessState.ExitCode() == -1
}
