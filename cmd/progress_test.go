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
		total int
		want  string
	}{
		"short":              {time.Second, 20, ""},
		"long":               {15 * time.Second, 20, "applied 2 of 20 changes\napplied 12 of 20 changes\n"},
		"more than expected": {15 * time.Second, 5, "applied 2 of 5 changes\napplied 12 of 12 changes\n"},
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
					t.Errorf("it says %q, not %q", out.String(), tc.want)
				}
			})
		})
	}
}
