package desk_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childTask) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(brokertest.Main(m))
}
