package templates_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/templates"
)

// Each starter is valid as it is, and no backoff in it is for show only.
func TestStarters(t *testing.T) {
	t.Parallel()
	for _, name := range templates.Starters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, ok := templates.Starter(name)
			if !ok {
				t.Fatalf("there is no starter %q", name)
			}
			top, warnings, err := spec.Load([]spec.Source{{Name: name + ".yaml", Data: data}}, func(string) (string, bool) { return "", false })
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				t.Error(w)
			}
			if len(top.Works) == 0 {
				t.Error("it has no work queue")
			}
		})
	}
}

// Each retries as 'dlxctl init --help' promises.
func TestWhatStartersRetry(t *testing.T) {
	t.Parallel()
	for name, promised := range map[string]func(delays []time.Duration) bool{
		"park": func([]time.Duration) bool { return false }, // it has no backoff
		"tail": func(delays []time.Duration) bool { return slices.Max(delays) == 0 },
		"tiers": func(delays []time.Duration) bool {
			return len(delays) > 1 && slices.IsSorted(delays) && len(slices.Compact(slices.Clone(delays))) == len(delays)
		},
		"repeats": func(delays []time.Duration) bool {
			return slices.IsSorted(delays) && len(slices.Compact(slices.Clone(delays))) < len(delays)
		},
	} {
		data, _ := templates.Starter(name)
		top, _, err := spec.Load([]spec.Source{{Name: name + ".yaml", Data: data}}, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		if (name == "park") != (len(top.Loops) == 0) {
			t.Errorf("%s has %d backoffs", name, len(top.Loops))
		}
		for _, l := range top.Loops {
			var delays []time.Duration
			for _, step := range l.Steps {
				delays = append(delays, step.Delay)
			}
			if !promised(delays) {
				t.Errorf("%s: the backoff %s waits %v", name, l.Backoff, delays)
			}
		}
	}
}

func TestNoSuchStarter(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("starters/*")
	if err != nil || len(files) != len(templates.Starters()) {
		t.Errorf("there are the files %q (%v) and the starters %q", files, err, templates.Starters())
	}
	for _, name := range []string{"", "../templates", "minimal.yaml", "starters/minimal", "MINIMAL", "minimal\x00"} {
		if data, ok := templates.Starter(name); ok || data != nil {
			t.Errorf("%q is no starter, and was found:\n%s", name, data)
		}
	}
}
