package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// Two applies of one topology, started in the same moment: with patience both
// end well, one after the other.
func TestApplyTwiceAtOnce(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 100)
	args := []string{"apply", "--yes", "--lock-timeout", "30s", "-f", path}
	a, b := start(t, target, args...), start(t, target, args...)
	a.exits(t, 0)
	b.exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
	// One of them did it all, and the other found nothing left to do.
	if text := a.stdout.String() + b.stdout.String(); strings.Count(text, "done: ") != 1 {
		t.Errorf("both wrote:\n%s", text)
	}
}

// Without patience, who comes second fails and learns who is first; who is first
// does not notice.
func TestApplyWhileAnotherDoes(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 300)
	first := start(t, target, "apply", "--yes", "-f", path)
	eventually(t, "the first to write", func() bool {
		return strings.Contains(strings.Join(exported(t, target), "\n"), `"x-managed-by"`)
	})
	first.signal(t, syscall.SIGSTOP) // or it would be done before the broker tells who it is

	second := start(t, target, "apply", "--yes", "-f", path)
	second.exits(t, 1)
	const want = `dlxctl: another dlxctl works on the topology "shop": dlxctl apply shop (`
	if got := second.stderr.String(); !strings.HasPrefix(got, want) || second.stdout.Len() > 0 {
		t.Errorf("the second does not say who is first:\n%s%s", second.stdout.String(), got)
	}

	first.signal(t, syscall.SIGCONT)
	first.exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// Two topologies in one virtual host have a lock each, and leave each other be.
func TestApplyTwoTopologiesAtOnce(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	paths := []string{manyQueues(t, "shop", 0, 100), manyQueues(t, "store", 0, 100)}
	for _, command := range [][]string{{"apply", "--yes"}, {"plan", "--detailed-exitcode"}} {
		var all []*process
		for _, path := range paths {
			all = append(all, start(t, target, append(command, "-f", path)...))
		}
		for _, p := range all {
			p.exits(t, 0)
		}
	}
}
