package e2e_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// plan blocks what the broker's line refuses, and apply writes nothing; what the line accepts is
// applied.
func TestPlanBlocksWhatTheLineRefuses(t *testing.T) {
	t.Parallel()
	for argument, refused := range map[string]func(brokertest.Target) bool{
		"x-queue-version: 1":               func(b brokertest.Target) bool { return b.AtLeast("4.3") },
		"x-consumer-timeout: 60000":        func(b brokertest.Target) bool { return b.AtLeast("4.3") },
		"x-queue-leader-locator: balanced": func(b brokertest.Target) bool { return !b.AtLeast("4.0") },
		"x-max-priority: 0":                func(brokertest.Target) bool { return false },
	} {
		t.Run(argument, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			file := writeTopology(t, "version: 1\nname: shop\nqueues: [{name: q, type: classic, backoff: none, arguments: {"+argument+"}}]\n")
			succeeds(t, target, "validate", "-f", file)
			before := target.Definitions(t)
			code, out := dlxctl(target, "apply", "--yes", "-f", file)
			offline, _ := run("validate", "-f", file, "--rabbitmq", target.Version)
			if !refused(target) {
				if code != 0 || offline != 0 {
					t.Errorf("apply exits with %d, validate with %d:\n%s", code, offline, out)
				}
				return
			}
			name, _, _ := strings.Cut(argument, ":")
			if code != 3 || offline != 1 || !strings.Contains(out, "refuses the queue: "+name+" is ") {
				t.Errorf("apply exits with %d, validate with %d:\n%s", code, offline, out)
			}
			if after := target.Definitions(t); len(after) != len(before) {
				t.Errorf("apply has written %v", after)
			}
		})
	}
}

// The dry run of migrate says how to keep an argument that the type of the successor does not have,
// and what it says can be applied.
func TestMigrateKeepsALazyQueue(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	putQueue(t, target, "old", map[string]any{"x-queue-mode": "lazy", "x-max-priority": 5})
	file := func(more string) string {
		return writeTopology(t, "version: 1\nname: shop\nqueues: [{name: new, replaces: old, backoff: none"+more+"}]\n")
	}
	out := succeeds(t, target, "migrate", "--dry-run", "-f", file(""))
	const advice = `x-queue-mode is for classic queues: to keep it, write type: classic and arguments: {x-queue-mode: "lazy"}`
	if !strings.Contains(out, advice) || strings.Contains(out, "on new; to keep it") {
		t.Errorf("the dry run has no\n%s\nin\n%s", advice, out)
	}
	succeeds(t, target, "apply", "--yes", "-f", file(", type: classic, arguments: {x-queue-mode: lazy, x-max-priority: 5}"))
}
