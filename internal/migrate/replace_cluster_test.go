package migrate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
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
// that of dlxctl or another, and starts again once migrate misses it or ends: nothing that was
// confirmed is lost.
func TestReplaceOnThreeNodes(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	//nolint:paralleltest // before a node is killed
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
			clients.allArrive(t, confirmed)
			s.replaced(t)
			stop()
		})
	}
	t.Run("killed", func(t *testing.T) {
		s, clients := clusterStage(t, nodes, "classic", "quorum")
		published := clients.publishThrough(t)
		stop := clients.consumeThrough(t, "new")
		steps := []string{
			"replace: proving", "replace: switch from new", "replace: moving", "replace: deleted", "replace: bind the switch",
			"replace: switch from its hold", "replace: bind new", "replace: create the hold",
		}
		steps, allow := steps[:brokertest.Rounds(4, len(steps))], plan.Allow(topology.ReplacesQueue, topology.DropsRouting)
		for i, step := range steps { // each in the other direction
			victim := nodes[2*((i+1)%2)] // first the third, which has the queue
			types := []string{"quorum", "classic"}
			s.file = strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "replaces: old", "type: "+types[i%2], 1)
			s.want = spectest.Compile(t, s.file)
			killed := false
			r, _ := s.during(t, step, 1, func() { killed = true; victim.Kill(t); t.Logf("killed: %s", victim.Target().URL) })
			r.Allow, r.Wait = allow, 10*time.Second
			started, said := false, r.Report
			r.Report = func(format string, args ...any) {
				said(format, args...)
				if killed && !started && strings.HasPrefix(fmt.Sprintf(format, args...), "new: trying again in ") {
					started = true
					victim.Start(t)
				}
			}
			err := r.Run(t.Context())
			t.Logf("%s: %v", step, err)
			if !killed {
				t.Fatalf("%s: it did not come so far", step)
			}
			if !started {
				victim.Start(t)
			}
			if err == nil {
				continue
			}
			brokertest.Eventually(t, "migrate to finish", func() bool { // a node that starts knows less than it answers
				r := s.replacer(t)
				r.Allow = append(slices.Clone(allow), plan.Consent{Hazard: topology.StopsConsumers, Object: "new"})
				err := r.Run(t.Context())
				if err != nil {
					t.Logf("again: %v", err)
				}
				return err == nil
			})
		}
		confirmed := published()
		lost, doubled := clients.account(t, confirmed) // a consumer that loses its connection sees messages again
		if lost > 0 {
			t.Errorf("%d of %d messages were lost", lost, len(confirmed))
			clients.where(t, confirmed)
		}
		stop()
		s.replaced(t)
		t.Logf("%d confirmed, %d lost, %d came again, %d kills", len(confirmed), lost, doubled, len(steps))
	})
}
