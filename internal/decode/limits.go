package decode

import (
	"errors"
	"fmt"
	"io"
)

// The limits of what a body may cost. What lies beyond them is shown as text or hexadecimal,
// with a note.
const (
	// MaxBytes is the size of the largest body that is decoded, before and after decompression.
	MaxBytes = 16 << 20
	// MaxDepth is how deep values may be nested.
	MaxDepth = 64
	// MaxRatio is how many times larger decompression may make a body. Bodies up to ratioFrom
	// bytes are exempt: repetitive ones are compressed well, and small ones cost nothing.
	MaxRatio  = 100
	ratioFrom = 64 << 10
	// maxValues is how many values a tree may hold. A body of two bytes a value would take
	// some fifty times its size.
	maxValues = 500_000
	// maxLayers is how many encodings a body may be wrapped in.
	maxLayers = 8
	// maxHex is how many bytes are shown in hexadecimal.
	maxHex = 4 << 10
)

// The errors of bodies beyond the limits.
var (
	errDeep = fmt.Errorf("it is nested more than %d levels deep", MaxDepth)
	errMany = fmt.Errorf("it holds more than %d values", maxValues)
)

// errBomb is wrapped by the error of a body that decompression would make too large.
var errBomb = errors.New("decompression stopped")

// readAll reads what a decompressor returns, up to the limits for a body of size bytes.
func readAll(r io.Reader, size int) ([]byte, error) {
	most := min(MaxBytes, max(ratioFrom, size*MaxRatio))
	out, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	switch {
	case len(out) > most && most == MaxBytes:
		return nil, fmt.Errorf("%w: the body would be larger than %d MiB", errBomb, MaxBytes>>20)
	case len(out) > most:
		return nil, fmt.Errorf("%w: the body would be more than %d times larger", errBomb, MaxRatio)
	}
	return out, err
}

// budget counts the values of a tree.
type budget struct{ left int }

func newBudget() *budget { return &budget{maxValues} }

// spend takes n values and reports whether there were as many.
func (b *budget) spend(n int) bool {
	b.left -= n
	return b.left >= 0
}
