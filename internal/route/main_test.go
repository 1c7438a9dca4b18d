package route_test

import (
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// TestMain makes rapid try few virtual hosts: each is declared on a broker.
func TestMain(m *testing.M) { os.Exit(brokertest.MainTrying(m, 40)) }
