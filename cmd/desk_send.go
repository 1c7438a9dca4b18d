package cmd

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// sendFlags are the flags that limit how fast messages are sent, and when sending stops.
type sendFlags struct {
	rate       string
	ramp       string
	maxWaiting int
	stopOn     string
	inFlight   int
	settle     time.Duration
}

// add adds the flags.
func (k *sendFlags) add(f *pflag.FlagSet) {
	f.StringVar(&k.rate, "rate", "10/s", "`RATE` at which messages are sent, such as 10/s or 600/m; none is no limit")
	f.StringVar(&k.ramp, "ramp", "1,10,100",
		"`SIZES` of the first batches; each must succeed before the next is sent; none sends no batches")
	f.IntVar(&k.maxWaiting, "max-waiting", 1000, "pause while the target queue holds more messages; 0 is no limit")
	f.StringVar(&k.stopOn, "stop-on", "3",
		"stop after so many repeated `FAILURES`, or after a share of the sent messages such as 20%; never does not stop")
	f.IntVar(&k.inFlight, "in-flight", 0,
		"messages that may be sent and not yet confirmed; a kill doubles at most these (default: 1 with a rate, 256 without)")
	f.DurationVar(&k.settle, "settle", 5*time.Second, "how long no failure must be heard before a batch counts as done")
}

// options returns what the flags say. Where changed is given, only flags that are set on the
// command line replace what base has.
func (k *sendFlags) options(base desk.SendOptions, changed func(flag string) bool) (desk.SendOptions, error) {
	for _, part := range []struct {
		flag string
		set  func(*desk.SendOptions) error
	}{
		{"rate", k.setRate},
		{"ramp", k.setRamp},
		{"stop-on", k.setStop},
		{"max-waiting", func(o *desk.SendOptions) error { return atLeast0("max-waiting", k.maxWaiting, &o.MaxWaiting) }},
		{"in-flight", func(o *desk.SendOptions) error { return atLeast0("in-flight", k.inFlight, &o.InFlight) }},
		{"settle", k.setSettle},
	} {
		if changed != nil && !changed(part.flag) {
			continue
		}
		if err := part.set(&base); err != nil {
			return desk.SendOptions{}, usageError{err}
		}
	}
	return base, nil
}

// none switches a limit off.
const none = "none"

func (k *sendFlags) setRate(o *desk.SendOptions) error {
	number, unit, divided := strings.Cut(k.rate, "/")
	seconds, known := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case k.rate == none:
		o.Rate = 0
	case err != nil || !(n > 0) || math.IsInf(n, 0) || divided && !known:
		return fmt.Errorf("--rate is %q; write messages a second such as 10/s, a minute such as 600/m, or none", k.rate)
	case !divided:
		o.Rate = n
	default:
		o.Rate = n / seconds
	}
	return nil
}

func (k *sendFlags) setRamp(o *desk.SendOptions) error {
	o.Ramp = nil
	if k.ramp == none || k.ramp == "" {
		return nil
	}
	for text := range strings.SplitSeq(k.ramp, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return fmt.Errorf("--ramp is %q; write the sizes of the first batches such as 1,10,100, or none", k.ramp)
		}
		o.Ramp = append(o.Ramp, n)
	}
	return nil
}

func (k *sendFlags) setStop(o *desk.SendOptions) error {
	o.StopFailures, o.StopShare = 0, 0
	if k.stopOn == "never" {
		return nil
	}
	wrong := fmt.Errorf("--stop-on is %q; write a number of failures such as 3, a share such as 20%%, or never", k.stopOn)
	if share, ok := strings.CutSuffix(k.stopOn, "%"); ok {
		n, err := strconv.ParseFloat(share, 64)
		if err != nil || !(n > 0) || n > 100 {
			return wrong
		}
		o.StopShare = n / 100
		return nil
	}
	n, err := strconv.Atoi(k.stopOn)
	if err != nil || n < 1 {
		return wrong
	}
	o.StopFailures = n
	return nil
}

func (k *sendFlags) setSettle(o *desk.SendOptions) error {
	if k.settle < 0 {
		return errors.New("--settle must be 0s or more")
	}
	o.Settle = k.settle
	return nil
}

// atLeast0 sets a number that must not be negative.
func atLeast0(flag string, n int, into *int) error {
	if n < 0 {
		return fmt.Errorf("--%s is %d; write 0 or more", flag, n)
	}
	*into = n
	return nil
}
