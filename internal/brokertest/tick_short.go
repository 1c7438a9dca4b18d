//go:build shortticks

package brokertest

import "time"

// tick is how often the nodes count their messages, as the program that is tested believes: see
// package broker, which has the same build tag.
const tick = time.Second
