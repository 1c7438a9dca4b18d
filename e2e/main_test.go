package e2e_test

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dlxctl/dlxctl/cmd"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

var update = flag.Bool("update", false, "rewrite the expectations of the scripts and of the table of changes")

func TestMain(m *testing.M) {
	testscript.Main(withBroker{m}, map[string]func(){
		"dlxctl":  func() { os.Exit(cmd.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
		"measure": measure,
	})
}

// withBroker runs the tests next to the shared node of brokertest.
type withBroker struct{ m *testing.M }

func (w withBroker) Run() int { return brokertest.Main(w.m) }
