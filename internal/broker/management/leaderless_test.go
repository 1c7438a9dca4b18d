package management

import "testing"

// What the list of queues tells of a quorum queue with three members.
func TestLeaderless(t *testing.T) {
	t.Parallel()
	three := []string{"a", "b", "c"}
	for name, tc := range map[string]struct {
		queue livingQueue
		want  bool
	}{
		"all members are up":           {livingQueue{Type: "quorum", State: "running", Leader: "a", Members: three, Online: three}, false},
		"one member is down":           {livingQueue{Type: "quorum", State: "running", Leader: "a", Members: three, Online: three[:2]}, false},
		"one member is left":           {livingQueue{Type: "quorum", Leader: "a", Members: three, Online: three[:1]}, true},
		"no leader is elected":         {livingQueue{Type: "quorum", State: "running", Members: three, Online: three}, true},
		"the broker says minority":     {livingQueue{Type: "quorum", State: "minority", Leader: "a", Members: three, Online: three}, true},
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
