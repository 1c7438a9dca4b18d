package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/cmd"
)

var update = flag.Bool("update", false, "rewrite the expectations of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(withBroker{m}, map[string]func(){
		"dlxctl":  func() { os.Exit(cmd.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
		"measure": measure,
	})
}

// withBroker runs the tests beside the shared node of brokertest.
type withBroker struct{ m *testing.M }

func (w withBroker) Run() int { return brokertest.Main(w.m) }

// TestScripts runs the command line against a real broker: each script has a
// virtual host of its own, named by RABBITMQ_URL. It runs as a user like the one that
// 'dlxctl rights' prints for plan and apply: with the tag management. A script that
// needs more says so with the verb tags. What a script does to the broker by itself it
// does as the administrator.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", func(env *testscript.Env) error {
		target := brokertest.VHost(t)
		env.Values[targetKey{}], env.Values[testKey{}] = target, t
		env.Setenv("RABBITMQ_URL", target.Tool(t).URL)
		env.Setenv("RABBITMQ_API_URL", target.API)
		env.Setenv("VHOST", target.VHost)
		samples, err := filepath.Abs("templates/ci")
		if err != nil {
			return err
		}
		env.Setenv("CI_SAMPLES", samples)
		return copyTree("testdata/genomics", filepath.Join(env.WorkDir, "genomics"))
	})
}

// TestBrokenFiles checks the exact messages for topology files that are wrong.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script/broken", nil)
}

func runScripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Setup:               setup,
		Cmds:                commands(),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// copyTree puts the files of a folder of the repository where a script finds them.
func copyTree(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }
