package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// TestScripts runs the command line against a real broker: each script has a virtual host of its
// own, in RABBITMQ_URL. It runs as a user like the one that 'dlxctl rights' prints for plan and
// apply: with the tag management. A script that needs more tags adds them with the verb tags. The
// verbs that act on the broker directly do so as the administrator.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", func(env *testscript.Env) error {
		target := brokertest.VHost(t)
		env.Values[targetKey{}], env.Values[testKey{}] = target, t
		env.Values[servicesKey{}] = &sync.Map{}
		env.Setenv("RABBITMQ_URL", target.Tool(t).URL)
		env.Setenv("RABBITMQ_API_URL", target.API)
		env.Setenv("VHOST", target.VHost)
		env.Setenv("DLXCTL_LATE", tolerated)
		samples, err := filepath.Abs("../templates/ci")
		if err != nil {
			return err
		}
		env.Setenv("CI_SAMPLES", samples)
		if err := copyTree("../testdata/company", filepath.Join(env.WorkDir, "company")); err != nil {
			return err
		}
		return copyTree("../testdata/genomics", filepath.Join(env.WorkDir, "genomics"))
	})
}

// TestBrokenFiles checks the exact messages for topology files that are wrong.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	runScripts(t, "testdata/script/broken", nil)
}

func runScripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Setup:               setup,
		Cmds:                commands(),
		Condition:           condition,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// condition is true of "older" where a script is left to the newest line of RabbitMQ and to the
// night, of "before4" on a line before 4.0, and of "before43" on one before 4.3.
func condition(name string) (bool, error) {
	switch name {
	case "older":
		return brokertest.OnlyAtNight(), nil
	case "before4":
		return strings.HasPrefix(os.Getenv("BROKER_VERSION"), "3."), nil
	case "before43":
		return !(topology.State{Version: os.Getenv("BROKER_VERSION")}).AtLeast(4, 3), nil
	default:
		return false, fmt.Errorf("unknown condition %q", name)
	}
}

// copyTree copies a folder of the repository to where a script finds it.
func copyTree(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }

// Each command has a script that reads like a page of a manual: it has the command's name, and its
// first line says what the command is for. Each command of a command, such as desk list, is run by
// some script.
func TestEachCommandHasAScript(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{}
	for _, path := range globbed(t, "testdata/script/*.txtar") {
		scripts[strings.TrimSuffix(filepath.Base(path), ".txtar")] = readFile(t, path)
	}
	manual := t.TempDir()
	if code, out := run("man", manual); code != 0 {
		t.Fatal(out)
	}
	commands := 0
	for _, page := range globbed(t, manual+"/dlxctl-*.1") {
		commands++
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(page), "dlxctl-"), ".1")
		command := "dlxctl " + strings.ReplaceAll(name, "-", " ")
		run, titled := false, false
		for script, text := range scripts {
			run = run || regexp.MustCompile(`\b`+command+`\b`).MatchString(text)
			titled = titled || (script == name || strings.HasPrefix(script, name+"_")) && strings.HasPrefix(text, "# ")
		}
		if !run {
			t.Errorf("no script runs %q", command)
		}
		if !titled && !strings.Contains(name, "-") {
			t.Errorf("%q has no script of its own; write testdata/script/%s.txtar", command, name)
		}
	}
	if commands < 30 {
		t.Errorf("only %d commands were found", commands)
	}
}

// globbed returns the files of a pattern.
func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
