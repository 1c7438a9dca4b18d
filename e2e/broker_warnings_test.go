package e2e_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// onePlan returns the plan of a file with one queue.
func onePlan(t *testing.T, target brokertest.Target, queueType string) string {
	t.Helper()
	text := "version: 1\nname: shop\ndefaults: {backoff: none, type: " + queueType + "}\nqueues: [{name: billing}]\n"
	_, out := dlxctl(target, "plan", "-f", writeTopology(t, text))
	return out
}

// Plan warns of an alarm that is in effect on the broker, and names the node.
func TestAlarmIsAWarning(t *testing.T) {
	t.Parallel()
	node := brokertest.NodeWith(t, "--set", "vm_memory_high_watermark.relative = 0.00001")
	says := regexp.MustCompile(`\nwarning alarm: the broker accepts no messages at the moment: memory alarm on \S+@\S+\n`)
	var out string
	// The broker checks its memory every few seconds.
	brokertest.EventuallyEvery(t, 500*time.Millisecond, "a warning of the alarm", func() bool {
		out = onePlan(t, node.Target(), "classic")
		return says.MatchString(out)
	}, &out)
}

// Plan blocks a queue that needs a feature flag that is not enabled, and names the flag. Up to 3.12
// a new node can lack the flag; later versions always enable it, and the queue is planned.
func TestFeatureFlagsAreNamed(t *testing.T) {
	t.Parallel()
	node := brokertest.NodeWith(t, "--env", "RABBITMQ_FEATURE_FLAGS=implicit_default_bindings")
	planned := func(out string) bool {
		return strings.Contains(out, "\n+ queue billing ") && !strings.Contains(out, "feature flag")
	}
	blocked := func(out string) bool {
		return strings.Contains(out, "\n! queue billing ") &&
			strings.Contains(out, "rabbitmqctl enable_feature_flag quorum_queue")
	}
	out := onePlan(t, node.Target(), "quorum")
	if node.Target().AtLeast("3.13") {
		if !planned(out) {
			t.Errorf("the quorum queue is not planned:\n%s", out)
		}
	} else if !blocked(out) {
		t.Errorf("the quorum queue is not blocked:\n%s", out)
	}
	if out := onePlan(t, node.Target(), "classic"); !planned(out) {
		t.Errorf("the classic queue, which needs no feature flag, is not planned:\n%s", out)
	}
}
