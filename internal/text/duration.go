package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration returns a duration as people read it, without the part below a millisecond: "50ms",
// "3.5s", "1m30s", "1d12h". topology.ParseDelay reads it. A negative one is "0s".
func Duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	var b strings.Builder
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if n := d / unit.d; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d -= n * unit.d
		}
	}
	if ms := d.Milliseconds(); ms > 0 {
		b.WriteString(strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + "s")
	}
	return b.String()
}

// Millis returns milliseconds as Duration does.
func Millis(ms int64) string { return Duration(time.Duration(ms) * time.Millisecond) }

// Age returns how long ago something was, in its largest unit alone: "12s", "12m", "47h", "3d". The
// future is "0s".
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Took returns a duration that was measured, with the digits that matter to a person.
func Took(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return Duration(d.Round(time.Millisecond))
	case d < time.Minute:
		return Duration(d.Round(100 * time.Millisecond))
	default:
		return Duration(d.Round(time.Second))
	}
}
