//go:build !shortticks

package broker

import "time"

// Tick is how often a node counts what its queues hold: RabbitMQ's quorum_tick_interval and
// collect_statistics_interval. Counts can be as old when they are read. The build tag shortticks is
// for tests alone, on nodes that count more often.
const Tick = 5 * time.Second
