package plan

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/topology"
)

// refusedByBroker says why the broker would refuse to declare a queue: apply would stop there, with
// a part of the changes done. A queue that is on the broker as it is wanted is not declared again;
// an older version may have created it. have is nil for a new queue. Empty: nothing is refused.
func (r *resolver) refusedByBroker(want topology.Queue, have topology.Object) string {
	problems := arguments.Refused(r.state.Version, want.Type(), want.Arguments)
	if len(problems) == 0 || have != nil && len(differing(have.Properties(), want.Properties())) == 0 {
		return ""
	}
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.String()
	}
	return fmt.Sprintf("RabbitMQ %s refuses the queue: %s", r.state.Version, strings.Join(all, ". "))
}
