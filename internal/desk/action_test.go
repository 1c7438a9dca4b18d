package desk_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// Each action has an entry that says all about it, with defaults that are a request.
func TestKindsAreComplete(t *testing.T) {
	t.Parallel()
	want := map[desk.Action]desk.Request{
		desk.Replay: {Send: desk.SendOptions{
			Rate: 10, Ramp: []int{1, 10, 100}, MaxWaiting: 1000, StopFailures: 3, Settle: 5 * time.Second,
		}},
		desk.Discard: {},
		desk.Edit:    {Limit: 1, Send: desk.SendOptions{Ramp: []int{1}, StopFailures: 1, Settle: 5 * time.Second}},
		desk.Park:    {},
		desk.Restore: {},
		desk.Pull:    {},
	}
	for _, kind := range desk.Kinds() {
		request, known := want[kind.Action]
		delete(want, kind.Action)
		if !known || kind.Done == "" || desk.Incomplete(kind) {
			t.Errorf("the entry is %+v", kind)
		}
		request.Action = kind.Action
		got, err := desk.DefaultAsk(kind.Action).Request(time.Now())
		if d := cmp.Diff(request, got); d != "" || err != nil {
			t.Errorf("the request without flags (-want +got): %v\n%s", err, d)
		}
	}
	for action := range want {
		t.Errorf("the action %s has no entry", action)
	}
}
