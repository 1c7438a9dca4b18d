package trace_test

import (
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// TestMain makes rapid try few topologies: each is applied to a broker, and its messages wait in
// tiers.
func TestMain(m *testing.M) { os.Exit(brokertest.MainTrying(m, 4)) }
