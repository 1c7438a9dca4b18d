package text_test

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                          "0s",
		time.Millisecond - 1:                  "0s",
		50 * time.Millisecond:                 "50ms",
		time.Second + 1:                       "1s",
		3500 * time.Millisecond:               "3.5s",
		90 * time.Second:                      "1m30s",
		time.Minute:                           "1m",
		time.Minute + 50*time.Millisecond:     "1m0.05s",
		36 * time.Hour:                        "1d12h",
		(1<<32 - 1) * time.Millisecond:        "49d17h2m47.295s",
		24*time.Hour + 295*time.Millisecond/5: "1d0.059s",
	} {
		if got := text.Duration(d); got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Minute:                   "0s",
		12900 * time.Millisecond:       "12s",
		12*time.Minute + 59e9:          "12m",
		47*time.Hour + 59*time.Hour/60: "47h",
		48 * time.Hour:                 "2d",
		400 * 24 * time.Hour:           "400d",
	} {
		if got := text.Age(d); got != want {
			t.Errorf("%d ns ago is %q, want %q", d, got, want)
		}
	}
}

func TestTook(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		12345 * time.Microsecond: "12ms",
		2013 * time.Millisecond:  "2.013s",
		12345 * time.Millisecond: "12.3s",
		83456 * time.Millisecond: "1m23s",
	} {
		if got := text.Took(d); got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
}
