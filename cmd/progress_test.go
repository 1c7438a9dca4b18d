package cmd

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// Short work is done without a word; long work says how far it is, now and then.
func TestProgressInALog(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lasts time.Duration
		want  string
	}{
		"short": {time.Second, ""},
		"long":  {15 * time.Second, "applied 2 of 20 changes\napplied 12 of 20 changes\napplied 16 of 20 changes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := app{stderr: &out}
				p := a.newProgress("applied", "changes", 20)
				for end := time.Now().Add(tc.lasts); time.Now().Before(end); {
					synctest.Wait()
					timer := time.NewTimer(999 * time.Millisecond)
					<-timer.C
					p.step()
				}
				p.finish()
				if out.String() != tc.want {
					t.Errorf("it says %q, not %q", out.String(), tc.want)
				}
			})
		})
	}
}

// The bar says how much time is left, once that can be known.
func TestTimeLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		passed      time.Duration
		done, total int
		want        string
	}{
		{2 * time.Second, 0, 10, ""},
		{2 * time.Second, 1, 10, ", 18s left"},
		{time.Minute, 30, 31, ", 2s left"},
		{time.Second, 99, 100, ", 1s left"},
		{2 * time.Second, 10, 10, ""},
	} {
		if got := left(tc.passed, tc.done, tc.total); got != tc.want {
			t.Errorf("after %s, %d of %d: %q, not %q", tc.passed, tc.done, tc.total, got, tc.want)
		}
	}
}
