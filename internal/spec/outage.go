package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// outage reads what is an outage for a backoff whose tiers last so long. Nil: the file does not
// say.
func (d *decoder) outage(f fields, tiers time.Duration) *topology.Outage {
	v, ok := f.values["outage"]
	if !ok {
		return nil
	}
	f = d.fields(v.value, "outage", outageKeys(), nil)
	out := topology.DefaultOutage()
	if percent, ok := d.share(f, "failing"); ok {
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
	if out.Until > 0 && out.Until <= tiers {
		at := d.at(v.value)
		if _, given := f.values["until"]; given {
			at = d.pos(f, "until")
		}
		d.problem(at, fmt.Sprintf("until is %s and the tiers last %s, so no message would wait",
			text.Duration(out.Until), text.Duration(tiers)), "write a longer one, or remove outage")
	}
	if rate, ok := d.rate(f, "rate"); ok {
		out.Rate = rate
	}
	return &out
}

// share returns the percentage under a key, which is more than 0.
func (d *decoder) share(f fields, name string) (float64, bool) {
	s, at, ok := d.measure(f, name)
	if !ok {
		return 0, false
	}
	digits, hasUnit := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(digits, 64)
	switch {
	case !hasUnit || err != nil || strings.Trim(digits, "0123456789.") != "":
		d.problem(at, fmt.Sprintf("%s is %q", name, s), "write a share, such as 80%")
	case x == 0:
		d.problem(at, name+" is 0", "write more than 0%")
	default:
		return x, true
	}
	return 0, false
}

// rate returns the rate under a key, per second.
func (d *decoder) rate(f fields, name string) (float64, bool) {
	s, at, ok := d.measure(f, name)
	if !ok {
		return 0, false
	}
	x, err := topology.ParseRate(s)
	if err != nil {
		d.problem(at, fmt.Sprintf("%s is %q", name, s), err.Error())
	}
	return x, err == nil
}

// measure returns the value under a key that has a unit, and its place.
func (d *decoder) measure(f fields, name string) (string, Pos, bool) {
	v, ok := f.values[name]
	if !ok {
		return "", Pos{}, false
	}
	n, ok := d.scalar(v.value)
	if ok && n.Kind != yaml.ScalarNode {
		d.problem(d.at(n), name+" is "+kindOf(n), "write a text, such as 80% or 100/s")
	}
	return n.Value, d.at(n), ok && n.Kind == yaml.ScalarNode
}
