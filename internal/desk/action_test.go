package desk_test

import (
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// Each action has an entry that says all about it.
func TestKindsAreComplete(t *testing.T) {
	t.Parallel()
	missing := []desk.Action{desk.Replay, desk.Discard, desk.Edit, desk.Park, desk.Restore}
	for _, kind := range desk.Kinds() {
		at := slices.Index(missing, kind.Action)
		if at < 0 || kind.Done == "" || desk.Incomplete(kind) {
			t.Fatalf("the entry is %+v", kind)
		}
		missing = slices.Delete(missing, at, at+1)
	}
	if len(missing) > 0 {
		t.Errorf("no entry is there for %v", missing)
	}
}
