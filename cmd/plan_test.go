package cmd

import "testing"

func TestAtLeast(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"3.10.8": true, "3.9.29": false, "4.0.5": true, "4.3.6": true, "3.10.0-rc.1": true, "2.8": false, "main": true, "": true,
	} {
		if got := atLeast(version, oldest); got != want {
			t.Errorf("version %s: %t", version, got)
		}
	}
}
