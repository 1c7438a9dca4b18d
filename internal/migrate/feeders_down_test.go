package migrate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
)

// While the node of a classic retry queue that was made by hand is down, RabbitMQ 4.3 does not list
// that queue. The legacy queue is kept, so that what waits there has a queue to return to.
func TestHomeMadeRetryQueueOfANodeThatIsDown(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	const n = 20
	s := newStageIn(t, nodes[0].VHost(t), fmt.Sprintf(topologyFile, "quorum"), "quorum", nil)
	third := &stage{target: nodes[2].See(t, s.target)}
	third.homeMade(t, "classic", time.Minute, "old.wait")
	brokertest.Fill(t, third.target.Confirming(t), "", "old.wait", n, 10) // a kill keeps what is confirmed
	brokertest.Eventually(t, "all to be counted", func() bool { return s.inspect(t).Usage["old.wait"].Ready == n })
	nodes[2].Kill(t)
	brokertest.Eventually(t, "the retry queue to be down", func() bool {
		return slices.Contains(s.inspect(t).Down, "old.wait")
	})
	if notes := s.ahead(t); !strings.Contains(notes, "the node of the queue old.wait is down") {
		t.Errorf("the check does not tell of the retry queue: %s", notes)
	}
	r := s.runner(t)
	r.Wait = 3 * time.Second
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "the node of the queue old.wait is down") {
		t.Errorf("while the node is down, it ends with %v", err)
	}
	nodes[2].Start(t)
	brokertest.Eventually(t, "migrate to finish", func() bool { // a node that starts knows less than it answers
		err := s.runner(t).Run(t.Context())
		t.Logf("it ends with %v; the retry queue has %d", err, s.inspect(t).Usage["old.wait"].Ready)
		return err == nil
	})
	if got := s.collect(t, "new", n); len(got) != n {
		t.Errorf("%d of %d messages came", len(got), n)
	}
}
