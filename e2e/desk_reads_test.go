package e2e_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A run reads all of the virtual host few times, as one that has thousands of queues takes seconds
// for each: once to choose, and once with the lock of its queue. One that hears failures does so
// with the lock of the topology, and one with a hold once that exists, to send, and to end. One
// that sends by the name of a queue looks whether that is being replaced.
func TestARunReadsTheVirtualHostFewTimes(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := deadLetters(t, 120)
	var mu sync.Mutex
	reads := 0
	target.API = apiProxy(t, target.API, func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if path := strings.TrimSuffix(r.URL.Path, "/"); strings.HasSuffix(path, "/bindings/"+target.VHost) {
			reads++
		}
		return false
	})
	for _, tc := range []struct {
		args string
		most int
	}{
		{"park billing.dead --limit 1 --yes", 2},
		{"replay billing.dead --limit 1 --to queue:billing --settle 0s --yes", 4},
		{"replay billing.dead --limit 1 --to original --settle 0s --yes", 3},
		{"park billing.dead --limit 110 --yes", 5},
	} {
		reads = 0
		out := succeeds(t, target, append(append([]string{"desk"}, strings.Fields(tc.args)...), "-f", file)...)
		if mu.Lock(); reads > tc.most {
			t.Errorf("desk %s has read the virtual host %d times, want at most %d:\n%s", tc.args, reads, tc.most, out)
		}
		t.Logf("desk %s: %d reads", tc.args, reads)
		mu.Unlock()
	}
}
