package plan

import (
	"errors"
	"fmt"

	"github.com/dlxctl/dlxctl/topology"
)

// ErrBroker is wrapped by the error of Guard: dlxctl must not use this broker.
var ErrBroker = errors.New("the wrong broker")

// guardError is an error of Guard, in words for the user.
type guardError string

func (e guardError) Error() string { return string(e) }

func (guardError) Unwrap() error { return ErrBroker }

// Guard refuses a broker that is too old, or belongs to another cluster than that of the
// topology. Call it for every connection, over HTTP and over AMQP.
func Guard(want topology.Compiled, version, cluster string) error {
	switch {
	case !atLeast(version, oldest):
		return guardError(fmt.Sprintf("the broker is RabbitMQ %s; dlxctl needs %d.%d or newer: older ones lose messages that wait in quorum queues with a TTL", version, oldest[0], oldest[1]))
	case len(want.Matches) > 0 && !atLeast(version, leastForMatch):
		return guardError(fmt.Sprintf("the broker is RabbitMQ %s, and match needs %d.%d or newer: before, a publisher can forge in which queue a message failed; list the queues by name", version, leastForMatch[0], leastForMatch[1]))
	case want.Cluster != "" && want.Cluster != cluster:
		return guardError(fmt.Sprintf("the topology is for the cluster %q, and this broker belongs to %q; check RABBITMQ_URL, or cluster: in the file", want.Cluster, cluster))
	}
	return nil
}

// oldest is the oldest version that can do what we need: at-least-once
// dead-lettering, and a TTL in quorum queues.
var oldest = [2]int{3, 10} //nolint:gochecknoglobals // an array cannot be a constant

// atLeast compares the first two numbers of a version such as 4.0.5.
func atLeast(version string, least [2]int) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return true // a build of one's own: it will show
	}
	return major > least[0] || major == least[0] && minor >= least[1]
}
