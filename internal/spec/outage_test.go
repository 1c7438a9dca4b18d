package spec

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

// outageFile is a file whose backoff has an outage.
func outageFile(outage string) Source {
	return Source{Name: "a.yaml", Data: []byte("version: 1\nname: shop\nbackoff:\n  standard: {tiers: [10s, 10m, 1m], outage: " + outage +
		"}\nqueues: [{name: billing, backoff: standard}]\n")}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	day, tier := 24*time.Hour, topology.Tier{Delay: 10 * time.Minute, Queue: "shop.standard.retry.outage"}
	lookup := func(string) (string, bool) { return "90%", true }
	for in, want := range map[string]topology.Outage{
		"{}":                        {Failing: 0.8, Of: 50, Until: day, Tier: tier},
		"{failing: 12.5%, of: 2}":   {Failing: 0.125, Of: 2, Until: day, Tier: tier},
		"{failing: '${SHARE}'}":     {Failing: 0.9, Of: 50, Until: day, Tier: tier},
		"{until: 36h, rate: 0.5/s}": {Failing: 0.8, Of: 50, Until: 36 * time.Hour, Rate: 0.5, Tier: tier},
	} {
		got, _, err := Load([]Source{outageFile(in)}, lookup)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&want, got.Backoffs[0].Outage); d != "" {
			t.Errorf("%s (-want +got):\n%s", in, d)
		}
	}
}

// What waits in an outage has a TTL of its own: its exchange leads to the queue that dead-letters
// what expires, and nowhere else, whatever is missing.
func TestTheExchangeOfOutages(t *testing.T) {
	t.Parallel()
	got, _, err := Load([]Source{outageFile("{}")}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	name := got.Backoffs[0].Outage.Exchange()
	var leadsTo []string
	for _, b := range got.Bindings {
		if b.Source == name {
			leadsTo = append(leadsTo, b.Destination)
		}
	}
	if len(leadsTo) != 1 || leadsTo[0] != got.Backoffs[0].Outage.Tier.Queue {
		t.Errorf("it leads to %q", leadsTo)
	}
	for _, e := range got.Exchanges {
		if e.Name == name && (e.Type != topology.Fanout || e.Arguments[topology.ArgAlternateExchange] != nil) {
			t.Errorf("it is %+v", e)
		}
	}
}

// Each value that means nothing is reported at its place.
func TestOutageRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"often":            "a.yaml:4:45: outage is the text \"often\", not a mapping",
		"{failing: 0.8}":   `a.yaml:4:55: failing is "0.8"; write a share, such as 80%`,
		"{failing: 1e1%}":  `a.yaml:4:55: failing is "1e1%"; write a share`,
		"{failing: [80%]}": "a.yaml:4:55: failing is a list; write a text, such as 80%",
		"{failing: 0%}":    "a.yaml:4:55: failing is 0; write more than 0%",
		"{failing: 101%}":  "a.yaml:4:55: failing is more than 100%; write 100% or less",
		"{of: 0}":          "a.yaml:4:50: of is 0; write 1 or more",
		"{of: 2000000}":    "a.yaml:4:50: of is 2000000; write 1000000 or less",
		"{until: 0s}":      "a.yaml:4:53: until is 0, so no message would wait; write a delay, such as 24h, or remove outage",
		"{until: 11m10s}":  "a.yaml:4:53: until is 11m10s and the tiers last 11m10s, so no message would wait; write a longer one",
		"{rate: 100}":      `a.yaml:4:52: rate is "100"; write a number of messages per s, min`,
		"{rate: 0/s}":      `a.yaml:4:52: rate is "0/s"; write more than 0/s`,
		"{off: 50}":        `a.yaml:4:46: outage has no key "off"; did you mean "of"?`,
	} {
		_, _, err := Load([]Source{outageFile(in)}, func(string) (string, bool) { return "", false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

// The queue for outages lasts for the longest tier, within the limits of its own.
func TestOutageTier(t *testing.T) {
	t.Parallel()
	for delays, want := range map[string]time.Duration{"[0s]": time.Second, "[1m, 2d]": 24 * time.Hour} {
		file := outageFile("{until: 3d}")
		file.Data = []byte(strings.Replace(string(file.Data), "[10s, 10m, 1m]", delays, 1))
		got, _, err := Load([]Source{file}, func(string) (string, bool) { return "", false })
		if err != nil || got.Backoffs[0].Outage.Tier.Delay != want {
			t.Errorf("%s: %v (%v), want %v", delays, got.Backoffs[0].Outage.Tier, err, want)
		}
	}
}
