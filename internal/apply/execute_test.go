package apply_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// slow is an applier that counts how many changes run at once.
type slow struct {
	mu            sync.Mutex
	running, most int
	order         []plan.Phase
	fail          string
}

func (s *slow) Apply(_ context.Context, c plan.Change) error {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	s.order = append(s.order, c.Phase)
	s.mu.Unlock()
	<-time.After(time.Second) // of the bubble's clock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if c.Name == s.fail {
		return errors.New("500 boom")
	}
	return nil
}

// hundred is a plan of two phases of fifty changes.
func hundred() plan.Plan {
	var p plan.Plan
	for i := range 100 {
		p.Changes = append(p.Changes,
			plan.Change{Action: plan.Create, Kind: topology.KindQueue, Name: fmt.Sprint("q", i), Phase: plan.Phase(1 + i/50)})
	}
	return p
}

func TestExecuteRunsPhaseAfterPhase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		begin, done := time.Now(), 0
		if err := apply.Execute(t.Context(), s, hundred(), func(plan.Change) { done++ }); err != nil {
			t.Fatal(err)
		}
		if s.most != 32 || done != 100 || !slices.IsSorted(s.order) {
			t.Errorf("%d at once, %d reported, in the order of phases: %t", s.most, done, slices.IsSorted(s.order))
		}
		took := time.Since(begin)
		if took != 4*time.Second { // 32 and 18, twice
			t.Errorf("it took %s", took)
		}
	})
}

func TestExecuteStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		err := apply.Execute(t.Context(), &slow{fail: "q3"}, hundred(), func(plan.Change) {})
		partial, ok := errors.AsType[*apply.PartialError](err)
		if !ok || !partial.Wrote() {
			t.Fatalf("error is %v", err)
		}
		done, pending := len(partial.Done), len(partial.Pending)
		if done+len(partial.Failed)+pending != 100 || len(partial.Failed) != 1 || pending < 50 {
			t.Errorf("%d done, %d failed, %d not tried", done, len(partial.Failed), pending)
		}
		want := fmt.Sprintf("create queue q3: 500 boom (%d done, 1 failed, %d not tried; fix the cause and run it again)",
			done, pending)
		if err.Error() != want {
			t.Errorf("error is %q", err)
		}
	})
}

func TestExecuteFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		err := apply.Execute(ctx, &slow{}, hundred(), func(plan.Change) {})
		if want := "interrupted (32 done, 68 not tried; run it again to continue)"; err == nil || err.Error() != want {
			t.Errorf("error is %v", err)
		}
		cancel()
		again, stop := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, stop)
		err = apply.Execute(again, &slow{fail: "q3"}, hundred(), func(plan.Change) {})
		want := "interrupted (31 done, 1 begun and perhaps not finished, 68 not tried; run it again to continue)"
		if err == nil || err.Error() != want {
			t.Errorf("error is %v", err)
		}
		partial, _ := errors.AsType[*apply.PartialError](apply.Execute(ctx, &slow{}, hundred(), func(plan.Change) {}))
		if partial == nil || partial.Wrote() || len(partial.Pending) != 100 {
			t.Errorf("after the end it gives %v", partial)
		}
	})
}

// unchanging is a broker on which nothing changes: each step of a reroute is due again.
type unchanging struct {
	state  topology.State
	cancel context.CancelFunc
	// The run is interrupted in this call, and refused from this call on. Zero: never.
	interrupted, refused int
	inspections          bool // the calls that count are inspections, and not changes

	mu    sync.Mutex
	calls int
}

func (u *unchanging) Inspect(ctx context.Context) (topology.State, error) {
	return u.state, cmp.Or(u.call(u.inspections), ctx.Err())
}

func (u *unchanging) Apply(context.Context, plan.Change) error { return u.call(!u.inspections) }

func (u *unchanging) call(counts bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !counts {
		return nil
	}
	if u.calls++; u.calls == u.interrupted {
		u.cancel()
	}
	if u.refused > 0 && u.calls >= u.refused {
		return errors.New("500 boom")
	}
	return nil
}

// A run that ends between the steps of a reroute says that the reroute is not finished, and counts
// no step as a change of the plan.
func TestExecuteCountsReroutes(t *testing.T) {
	t.Parallel()
	file := func(tiers string) topology.Compiled {
		return load(t, "version: 1\nname: shop\nbackoff: {s: {tiers: ["+tiers+"]}}\nqueues: [{name: q, backoff: s}]\n")
	}
	want, have := file("1m, 2m"), file("2m")
	const (
		untried = "interrupted (2 done, 1 not tried; run it again to continue)"
		begun   = "interrupted (2 done, 1 begun and perhaps not finished, 0 not tried; run it again to continue)"
		failed  = "update exchange shop.s.dlx: 500 boom (2 done, 1 failed, 0 not tried; fix the cause and run it again)"
		stopped = "stopped: 500 boom (2 done, 1 not tried; run it again to continue)"
	)
	for name, tc := range map[string]struct {
		broker *unchanging
		want   string
	}{
		"interrupted in a creation":  {&unchanging{interrupted: 2}, untried},
		"interrupted in a step":      {&unchanging{interrupted: 3}, begun},
		"refused in a step":          {&unchanging{refused: 3}, failed},
		"refused in the second step": {&unchanging{refused: 4}, failed},
		"not readable":               {&unchanging{refused: 1, inspections: true}, stopped},
		"interrupted in between":     {&unchanging{interrupted: 1, inspections: true}, untried},
		"interrupted after a step":   {&unchanging{interrupted: 2, inspections: true}, begun},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b := tc.broker
			b.state, b.cancel = topology.State{Version: "4.3.0", VHost: "/", Cluster: "c", Have: have.Topology}, cancel
			p := plan.Make(want, b.state, plan.Options{})
			err := apply.ExecuteWithReroutes(ctx, b, want, p, time.Millisecond, func(plan.Change) {})
			partial, ok := errors.AsType[*apply.PartialError](err)
			if !ok || err.Error() != tc.want || !partial.Wrote() {
				t.Errorf("error is %v; wrote: %t", err, ok && partial.Wrote())
			}
		})
	}
}
