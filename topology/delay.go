package topology

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// unit is a unit of a delay.
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

// FormatDelay returns the canonical text of a delay, as the names of retry queues have
// it: largest unit first, no zero parts, so 60s is "1m" and 24h "1d". Zero is "0s".
// It drops the part below a millisecond.
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
// "1m30s" or "0s". Its error describes the format of a delay, but neither quotes s nor names a
// position in a file.
func ParseDelay(s string) (time.Duration, error) {
	if s == "" {
		return 0, fmt.Errorf("a delay is a number and a unit, such as 10s or 1m30s")
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("a delay needs a unit (ms, s, m, h, d), write %ss or %sms", s, s)
	}
	if fine, err := time.ParseDuration(s); err == nil && fine >= 0 && strings.ContainsAny(s, ".µun") {
		rounded := FormatDelay(fine.Truncate(time.Millisecond) + ceil(fine))
		return 0, fmt.Errorf("a delay is whole numbers of ms, s, m, h or d, write %s", rounded)
	}
	var total time.Duration
	for rest := s; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("a delay is whole numbers with units (ms, s, m, h, d), such as 10s or 1m30s")
		}
		rest = rest[digits:]
		end := len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ"))
		d, ok := unitOf(rest[:end])
		if !ok {
			return 0, fmt.Errorf("a delay is whole numbers with units (ms, s, m, h, d), such as 10s or 1m30s")
		}
		rest = rest[end:]
		if n > int64(math.MaxInt64/d) || time.Duration(n)*d > math.MaxInt64-total {
			return 0, fmt.Errorf("a delay may not be longer than %s", FormatDelay(MaxDelay))
		}
		total += time.Duration(n) * d
	}
	if total > MaxDelay {
		return 0, fmt.Errorf("a delay may not be longer than %s, the broker's limit", FormatDelay(MaxDelay))
	}
	return total, nil
}

func unitOf(name string) (time.Duration, bool) {
	for _, u := range units() {
		if u.name == name {
			return u.d, true
		}
	}
	return 0, false
}

// ceil returns the millisecond that rounding d up adds to it.
func ceil(d time.Duration) time.Duration {
	if d%time.Millisecond == 0 {
		return 0
	}
	return time.Millisecond
}
