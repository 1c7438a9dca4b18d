package topology

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
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
func ParseDelay(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("a delay needs a unit (ms, s, m, h, d), write %ss or %sms", s, s)
	}
	part := regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)`)
	total := 0.0 // in milliseconds
	for rest := s; rest != "" || s == ""; {
		found := part.FindStringSubmatch(rest)
		if found == nil {
			return 0, fmt.Errorf("a delay is numbers with units (ms, s, m, h, d), such as 10s, 1m30s or 3.5s")
		}
		n, _ := strconv.ParseFloat(found[1], 64) // infinite if it is too large
		total += n * float64(unitOf(found[2])/time.Millisecond)
		rest = rest[len(found[0]):]
	}
	if total > float64(MaxDelay/time.Millisecond) {
		return 0, fmt.Errorf("a delay may not be longer than %s, the broker's limit", text.Duration(MaxDelay))
	}
	const inexact = 1e-4 // of a sum of floating-point numbers
	if math.Abs(total-math.Round(total)) > inexact {
		return 0, fmt.Errorf("a delay is whole milliseconds, write %s", text.Millis(int64(math.Ceil(total))))
	}
	return time.Duration(math.Round(total)) * time.Millisecond, nil
}

// unitOf returns the unit of a name.
func unitOf(name string) time.Duration {
	for _, u := range units() {
		if u.name == name {
			return u.d
		}
	}
	return 0
}
