package cmd

import (
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// addLimits adds the flags that limit how fast messages are sent, and when sending stops. Their
// defaults are what l has.
func addLimits(f *pflag.FlagSet, l *desk.Limits) {
	f.StringVar(&l.Rate, "rate", l.Rate, "`RATE` at which messages are sent, such as 10/s or 600/m; none means no limit")
	f.StringVar(&l.Ramp, "ramp", l.Ramp,
		"`SIZES` of the first batches; each must succeed before the next is sent; none sends no batches")
	f.IntVar(&l.MaxWaiting, "max-waiting", l.MaxWaiting,
		"pause while the target queue holds more messages; 0 means no limit")
	f.StringVar(&l.StopOn, "stop-on", l.StopOn,
		"stop after so many repeated `FAILURES`, or after a share of the sent messages such as 20%; never stops in the batches of --ramp only")
	f.IntVar(&l.InFlight, "in-flight", l.InFlight,
		"messages that may be sent and not yet confirmed; a kill doubles at most these (default: 1 with a rate, 256 without)")
	markAdvanced(f, "in-flight")
	f.DurationVar(&l.Settle, "settle", l.Settle, "how long no failure must be heard before a batch counts as done")
}
