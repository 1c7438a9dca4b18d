package spec

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/topology"
)

// outage reads what is an outage for a backoff. Nil: the file does not say.
func (d *decoder) outage(f fields) *topology.Outage {
	v, ok := f.values["outage"]
	if !ok {
		return nil
	}
	f = d.fields(v.value, "outage", outageKeys(), nil)
	out := topology.DefaultOutage()
	if percent, ok := d.amount(f, "failing", "%", "a share, such as 80%"); ok {
		if percent > 100 {
			d.problem(d.pos(f, "failing"), "failing is more than 100%", "write 100% or less")
		}
		out.Failing = percent / 100
	}
	if n, ok := d.number(f, "of", 1); ok {
		if n > manyAttempts {
			d.problem(d.pos(f, "of"), fmt.Sprintf("of is %d", n), fmt.Sprintf("write %d or less", manyAttempts))
		}
		out.Of = int(min(n, manyAttempts))
	}
	if until, ok := d.delay(f, "until"); ok {
		if until == 0 {
			d.problem(d.pos(f, "until"), "until is 0, so no message would wait", "write a delay, such as 24h, or remove outage")
		}
		out.Until = until
	}
	if rate, ok := d.amount(f, "rate", "/s", "a number per second, such as 100/s"); ok {
		out.Rate = rate
	}
	return &out
}

// amount returns the number under a key, which has a unit and is more than 0.
func (d *decoder) amount(f fields, name, unit, example string) (float64, bool) {
	v, ok := f.values[name]
	if !ok {
		return 0, false
	}
	n, ok := d.scalar(v.value)
	if !ok {
		return 0, false
	}
	digits, hasUnit := strings.CutSuffix(n.Value, unit)
	x, err := strconv.ParseFloat(digits, 64)
	if n.Kind != yaml.ScalarNode || !hasUnit || err != nil || strings.Trim(digits, "0123456789.") != "" {
		found := strconv.Quote(n.Value)
		if n.Kind != yaml.ScalarNode {
			found = kindOf(n)
		}
		d.problem(d.at(n), name+" is "+found, "write "+example)
		return 0, false
	}
	if x == 0 {
		d.problem(d.at(n), name+" is 0", "write more than 0"+unit)
		return 0, false
	}
	return x, true
}
