package migrate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
)

// Before RabbitMQ 4.3, a quorum queue must not be deleted while the node of a member is down. So it
// is not replaced: migrate refuses it before a message waits in a hold, and rolls back if the node
// goes down later.
func TestReplaceWhileAMemberIsDown(t *testing.T) {
	t.Parallel()
	if brokertest.VHost(t).AtLeast("4.3") {
		t.Skip("4.3 may report the dead node as up once more, so that migrate begins and rolls back; " +
			"TestAQueueStaysWhileAMemberIsDown shows that it keeps the queue")
	}
	nodes := brokertest.UpgradedCluster(t)
	file := strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "    replaces: old\n", "", 1)
	s := newStageIn(t, nodes[0].VHost(t), file, "", nil)
	s.apply(t, s.want)
	s.file = strings.Replace(file, "  - name: new\n", "  - name: new\n    type: classic\n", 1)
	s.want = spectest.Compile(t, s.file)
	down := nodes[2].Name(t)
	kill := func() {
		nodes[2].Kill(t)
		brokertest.Eventually(t, "a node that is reported as down", func() bool {
			online, _ := s.target.Queue(t, "new")["online"].([]any)
			state, err := s.m.Inspect(t.Context()) // the others may not answer while they notice it
			return err == nil && len(online) == 2 && plan.Differs(s.want, state, "new")
		})
	}
	kill()
	r, told := s.during(t, "replace: ", 1, func() {})
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), down) || told.Len() > 0 || !s.bound(t) {
		t.Errorf("while a node is down, it returns %v, and says %s; the queue is bound: %t", err, told, s.bound(t))
	}
	s.nothingLeft(t)
	nodes[2].Start(t)
	brokertest.Eventually(t, "all members", func() bool {
		online, _ := s.target.Queue(t, "new")["online"].([]any)
		return len(online) == 3
	})
	r, _ = s.during(t, "replace: switch from new", 1, func() { s.send(t, "f", "", "one", nil); kill() })
	err = r.Run(t.Context())
	if !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), down) || !s.bound(t) {
		t.Errorf("when a node goes down, it returns %v; the queue is bound: %t", err, s.bound(t))
	}
	r, told = s.during(t, "replace: switch from new", 1, func() {})
	if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrWaiting) || strings.Contains(told.String(), "switch") {
		t.Errorf("while that node is down, it returns %v, and says %s", err, told)
	}
	if n := s.count(t, "new"); n["one"] != 1 || len(n) != 1 || !s.bound(t) {
		t.Errorf("the queue has %v and is bound: %t", n, s.bound(t))
	}
	nodes[2].Start(t)
	brokertest.Eventually(t, "migrate to finish", func() bool { return s.replacer(t).Run(t.Context()) == nil })
	s.replaced(t)
}
