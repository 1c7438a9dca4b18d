package cmd

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// A short task prints nothing; a long one prints its progress now and then.
func TestProgressInALog(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lasts time.Duration
		total int
		want  string
	}{
		"short": {time.Second, 20, ""},
		"long": {
			15 * time.Second, 20,
			"applied 2 of 20 changes\napplied 12 of 20 changes\napplied 16 of 20 changes\n",
		},
		"more than expected": {
			15 * time.Second, 5,
			"applied 2 of 5 changes\napplied 12 of 12 changes\napplied 16 of 16 changes\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := app{stderr: &out}
				p := a.newProgress("applied", "changes", tc.total)
				for end := time.Now().Add(tc.lasts); time.Now().Before(end); {
					synctest.Wait()
					timer := time.NewTimer(999 * time.Millisecond)
					<-timer.C
					p.step()
				}
				p.finish()
				if out.String() != tc.want {
					t.Errorf("it prints %q, not %q", out.String(), tc.want)
				}
			})
		})
	}
}

// The bar shows the remaining time, once it can be estimated.
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
