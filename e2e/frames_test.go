package e2e_test

import (
	"bytes"
	"net"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// onMethod returns the target as reached through a proxy that calls act before it forwards what
// contains the begin of a method: its class and its number, as in basic.publish {0, 60, 0, 40}.
func onMethod(t *testing.T, target brokertest.Target, method []byte, act func(server net.Conn)) brokertest.Target {
	t.Helper()
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		brokertest.Forward(client, server, func(piece []byte) bool {
			if bytes.Contains(piece, method) {
				act(server)
			}
			return true
		})
	})
}
