package management

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
)

// priority is the priority of a policy. RabbitMQ accepts any number there, also 1.5 and 2^63
// (measured on 3.10.8, 4.0.5 and 4.3.6): a fraction is rounded up, and a number that is too large
// for an int64 becomes the largest one, so that a policy of dlxctl above this value is above the
// policy.
type priority int64

// UnmarshalJSON decodes any number.
func (p *priority) UnmarshalJSON(b []byte) error {
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	if n == "" {
		*p = 0
		return nil
	}
	if whole, err := n.Int64(); err == nil {
		*p = priority(whole)
		return nil
	}
	f, _, err := big.ParseFloat(n.String(), 10, 256, big.ToPositiveInf)
	if err != nil {
		return fmt.Errorf("priority %q: %w", n, err)
	}
	whole, accuracy := f.Int64()
	if accuracy == big.Below && whole < math.MaxInt64 {
		whole++
	}
	*p = priority(whole)
	return nil
}
