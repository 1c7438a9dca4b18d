package apply_test

import (
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }
