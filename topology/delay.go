package topology

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

type unit struct {
	name string
	d    time.Duration
}

// units returns the units of a delay, the largest first.
func units() []unit {
	return []unit{
		{"d", 24 * time.Hour},
		{"h", time.Hour},
		{"m", time.Minute},
		{"s", time.Second},
		{"ms", time.Millisecond},
	}
}

// FormatDelay returns the text of a delay that programs compare, as the names of retry queues have
// it: largest unit first, no zero parts, so 60s is "1m", 24h "1d" and 3.5s "3s500ms". Zero is
// "0s". It drops the part below a millisecond. People read [text.Duration].
func FormatDelay(d time.Duration) string {
	if d < time.Millisecond {
		return "0s"
	}
	var b strings.Builder
	for _, u := range units() {
		if n := d / u.d; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteString(u.name)
			d -= n * u.d
		}
	}
	return b.String()
}

// ParseDelay reads a delay: numbers with units (ms s m h d), largest first or not, as "90s",
// "1m30s", "3.5s" or "0s". It is whole milliseconds. Its error describes the format of a delay,
// but neither quotes s nor names a position in a file.
func ParseDelay(s string) (time.Duration, error) { return ParseDelayUpTo(s, MaxDelay) }

// ParseDelayUpTo reads a delay as [ParseDelay] does, up to another limit.
func ParseDelayUpTo(s string, limit time.Duration) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("a delay needs a unit (ms, s, m, h, d), write %ss or %sms", s, s)
	}
	total, ok := milliseconds(s)
	if !ok {
		return 0, fmt.Errorf("a delay is numbers with units (ms, s, m, h, d), such as 10s, 1m30s or 3.5s")
	}
	switch {
	case total <= float64(limit/time.Millisecond):
	case limit == MaxDelay:
		return 0, fmt.Errorf("a delay may not be longer than %s, the broker's limit", text.Duration(limit))
	default:
		return 0, fmt.Errorf("it may not be longer than %s", text.Duration(limit))
	}
	const inexact = 1e-4 // of a sum of floating-point numbers
	if math.Abs(total-math.Round(total)) > inexact {
		return 0, fmt.Errorf("a delay is whole milliseconds, write %s", text.Millis(int64(math.Ceil(total))))
	}
	return time.Duration(math.Round(total)) * time.Millisecond, nil
}

// ParseWait reads a delay as [ParseDelay] does, of any length: one that is too long to be counted
// is the longest. It reports whether s is one.
func ParseWait(s string) (time.Duration, bool) {
	total, ok := milliseconds(s)
	if !ok || total >= float64(math.MaxInt64/time.Millisecond) {
		return time.Duration(math.MaxInt64), ok
	}
	return time.Duration(math.Ceil(total)) * time.Millisecond, true
}

// milliseconds returns the sum of numbers with units. It is infinite if it is too large.
func milliseconds(s string) (total float64, ok bool) {
	for rest := s; rest != "" || s == ""; {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789."))]
		name := rest[len(digits):]
		name = name[:len(name)-len(strings.TrimLeft(name, "mshd"))]
		n, err := strconv.ParseFloat(digits, 64)
		if unitOf(name) == 0 || err != nil && !errors.Is(err, strconv.ErrRange) || strings.Trim(digits, ".") != digits {
			return 0, false
		}
		total += n * float64(unitOf(name)/time.Millisecond)
		rest = rest[len(digits)+len(name):]
	}
	return total, true
}

func unitOf(name string) time.Duration {
	for _, u := range units() {
		if u.name == name {
			return u.d
		}
	}
	return 0
}
