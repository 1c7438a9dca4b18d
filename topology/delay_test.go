package topology_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

func TestDelayHasOneText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0s": "0s", "0ms": "0s", "0d": "0s", "500ms": "500ms", "1000ms": "1s", "10s": "10s", "60s": "1m", "90s": "1m30s",
		"1m30s": "1m30s", "30s1m": "1m30s", "3600s": "1h", "24h": "1d", "36h": "1d12h", "1500ms": "1s500ms", "007s": "7s",
		"1d1ms": "1d1ms", "1s1s": "2s", "4294967295ms": "49d17h2m47s295ms",
		"1.5s": "1s500ms", "1.5ms1.5ms": "3ms", "0.5d": "12h", "1m0.295s": "1m295ms", "1.500s": "1s500ms",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			d, err := topology.ParseDelay(in)
			if err != nil {
				t.Fatal(err)
			}
			if got := topology.FormatDelay(d); got != want {
				t.Errorf("%s is %q, want %q", in, got, want)
			}
		})
	}
}

func TestParseDelayRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                        "numbers with units",
		"10":                      "needs a unit",
		"1.5":                     "needs a unit",
		"-1":                      "needs a unit",
		"1.5ms":                   "whole milliseconds, write 2ms",
		"0.0004s":                 "whole milliseconds, write 1ms",
		"1.s":                     "numbers with units",
		".5s":                     "numbers with units",
		"-1s":                     "numbers with units",
		"s":                       "numbers with units",
		"10 s":                    "numbers with units",
		"10s ":                    "numbers with units",
		"1w":                      "numbers with units",
		"1us":                     "numbers with units",
		"1µs":                     "numbers with units",
		"1M":                      "numbers with units",
		"10S":                     "numbers with units",
		"1m30":                    "numbers with units",
		"4294967296ms":            "not be longer than 49d17h2m47.295s",
		"50d":                     "not be longer",
		"9223372036854775807d":    "not be longer",
		"106751d106751d":          "not be longer",
		"99999999999999999999ms":  "not be longer",
		strings.Repeat("40d", 99): "not be longer",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			if d, err := topology.ParseDelay(in); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ParseDelay(%q) gives %v and error %v, want one that says %q", in, d, err, want)
			}
		})
	}
}

func TestFormatDelayCutsBelowMilliseconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                  "0s",
		time.Millisecond - 1:          "0s",
		time.Millisecond + 1:          "1ms",
		time.Second + time.Nanosecond: "1s",
	} {
		if got := topology.FormatDelay(d); got != want {
			t.Errorf("FormatDelay(%d ns) is %q, want %q", d, got, want)
		}
	}
}

func TestDelayRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64Range(0, int64(topology.MaxDelay/time.Millisecond)).Draw(t, "ms")) * time.Millisecond
		for _, written := range []string{topology.FormatDelay(want), text.Duration(want)} {
			got, err := topology.ParseDelay(written)
			if err != nil || got != want {
				t.Fatalf("%v is written %q, which reads %v (error %v)", want, written, got, err)
			}
		}
	})
}

func TestParseDelayNeverPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		delays := rapid.StringMatching(`([0-9]{1,25}([.][0-9]{1,4})?(ms|s|m|h|d|x)?){0,6}`)
		in := rapid.OneOf(rapid.String(), delays).Draw(t, "in")
		d, err := topology.ParseDelay(in)
		if err == nil && (d < 0 || d > topology.MaxDelay || d%time.Millisecond != 0) {
			t.Fatalf("ParseDelay(%q) is %v", in, d)
		}
	})
}
