package topology

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
)

// Priority returns the priority of a policy. RabbitMQ accepts any number there, also 1.5 and 2^63
// (measured on 3.10.8, 4.0.5 and 4.3.6): a fraction is rounded up, and a number that is too large
// for an int64 becomes the largest one, so that a policy of dlxctl above this value is above the
// policy. It fails on what is not a number.
func Priority(n json.Number) (int64, error) {
	if whole, err := n.Int64(); err == nil {
		return whole, nil
	}
	f, _, err := big.ParseFloat(n.String(), 10, 256, big.ToPositiveInf)
	if err != nil {
		return 0, fmt.Errorf("priority %q: %w", n, err)
	}
	whole, accuracy := f.Int64()
	if accuracy == big.Below && whole < math.MaxInt64 {
		whole++
	}
	return whole, nil
}
