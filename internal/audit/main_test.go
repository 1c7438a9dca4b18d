package audit_test

import (
	"flag"
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

var update = flag.Bool("update", false, "rewrite expectations and pages instead of comparing")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(brokertest.Main(m))
}
