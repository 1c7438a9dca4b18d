package topology

import "time"

// Live is what only a running broker tells, and not its objects.
type Live struct {
	// Consumers are the consumers, by queue. Nil where they could not be read.
	Consumers map[string][]Consumer
	// Growth is, by queue, by how many messages it grew between two readings. Nil where
	// there was one reading.
	Growth map[string]int64
	// Interval is the time between these readings.
	Interval time.Duration
	// Oldest is, by queue, when its first message was published or dead-lettered, where the
	// broker tells. Nil where it does not.
	Oldest map[string]time.Time
	// Now is the time of the reading.
	Now time.Time
	// Leaderless are queues without a leader, or that no node answers for.
	Leaderless []string
	// Nodes are the nodes of the cluster, those that are down included, Running those that are not,
	// and Replicas those of each quorum queue. Nil where they could not be read.
	Nodes, Running []string
	Replicas       map[string][]string
	// Delayed is how many messages wait in an exchange of the plugin for delayed messages, by
	// exchange. Nil where the broker does not tell.
	Delayed map[string]int64
	// Unseen says what could not be read, and which rules did not run for it.
	Unseen []string
}

// Consumer is a consumer of a queue.
type Consumer struct {
	Tag string
	// AutoAck says that the broker forgets a message when it sends it.
	AutoAck bool
	// Connection is the name of its connection, and User its user. Empty where they are not known.
	Connection, User string
}
