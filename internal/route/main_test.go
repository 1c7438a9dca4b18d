package route_test

import (
	"flag"
	"os"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// TestMain makes rapid try few virtual hosts unless -rapid.checks says otherwise: each is declared
// on a broker.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", "40"); err != nil {
			panic(err)
		}
	}
	os.Exit(brokertest.Main(m))
}
