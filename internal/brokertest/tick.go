//go:build !shortticks

package brokertest

// tick is how often the nodes count their messages, as the program that is tested believes.
const tick = standardTick
