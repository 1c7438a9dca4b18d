package spectest

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// Linear fails if work on a topology of 12,000 work queues takes more than five times as long as
// compiling it, which is linear. What searches all of them for each of them takes longer. Only the
// processor time of this thread counts, and of that the quickest runs: other jobs slow down single
// ones, and small topologies fit in the caches of a processor.
func Linear(t *testing.T, work func(topology.Compiled)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file := queues(12_000)
	var c topology.Compiled
	took := func(f func()) time.Duration {
		runtime.GC() // what was left before is not part of it
		began := processorTime(t)
		f()
		return processorTime(t) - began
	}
	const tries, most = 4, 5
	compiling := took(func() { c = Compile(t, file) })
	working := took(func() { work(c) })
	for try := 1; try < tries && working > most*compiling; try++ {
		working = min(working, took(func() { work(c) }))
	}
	if working > most*compiling {
		t.Errorf("it takes %s, and to compile the file takes %s", working, compiling)
	}
	t.Logf("%s, and %s to compile the file", working, compiling)
}

// processorTime returns how long this thread has computed.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	const thisThread = 1 // RUSAGE_THREAD, of Linux
	var used syscall.Rusage
	if err := syscall.Getrusage(thisThread, &used); err != nil {
		t.Skipf("the processor time of a thread is not known: %v", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// queues returns a file with work queues that are bound to one exchange and share a backoff.
func queues(n int) string {
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\ndefaults: {backoff: a}\nbackoff: {a: {tiers: [1s]}}\nexchanges: [{name: events}]\nqueues:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: q%d, type: classic, dead: shared, bindings: [{exchange: events, key: k%d}]}\n", i, i)
	}
	return b.String()
}
