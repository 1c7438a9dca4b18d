package desk_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// A process that was killed while it took messages, or gave them back, may have left some in the
// hold and in the queue too. Another run of that queue is refused until the first has been resumed
// or returned: it would send them twice.
func TestAnotherRunWaitsForOneThatWasKilled(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"it took": false, "it gave back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			chosen, rest := s.bury(t, 400)
			run, stall := "", task{Action: desk.Replay, Hold: true, StallIn: desk.Taking, StallAt: len(chosen) / 3}
			if returns {
				run = s.takenOnly(t, len(chosen))
				stall = task{Run: run, Return: true, StallIn: desk.Sending, StallAt: 1}
			}
			s.start(t, stall, func(line string) bool { return line == "stalled" }).ended(t)
			if run = s.onlyRun(t); run == "" {
				t.Fatal("the run has ended before it was killed")
			}
			p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.desk.Execute(t.Context(), p, nil)
			if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), run) {
				t.Errorf("another run: %v", err)
			}
			if _, err := s.desk.Return(t.Context(), run, nil); err != nil {
				t.Fatal(err)
			}
			got := append(identities(s.drained(t, "billing.dead")), identities(s.drained(t, "billing"))...)
			if lost, doubled := compareCounts(append(chosen, rest...), got); lost+doubled > 0 {
				t.Errorf("%d lost, %d doubled", lost, doubled)
			}
			s.tidy(t)
		})
	}
}
