package plan

import "github.com/dlxctl/dlxctl/topology"

// The number of messages of every queue is cheap to read. Its other statistics, above all how many
// consumers it has, are not, and few plans need more than those of the failed queues. So a plan
// notes which ones it has read: who makes plans reads these, and makes the plan again.

// consulted are the queues whose statistics were read.
type consulted map[string]bool

func (c consulted) add(queue string) {
	if c != nil {
		c[queue] = true
	}
}

// usage returns what a queue holds, with its statistics, and notes that they were read.
func (r *resolver) usage(queue string) topology.Usage {
	r.consulted.add(queue)
	return r.state.Usage[queue]
}

// held returns how many messages a queue holds. That is not a statistic.
func (r *resolver) held(queue string) int64 {
	u := r.state.Usage[queue]
	return u.Ready + u.Unacknowledged
}
