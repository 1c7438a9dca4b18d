package templates_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
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
			top, warnings := spectest.CompileFile(t, name+".yaml", data)
			for _, w := range warnings {
				t.Error(w)
			}
			if len(top.WorkQueues) == 0 {
				t.Error("it has no work queue")
			}
		})
	}
}

// Each retries as 'dlxctl init --help' promises.
func TestWhatStartersRetry(t *testing.T) {
	t.Parallel()
	for name, promised := range map[string]func(delays []time.Duration) bool{
		"direct": func([]time.Duration) bool { return false }, // it has no backoff
		"tail":   func(delays []time.Duration) bool { return slices.Max(delays) == 0 },
		"tiers": func(delays []time.Duration) bool {
			return len(delays) > 1 && slices.IsSorted(delays) && len(slices.Compact(slices.Clone(delays))) == len(delays)
		},
		"repeats": func(delays []time.Duration) bool {
			return slices.IsSorted(delays) && len(slices.Compact(slices.Clone(delays))) < len(delays)
		},
	} {
		data, _ := templates.Starter(name)
		top, _ := spectest.CompileFile(t, name+".yaml", data)
		if (name == "direct") != (len(top.Backoffs) == 0) {
			t.Errorf("%s has %d backoffs", name, len(top.Backoffs))
		}
		for _, l := range top.Backoffs {
			var delays []time.Duration
			for _, step := range l.Tiers {
				delays = append(delays, step.Delay)
			}
			if !promised(delays) {
				t.Errorf("%s: the backoff %s waits %v", name, l.Name, delays)
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
			t.Errorf("%q is not a starter, and was found:\n%s", name, data)
		}
	}
}

// A starter gets the name of a folder, whatever the folder is called, and stays valid.
func TestNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 80)
	for folder, want := range map[string]string{
		"orders": "orders", "Orders (old)": "Orders-old", ".config": "config", "a.b": "a-b", "_x_": "x_", "été": "t",
		"001": "001", "1e3": "1e3", "yes": "yes", "Null": "Null",
		"0x1F": "0x1F", "12:30": "12-30", long: long[:63], "": "shop", "/": "shop", ".": "shop", "東京": "shop", "-": "shop",
		"a\nb": "a-b", "tail": "tail", "$1": "1",
	} {
		for _, name := range templates.Starters() {
			data, _ := templates.Starter(name)
			top, warnings := spectest.CompileFile(t, name, templates.Named(data, folder))
			if len(warnings) > 0 {
				t.Errorf("%s for %q: %v", name, folder, warnings)
			}
			// The first starter is the example of the README, whose queue has the name of no team.
			prefixed := strings.HasPrefix(top.WorkQueues[0].Name, want+".") || name == templates.Starters()[0]
			if top.Name != want || len(top.Exchanges) == 0 || !prefixed {
				t.Errorf("%s for %q is called %q and has the queue %v", name, folder, top.Name, top.WorkQueues)
			}
		}
	}
}

// The file of 'dlxctl init' is the first one of the README, with comments.
func TestTheFirstStarterIsThatOfTheReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	starter, ok := templates.Starter(templates.Starters()[0])
	if block == nil || !ok {
		t.Fatal("there is no such file")
	}
	var first, written any
	if err := errors.Join(yaml.Unmarshal(block[1], &first), yaml.Unmarshal(starter, &written)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, written); d != "" {
		t.Errorf("they differ (-README +init):\n%s", d)
	}
}
