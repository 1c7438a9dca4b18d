package desk_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// A run that is interrupted while its hold is being created is gone: there is nothing to continue.
// The broker gets the hold after the exchange that says that not all is taken.
func TestARunIsInterruptedAtItsBeginning(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 20)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	target := noticing(t, s.target, "x-desk-run", func() { // the client has sent the declaration of the hold
		defer cancel()
		state, err := s.desk.Management.Inspect(t.Context())
		if err != nil || !slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool {
			return strings.HasPrefix(e.Name, "shop.desk.") && strings.Contains(e.Name, ".in.")
		}) {
			t.Errorf("the take exchange does not exist before the hold: %v", err)
		}
	})
	r, err := s.deskOn(t, target).Holding().Execute(ctx, p, nil)
	if err == nil || r.Run != "" {
		t.Errorf("%+v, %v", r, err)
	}
	s.tidy(t)
	s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
}

// noted begins a run that is interrupted after it has noted that all is taken, and before its take
// exchange is gone.
func (s *shop) noted(t *testing.T, q desk.Request) desk.Result {
	t.Helper()
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	target := noticing(t, s.target, "S\x00\x00\x00\x07sending", cancel) // the record in the hold
	r, err := s.deskOn(t, target).Holding().Execute(ctx, p, nil)
	if err != nil || r.Stopped != "interrupted" || r.Left != p.Chosen {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// A run that is resumed after it has taken all lets other runs take from its queue while it sends.
func TestARunThatHasTakenAllFreesItsQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.block(t)
	chosen, _ := s.bury(t, 20)
	q := request(t, desk.Replay)
	q.Send.MaxWaiting = 1
	r := s.noted(t, q)
	for phase, resume := range []func(){func() {}, func() { s.resumeTaking(t, r.Run) }} {
		resume()
		want := []desk.Phase{desk.Taking, desk.Sending}[phase]
		// What a process held comes back a moment after its connections have ended.
		brokertest.Eventually(t, "the run to be "+string(want), func() bool {
			runs, err := s.desk.Runs(t.Context())
			return err == nil && len(runs) == 1 && runs[0].Phase == want && (phase == 0 || runs[0].Holds == len(chosen))
		})
	}
	if r, err := s.desk.Return(t.Context(), r.Run, nil); err != nil || r.Moved != len(chosen) {
		t.Errorf("%+v, %v", r, err)
	}
	s.tidy(t)
}

// A run that deletes its messages has sent none, and so says of no message that it may be doubled.
func TestARunThatDeletesHasSentNothing(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 20)
	q := request(t, desk.Discard)
	q.Forever, q.Send.InFlight = true, 50
	r, err := s.desk.Return(t.Context(), s.noted(t, q).Run, nil)
	if err != nil || r.Moved != len(chosen) || r.DoubledAtMost > 0 {
		t.Errorf("returned: %+v, %v", r, err)
	}
	r, err = s.desk.Resume(t.Context(), s.noted(t, q).Run, nil, nil)
	if err != nil || r.Moved != len(chosen) || r.DoubledAtMost > 0 {
		t.Errorf("resumed: %+v, %v", r, err)
	}
	s.tidy(t)
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
