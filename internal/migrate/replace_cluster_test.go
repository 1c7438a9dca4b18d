package migrate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// clusterStage returns a stage for dlxctl on the first node, and one for its publishers and
// consumers on the second. The queue, of a type, was declared on the third.
func clusterStage(t *testing.T, nodes []*brokertest.Server, haveType, wantType string) (s, clients *stage) {
	t.Helper()
	file := strings.Replace(fmt.Sprintf(topologyFile, wantType), "    replaces: old\n", "", 1)
	s = newStageIn(t, nodes[0].VHost(t), file, "", nil)
	s.declares = "new"
	third := &stage{target: nodes[2].See(t, s.target), want: s.want, declares: "new"}
	third.legacy(t, haveType, nil)
	clients = &stage{target: nodes[1].See(t, s.target), want: s.want, m: s.m, seen: map[string]int{}}
	return s, clients
}

// On three nodes, with dlxctl, its publishers and consumers, and the queue on one each, a queue is
// replaced under load: no message is lost and none doubled. Then a node is killed at each step,
// that of dlxctl or that of the queue, and migrate is run again: nothing that was confirmed is
// lost.
func TestReplaceOnThreeNodes(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	for _, types := range [][2]string{{"classic", "quorum"}, {"quorum", "classic"}} {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			s, clients := clusterStage(t, nodes, types[0], types[1])
			stop := clients.consumeThrough(t, "new")
			published := clients.publish(t, 100*time.Millisecond)
			wait(t, 300*time.Millisecond)
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			lost, doubled := clients.account(t, confirmed)
			if lost > 0 || doubled > 0 {
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
				clients.where(t, confirmed)
			}
			s.replaced(t)
			stop()
			t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
		})
	}
	//nolint:paralleltest // each kills nodes
	for _, types := range [][2]string{{"classic", "quorum"}, {"quorum", "classic"}} {
		t.Run(types[0]+" to "+types[1]+", killed", func(t *testing.T) {
			s, clients := clusterStage(t, nodes, types[0], types[1])
			published := clients.publishThrough(t)
			stop := clients.consumeThrough(t, "new")
			allow := plan.Allow(topology.ReplacesQueue, topology.DropsRouting)
			struck := 0
			for i, step := range []string{
				"replace: create the hold", "replace: bind the switch", "replace: switch from new", "replace: proving",
				"replace: deleted", "replace: moving", "replace: switch from its hold", "replace: bind new",
			} {
				victim := nodes[2*(i%2)]
				r, _ := s.during(t, step, 1, func() { struck++; victim.Kill(t); t.Logf("killed node %d", 1+2*(i%2)) })
				r.Allow, r.Wait = allow, 10*time.Second
				before := struck
				err := r.Run(t.Context())
				if struck > before {
					victim.Start(t)
				}
				t.Logf("%s: %v", step, err)
			}
			r := s.replacer(t)
			r.Allow = append(slices.Clone(allow), plan.Consent{Hazard: topology.StopsConsumers, Object: "new"})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			lost, doubled := clients.account(t, confirmed) // a consumer that loses its connection sees messages again
			if lost > 0 || struck < 5 {
				t.Errorf("%d of %d messages were lost, at %d kills", lost, len(confirmed), struck)
				clients.where(t, confirmed)
			}
			stop()
			s.replaced(t)
			t.Logf("%d confirmed, %d lost, %d came again, %d kills", len(confirmed), lost, doubled, struck)
		})
	}
}
