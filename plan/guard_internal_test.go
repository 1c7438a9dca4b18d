package plan

import (
	"errors"
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

func TestAtLeast(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"3.10.8": true, "3.9.29": false, "4.0.5": true, "4.3.6": true, "3.10.0-rc.1": true, "2.8": false, "main": true,
		"": true,
	} {
		if got := atLeast(version, oldest); got != want {
			t.Errorf("version %s: %t", version, got)
		}
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wanted, version, cluster string
		refused                  bool
	}{
		"any cluster":              {"", "4.0.5", "rabbit@a", false},
		"the cluster":              {"prod", "4.0.5", "prod", false},
		"another cluster":          {"prod", "4.0.5", "staging", true},
		"a cluster without a name": {"prod", "4.0.5", "", true},
		"too old":                  {"", "3.9.29", "prod", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Guard(topology.Compiled{Cluster: tc.wanted}, tc.version, tc.cluster)
			if (err != nil) != tc.refused || err != nil && !errors.Is(err, ErrBroker) {
				t.Errorf("Guard gives %v", err)
			}
		})
	}
}
