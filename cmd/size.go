package cmd

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a number of bytes on the command line: 33554432, 32768KiB, 32MiB, 1GiB.
type size int

// String returns the size in the largest unit that gives a whole number.
func (s *size) String() string {
	for _, u := range units() {
		if *s > 0 && int(*s)%u.bytes == 0 {
			return strconv.Itoa(int(*s)/u.bytes) + u.name
		}
	}
	return "0"
}

// Set parses a size.
func (s *size) Set(text string) error {
	for _, u := range units() {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > uint64(math.MaxInt/u.bytes) { //nolint:gosec // it is positive
			break
		}
		*s = size(int(n) * u.bytes) //nolint:gosec // it was checked
		return nil
	}
	return fmt.Errorf("%q is not a number of bytes; write a size such as 32MiB, 512KiB or 1048576", text)
}

// Type returns the name of the type in help texts.
func (s *size) Type() string { return "size" }

type unit struct {
	name  string
	bytes int
}

// units returns the units, largest first.
func units() []unit { return []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}} }
