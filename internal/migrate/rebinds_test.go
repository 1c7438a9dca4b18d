package migrate

import (
	"errors"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// A service that binds the legacy queue each minute ends the run where that keeps it from its end:
// while a home-made retry queue feeds the legacy queue, the run waits for it after each binding.
func TestBoundAgainEachMinute(t *testing.T) {
	t.Parallel()
	work := topology.Queue{Name: "old", Durable: true}
	retry := topology.Queue{Name: "old.wait", Durable: true, Arguments: topology.Arguments{
		topology.ArgMessageTTL: int64(1000), topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: "old",
	}}
	for _, tc := range []struct {
		queues []topology.Queue
		ends   bool
	}{{[]topology.Queue{work}, false}, {[]topology.Queue{work, retry}, true}} {
		now := time.Now()
		r := Runner{Idle: 30 * time.Second, Wait: 10 * time.Minute, rebinds: map[string]rebinding{
			"old": {first: now.Add(-15 * time.Minute), last: now.Add(-time.Minute)},
		}}
		state := topology.State{Version: "4.3.6", Have: topology.Topology{Queues: tc.queues}}
		err := r.unbinds(state, cutoverStep{Doing: "unbind old", Unbinds: true}, "old", "migrate")
		if errors.Is(err, ErrWaiting) != tc.ends {
			t.Errorf("with %d queues: %v", len(tc.queues), err)
		}
	}
}
