//go:build shortticks

package broker

import "time"

// Tick is that of nodes that "scripts/broker start --tick 1000" starts.
const Tick = time.Second
