package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// onePlan gives the plan of a file with one queue.
func onePlan(t *testing.T, target brokertest.Target, queueType string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.yaml")
	file := "version: 1\nname: shop\ndefaults: {backoff: none, type: " + queueType + "}\nqueues: [{name: billing}]\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	_, out := dlxctl(target, "plan", "-f", path)
	return out
}

// An alarm in force is said before anything is written.
func TestAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.NodeWith(t, "--set", "vm_memory_high_watermark.relative = 0.00001")
	tick := time.NewTicker(500 * time.Millisecond) // the broker looks at its memory every few seconds
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		out := onePlan(t, node.Target(), "classic")
		if strings.Contains(out, "\nwarning alarm: the broker takes no messages at the moment: ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there is no warning:\n%s", out)
		}
	}
}

// Feature flags that nobody enabled are named before anything is written. Up to
// 3.12 a new node can be without them; later ones have them whatever they are told,
// and the queue is planned.
func TestFeatureFlags(t *testing.T) {
	t.Parallel()
	node := brokertest.NodeWith(t, "--env", "RABBITMQ_FEATURE_FLAGS=implicit_default_bindings")
	out := onePlan(t, node.Target(), "quorum")
	if node.Target().AtLeast("3.13") {
		if !strings.Contains(out, "\n+ queue billing ") || strings.Contains(out, "feature flag") {
			t.Errorf("the queue is not planned:\n%s", out)
		}
	} else if !strings.Contains(out, "\n! queue billing\n") || !strings.Contains(out, "rabbitmqctl enable_feature_flag quorum_queue") {
		t.Errorf("the queue is not blocked:\n%s", out)
	}
	if out := onePlan(t, node.Target(), "classic"); !strings.Contains(out, "\n+ queue billing ") || strings.Contains(out, "feature flag") {
		t.Errorf("a classic queue needs none:\n%s", out)
	}
}
