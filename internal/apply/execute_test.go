package apply_test

import (
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
		partial, _ := errors.AsType[*apply.PartialError](apply.Execute(ctx, &slow{}, hundred(), func(plan.Change) {}))
		if partial == nil || partial.Wrote() || len(partial.Pending) != 100 {
			t.Errorf("after the end it gives %v", partial)
		}
	})
}
