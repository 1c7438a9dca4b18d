package topology_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]float64{
		"200/s": 200, "12000/min": 200, "1.5/s": 1.5, "12000/m": 200, "18/h": 0.005, "1000000000/s": 1e9,
	} {
		if got, err := topology.ParseRate(in); got != want || err != nil {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	const number = "write a number of messages per s, min or h"
	for in, want := range map[string]string{
		"": number, "200": number, "200/": number, "/s": number, "200/d": number, "-1/s": number, "1e3/s": number,
		"1,000/s": number, "NaN/s": number, "200/s/s": number,
		"0/s": "write more than 0/s", "2000000000/s": "write 1000000000/s or less",
	} {
		if got, err := topology.ParseRate(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}
