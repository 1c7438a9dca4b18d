package management

import (
	"encoding/json"

	"github.com/dlxctl/dlxctl/topology"
)

// priority is the priority of a policy, see [topology.Priority]. null is 0.
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
	whole, err := topology.Priority(n)
	*p = priority(whole)
	return err
}
