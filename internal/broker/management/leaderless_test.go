package management

import "testing"

// What the list of queues tells of a quorum queue with three members.
func TestLeaderless(t *testing.T) {
	t.Parallel()
	three := []string{"a", "b", "c"}
	quorum := func(state, leader string, online []string) livingQueue {
		return livingQueue{Type: "quorum", State: state, Leader: leader, Members: three, Online: online}
	}
	for name, tc := range map[string]struct {
		queue livingQueue
		want  bool
	}{
		"all members are up":           {quorum("running", "a", three), false},
		"one member is down":           {quorum("running", "a", three[:2]), false},
		"one member is left":           {quorum("", "a", three[:1]), true},
		"no leader is elected":         {quorum("running", "", three), true},
		"the broker says minority":     {quorum("minority", "a", three), true},
		"a classic queue":              {livingQueue{Type: "classic", State: "running"}, false},
		"a classic queue of 3.10":      {livingQueue{Type: "classic"}, false},
		"the node of a classic queue":  {livingQueue{Type: "classic", State: "down"}, true},
		"a stream, which reports none": {livingQueue{Type: "stream", State: "running", Members: three}, false},
	} {
		if got := tc.queue.leaderless(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
