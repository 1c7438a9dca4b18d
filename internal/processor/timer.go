package processor

import (
	"context"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

// runTimer reads the timer of a delay until ctx ends, and reconnects by itself. While it cannot
// read, messages wait in levels: see retry.DelayRules. The probe may be nil.
func (p *Processor) runTimer(ctx context.Context, d topology.Delay, probe *monitor.Probe) {
	logged := ""
	for failures := 1; ; failures++ {
		begin := time.Now()
		err := amqp.ReadTimer(ctx, p.endpoint(d.Name, "timer"), d.Timer, func() {
			probe.Consuming()
			if logged != "" {
				p.Log.InfoContext(ctx, "reading the timer of a delay again", "queue", d.Timer)
			}
			logged = ""
		})
		if ctx.Err() != nil {
			probe.Idle(nil)
			return // what was not answered is in the timer
		}
		if time.Since(begin) > settled {
			failures = 1
		}
		err = withFix(err)
		probe.Idle(err)
		if err.Error() != logged {
			p.Log.WarnContext(ctx, "cannot read the timer of a delay: its messages may be late",
				"by", topology.TimerTTL, "queue", d.Timer, "error", err)
			logged = err.Error()
		}
		if wait.For(ctx, pauseAfter(failures)) != nil {
			return
		}
	}
}
