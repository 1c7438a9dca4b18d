package migrate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// replaceStage is a stage whose file wants the queue new of a type, and whose broker has it
// with other arguments, bound as the file says.
func replaceStage(t *testing.T, target brokertest.Target, haveType, wantType string, have amqp091.Table) *stage {
	t.Helper()
	file := strings.Replace(fmt.Sprintf(topologyFile, wantType), "    replaces: old\n", "", 1)
	s := newStageIn(t, target, file, "", nil)
	s.declares = "new"
	s.legacy(t, haveType, have)
	return s
}

// replacer returns a runner that may replace the queue new.
func (s *stage) replacer(t *testing.T) *migrate.Runner {
	t.Helper()
	r := s.runner(t)
	r.Allow = []plan.Consent{{Hazard: topology.ReplacesQueue, Object: "new"}}
	r.Report = func(format string, args ...any) { t.Logf("%s "+format, append([]any{time.Now().Format("15:04:05.000")}, args...)...) }
	return r
}

// replaced checks that the queue is as the file has it, and that nothing of a replacement is left.
func (s *stage) replaced(t *testing.T) {
	t.Helper()
	s.tidy(t)
	state := s.inspect(t)
	if left := migrate.Unfinished(s.want, state); len(left) > 0 {
		t.Errorf("the hold of %v is left", left)
	}
	if plan.Differs(s.want, state, "new") || !s.exists(t, "new") {
		t.Error("the queue is not as the file has it")
	}
	p := plan.Make(s.want, state, plan.Options{})
	for _, c := range p.Changes {
		t.Errorf("left to do: %s %s %s: %s", c.Action, c.Kind, c.Name, c.Reason)
	}
	for _, c := range p.Drift {
		t.Errorf("drift: %s", c.Name)
	}
}

// Under load, through every type of exchange, a queue is replaced under its name: no message is lost
// and none doubled, and afterwards the plan is empty.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		have, want string
		args       amqp091.Table
	}{
		"classic to quorum": {"classic", "quorum", nil},
		"quorum to classic": {"quorum", "classic", nil},
		"other arguments":   {"classic", "classic", amqp091.Table{"x-max-length": 100000, "x-message-ttl": 600000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), tc.have, tc.want, tc.args)
			stop := s.consumeThrough(t, "new")
			published := s.publish(t, 400*time.Millisecond)
			wait(t, 300*time.Millisecond)
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			lost, doubled := s.account(t, confirmed)
			if lost > 0 || doubled > 0 {
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
				s.where(t, confirmed)
			}
			s.replaced(t)
			stop()
			t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
		})
	}
}
