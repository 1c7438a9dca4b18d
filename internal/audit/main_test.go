package audit_test

import (
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

func TestMain(m *testing.M) {
	os.Exit(brokertest.Main(m))
}
