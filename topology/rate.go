package topology

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// mostRate is the highest rate per second.
const mostRate = 1e9

// ParseRate reads a rate, such as 200/s, 12000/min (or m) or 0.5/h, and returns it per second, more
// than 0. Its error describes the format, and does not quote s.
func ParseRate(s string) (float64, error) {
	seconds := map[string]float64{"s": 1, "m": 60, "min": 60, "h": 3600}
	number, unit, _ := strings.Cut(s, "/")
	n, err := strconv.ParseFloat(number, 64)
	if per := seconds[unit]; err == nil && per > 0 && strings.Trim(number, "0123456789.") == "" {
		switch rate := n / per; {
		case rate == 0:
			return 0, errors.New("write more than 0/s")
		case math.IsInf(rate, 0) || rate > mostRate:
			return 0, errors.New("write 1000000000/s or less")
		default:
			return rate, nil
		}
	}
	return 0, errors.New("write a number of messages per s, min or h, such as 200/s or 12000/min")
}
