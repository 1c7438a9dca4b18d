package desk_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// A run that is interrupted once all is moved leaves an empty hold. Who resumes it is not told that
// nothing was taken.
func TestARunIsInterruptedAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	chosen, _ := s.bury(t, 20)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Park))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Sending && p.Done == len(chosen) {
			cancel()
		}
	})
	if err != nil || r.Moved != len(chosen) || r.Left > 0 || r.Ended || r.Stopped != "interrupted" {
		t.Fatalf("%+v, %v", r, err)
	}
	s.drained(t, topology.HoldName("shop", r.Run)) // the list goes before the hold does
	again, err := s.desk.Resume(t.Context(), r.Run, nil, nil)
	if err != nil || !again.Ended || again.Stopped != "" || again.Moved > 0 {
		t.Errorf("resume: %+v, %v", again, err)
	}
	s.awaitReady(t, topology.ParkedName("shop"), len(chosen))
	if run := s.onlyRun(t); run != "" {
		t.Errorf("the run %s is left", run)
	}
}

// A run that is refused before its hold exists has no name that a person could continue.
func TestARefusedRunHasNoName(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 20)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	s.policy(t, "policies", "billing", map[string]any{"expires": 600_000})
	brokertest.Eventually(t, "the policy to hold",
		func() bool { return s.target.Queue(t, "billing")["policy"] == "billing" })
	r, err := s.desk.Execute(t.Context(), p, nil)
	if _, drops := errors.AsType[desk.DroppingError](err); !drops || r.Run != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if run := s.onlyRun(t); run != "" {
		t.Errorf("the run %s is left", run)
	}
}
