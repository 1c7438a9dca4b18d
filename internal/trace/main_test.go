package trace_test

import (
	"flag"
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// TestMain makes rapid try few topologies unless -rapid.checks says otherwise: each is applied to
// a broker, and its messages wait in tiers.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(brokertest.Main(m))
}
