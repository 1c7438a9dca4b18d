//go:build shortticks

package broker

import "time"

// Tick is that of nodes that "scripts/broker start --tick 500" starts.
const Tick = 500 * time.Millisecond
