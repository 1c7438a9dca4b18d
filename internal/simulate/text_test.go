package simulate

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]float64{
		"200/s": 200, "12000/min": 200, "1.5/s": 1.5, "18/h": 0.005, "1000000000/s": 1e9,
	} {
		if got, err := ParseRate(in); got != want || err != nil {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	const number = "write a number of messages per s, min or h"
	for in, want := range map[string]string{
		"": number, "200": number, "200/": number, "/s": number, "200/m": number, "-1/s": number, "1e3/s": number,
		"1,000/s": number, "NaN/s": number, "200/s/s": number,
		"0/s": "write more than 0/s", "2000000000/s": "write 1000000000/s or less",
	} {
		if got, err := ParseRate(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

// topologyOf returns a topology with a queue for each backoff.
func topologyOf(backoffs ...topology.Backoff) topology.Compiled {
	c := topology.Compiled{Name: "shop", Backoffs: backoffs}
	for _, b := range backoffs {
		c.WorkQueues = append(c.WorkQueues, topology.WorkQueue{Name: b.Name + ".work", Backoff: b.Name})
	}
	return c
}

// What is written fits a terminal of 80 columns, and only a terminal has colors.
func TestTextFits(t *testing.T) {
	t.Parallel()
	long := backoff(10*time.Second, time.Minute+500*time.Millisecond, 20*time.Hour, 3*24*time.Hour)
	long.Name = strings.Repeat("long", 10)
	for _, c := range []topology.Compiled{topologyOf(long), topologyOf(long, backoff(0)), topologyOf(backoff(time.Hour))} {
		in := Input{Rate: 200, Capacity: 300, Outage: 30 * time.Hour}
		var plain, colored bytes.Buffer
		r := Make(c, c.WorkQueues, in)
		if err := WriteText(&plain, r, TextOptions{Width: 80}); err != nil {
			t.Fatal(err)
		}
		if err := WriteText(&colored, r, TextOptions{Width: 80, Style: text.Colors()}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(plain.String()) {
			if n := text.Columns(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colored.String(), "\x1b[1m") {
			t.Errorf("colors:\n%s\n%q", plain.String(), colored.String())
		}
	}
}

func TestBars(t *testing.T) {
	t.Parallel()
	for want, levels := range map[string][]float64{
		" ▁▄█": {0, 1, 4, 8}, "██": {5, 5}, "   ": {0, 0, 0}, " █": {-1e-9, 1e-3},
	} {
		if got := bars(levels); got != want {
			t.Errorf("%v: %q, not %q", levels, got, want)
		}
	}
}

// A chart has the highest level of each column, also that of a short time.
func TestChartShowsShortPeaks(t *testing.T) {
	t.Parallel()
	r := Run(Input{Backoff: backoff(time.Second), Rate: 10, Outage: 500 * time.Millisecond})
	levels := r.flow.sample(r.Done, r.Tiers[0].level)
	if most := levels[len(levels)/3]; most != 5 {
		t.Errorf("the peak is %v, not 5: %v", most, levels)
	}
	r.flow.extend(time.Hour)
	if most := r.flow.sample(time.Hour, r.Tiers[0].level)[0]; most != 5 {
		t.Errorf("the peak in an hour is %v, not 5", most)
	}
	if speeds := r.flow.speeds(time.Hour); speeds[len(speeds)-1] < 9.99 || speeds[len(speeds)-1] > 10.01 {
		t.Errorf("an hour later %v are delivered in a second", speeds[len(speeds)-1])
	}
}

// Results that a person can work out.
func TestRun(t *testing.T) {
	t.Parallel()
	key := topology.DefaultOutage()
	standard := backoff(10*time.Second, time.Minute, 10*time.Minute)
	keyed := standard
	keyed.Outage = &key
	excluded := keyed
	excluded.RetryOn = []topology.Reason{topology.ReasonExpired}
	spread := keyed
	spread.Outage = &topology.Outage{Until: 24 * time.Hour, Rate: 100}
	slow := keyed
	slow.Outage = &topology.Outage{Until: 24 * time.Hour, Rate: 1e-9}
	minute := time.Minute
	for name, tc := range map[string]struct {
		in                            Input
		dead, waiting, backlog, speed int64
		deliveries                    int64
		done, waitingAt, emptied      time.Duration
	}{
		"tiers": {
			Input{Backoff: standard, Rate: 200, Outage: 30 * minute},
			226_000, 134_000, 0, 800,
			1_424_000, 40 * minute, 11*minute + 10*time.Second, Never,
		},
		"the key": {
			Input{Backoff: keyed, Rate: 200, Outage: 30 * minute},
			0, 360_000, 0, 1000,
			1_756_000, 40 * minute, 30 * minute, Never,
		},
		"none": {
			Input{Rate: 200, Outage: 30 * minute},
			360_000, 0, 0, 200,
			360_000, 30 * minute, 0, Never,
		},
		"a reason that is not retried": {
			Input{Backoff: excluded, Rate: 200, Outage: 30 * minute},
			360_000, 0, 0, 200,
			360_000, 30 * minute, 0, Never,
		},
		"a short outage": {
			Input{Backoff: standard, Rate: 200, Outage: 5 * time.Second},
			0, 1000, 0, 400,
			2000, 15 * time.Second, 5 * time.Second, Never,
		},
		"consumers that are busy": {
			Input{Rate: 200, Capacity: 200, Outage: minute},
			12_000, 0, 0, 200,
			12_000, minute, 0, Never,
		},
		"a rate of returns": { // from 21m10s on 100 return a second: 53,000 fail again, 279,000 have waited in all
			Input{Backoff: spread, Rate: 200, Outage: 30 * minute},
			0, 360_000, 0, 900,
			1_424_000 + 279_000, 67*minute + 40*time.Second, 30 * minute, Never,
		},
		"a rate that is far too low": { // no message waits longer than a day
			Input{Backoff: slow, Rate: 200, Outage: 30 * minute},
			0, 360_000, 0, 800,
			1_424_000 + 226_000, 24*time.Hour + 30*minute, 30 * minute, Never,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Run(tc.in)
			if r.Dead != tc.dead || r.Waiting != tc.waiting || r.Backlog != tc.backlog || r.DeliveriesPeak != tc.speed ||
				r.WaitingAt != tc.waitingAt || r.BacklogUntil != tc.emptied {
				t.Errorf("%+v", r)
			}
			const step = 10 * time.Second // of a rate, by which the end is late
			if r.Deliveries != tc.deliveries || r.Done.Truncate(step) != tc.done.Truncate(step) {
				t.Errorf("%d deliveries, done after %s", r.Deliveries, r.Done)
			}
		})
	}
}

// Queues with the same backoff are computed once, and of many backoffs no curves are kept.
func TestThousandsOfQueues(t *testing.T) {
	t.Parallel()
	var backoffs []topology.Backoff
	for i := range 1000 {
		b := backoff(time.Duration(10+i)*time.Second, time.Duration(60+i)*time.Second, time.Hour)
		b.Name = topology.FormatDelay(time.Duration(i+1) * time.Second)
		backoffs = append(backoffs, b)
	}
	c := topologyOf(backoffs...)
	in := Input{Rate: 200, Outage: 30 * time.Minute}
	r := Make(c, c.WorkQueues, in)
	if len(r.Cases) != 1000 || r.Cases[0].Without.flow != nil || r.Cases[999].With.flow != nil {
		t.Errorf("%d cases, or curves that no chart needs", len(r.Cases))
	}
	for i := range c.WorkQueues {
		c.WorkQueues[i].Backoff = backoffs[0].Name
	}
	if r := Make(c, c.WorkQueues, in); len(r.Cases) != 1 || len(r.Cases[0].Queues) != 1000 {
		t.Errorf("%d cases for one backoff", len(r.Cases))
	}
}
